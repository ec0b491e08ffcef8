"""Show both models' probabilities at every token of a response, and the answers to one problem side by side.

    from rlvr_dir.report.viewer import viewer_data, viewer_html
    records = [RecordStore("runs/records").one(name) for name in names]
    answers = stored_answers(records, common_problems(records)[:3])
    write_file(Path("view.html"), viewer_html(viewer_data(answers, tokenizer)))

`data` makes the numbers, `token_texts` the text of tokens, and `page` the HTML; `viewer_fragment` is the part for a
larger page.
"""

from rlvr_dir.report.viewer.data import (
    ViewedResponse,
    answer_of,
    changed_first,
    common_problems,
    full_name,
    stored_answers,
    viewer_data,
)
from rlvr_dir.report.viewer.page import playground_html, viewer_fragment, viewer_html

__all__ = [
    "ViewedResponse",
    "answer_of",
    "changed_first",
    "common_problems",
    "full_name",
    "playground_html",
    "stored_answers",
    "viewer_data",
    "viewer_fragment",
    "viewer_html",
]
