"""The answer in a response and the verdict on it; used by evaluation and by training rewards, never by lm-eval itself.

grade("204", r"so the total is \\boxed{204}").correct   # True
grade_many([(gold, response), ...])                      # one verdict each, de-duplicated, bounded in time
"""

from harness.grading.boxes import Box, find_box, last_box
from harness.grading.grade import GRADERS, KINDS, Verdict, grade, grade_many

__all__ = ["GRADERS", "KINDS", "Box", "Verdict", "find_box", "grade", "grade_many", "last_box"]
