"""The answer in a response and the verdict on it; used by evaluation and by training rewards, never by lm-eval itself.

grade("204", r"so the total is \\boxed{204}").correct   # True
grade_many([(gold, response), ...])                      # one verdict each, de-duplicated, bounded in time
grade_many([(("1.22", "0.822"), response), ...])         # several golds, any one counts

Two graders by name: `robust` (default) and `plain`, the paper's bare math-verify. docs/grading.md has the rules.
"""

from harness.grading.boxes import Box, find_box, last_box
from harness.grading.grade import GRADERS, KINDS, Gold, Verdict, grade, grade_many

__all__ = ["GRADERS", "KINDS", "Box", "Gold", "Verdict", "find_box", "grade", "grade_many", "last_box"]
