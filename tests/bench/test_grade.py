"""The grading benchmark: its answers are made up from a seed, its figures are those of the run; speeds are no test."""

from benchmarks.grade import bench_grade, minerva

GOLDS = ["41.8", r"4.5 \times 10^{33}", r"\frac{1}{s+a}", "MR=SRMC", "E_{1},E_{2}"]


def test_made_up_minerva_answers_are_what_their_family_says():
    """No near miss counts, every rewrite does."""
    found = bench_grade(corpora={"minerva": minerva(GOLDS, 3)}, graders=["robust"])
    families = found["results"][0]["families"]
    assert set(families["near miss"]) == set(families["junk"]) == set(families["another gold"]) == {"wrong"}
    assert set(families["rewrite"]) == {"correct"}
