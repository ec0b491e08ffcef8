"""The grading benchmark: its answers are made up from a seed, its figures are those of the run; speeds are no test."""

import json
import subprocess
import sys

from benchmarks.grade import bench_grade, boxed, minerva

GOLDS = ["41.8", r"4.5 \times 10^{33}", r"\frac{1}{s+a}", "MR=SRMC", "E_{1},E_{2}"]


def test_made_up_minerva_answers_are_what_their_family_says():
    """No near miss counts, every rewrite does."""
    found = bench_grade(corpora={"minerva": minerva(GOLDS, 3)}, graders=["robust"])
    families = found["results"][0]["families"]
    assert set(families["near miss"]) == set(families["junk"]) == set(families["another gold"]) == {"wrong"}
    assert set(families["rewrite"]) == {"correct"}


def test_the_rules_that_decide_about_real_answers_are_counted(tmp_path):
    rows = [
        ("5", "5"), (r"\frac{1}{2}", r"\dfrac{1}{2}"), ("5", "6"), (r"5\text{ km}", r"5000\text{ m}"), ("3, 4", "4, 3"),
    ]  # fmt: skip
    answers = tmp_path / "answers.jsonl"
    answers.write_text("".join(json.dumps({"gold": gold, "response": boxed(answer)}) + "\n" for gold, answer in rows))
    answers.open("a").write(json.dumps({"gold": "5", "response": "five"}) + "\n")

    def asked(*options):
        words = [sys.executable, "-m", "benchmarks.grade", "--answers", str(answers), *options]
        return subprocess.run(words, capture_output=True, text=True)

    found = json.loads(asked("--json").stdout)["rules"]
    assert {row["rule"]: (row["answers"], row["correct"], row["wrong"]) for row in found} == {
        "numbers": (2, 1, 1),
        "the same text": (1, 1, 0),
        "the same text, once normalised": (1, 1, 0),
        "structures: list": (1, 1, 0),
        "no_box": (1, 0, 0),
    }
    assert sum(row["only_robust"] for row in found) == 1  # math-verify takes the units off
    assert "| all " in asked().stdout
    answers.write_text("[1]\n")
    refused = asked()
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert "line 1" in refused.stderr
