"""Find the answer in a response and grade it, for evaluation and for training rewards.

    grade("204", r"so the total is \\boxed{204}").correct   # True
    grade_many([(gold, response), ...])                      # one verdict each, de-duplicated, bounded in time
    grade_many([(("1.22", "0.822"), response), ...])         # several golds, any one counts

The graders are `robust` (default), `plain`, which is the paper's bare math-verify, and `math_dapo`, which rewarded its
trainings. docs/grading.md has the rules.
"""

from functools import cache
from hashlib import sha256
from pathlib import Path

from rlvr_dir.grading.boxes import Box, find_box
from rlvr_dir.grading.grade import GRADERS, OLDER, VERDICT_KINDS, Gold, Verdict, grade, grade_many, grader_name

DEFAULT_GRADER = "robust"

__all__ = [
    "DEFAULT_GRADER",
    "GRADERS",
    "OLDER",
    "VERDICT_KINDS",
    "Box",
    "Gold",
    "Verdict",
    "find_box",
    "grade",
    "grade_many",
    "grader_name",
]


@cache
def code_digest() -> str:
    """Return 16 hexadecimal digits of the SHA-256 of this package's source, to compare two installations."""
    digest = sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
