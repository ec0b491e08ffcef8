"""The answer in a response and the verdict on it; used by evaluation and by training rewards, never by lm-eval itself.

grade("204", r"so the total is \\boxed{204}").correct   # True
grade_many([(gold, response), ...])                      # one verdict each, de-duplicated, bounded in time
grade_many([(("1.22", "0.822"), response), ...])         # several golds, any one counts

Graders by name: `robust` (default), `plain`, the paper's bare math-verify, and `math_dapo`, by which its trainings were
rewarded. docs/grading.md has the rules.
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
    """Return 16 hexadecimal digits of the SHA-256 of this room's source, by which two installations are compared."""
    digest = sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
