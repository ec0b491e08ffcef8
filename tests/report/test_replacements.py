"""The chapter that names the changed tokens has the numbers of the table of replacements."""

from rlvr_dir.report.build import build
from rlvr_dir.report.replacements import replacements_chapter
from rlvr_dir.results.replacements import replacements
from tests.report.held import number, rows_of
from tests.results.made import made
from tests.results.replaced import CORRECT, GATED, ROWS, record_of, tokenizer


def test_a_row_of_the_page_is_a_row_of_the_table():
    found = replacements(made(GATED, CORRECT), record_of(*ROWS), tokenizer())
    [section] = replacements_chapter([found]).sections
    rows = rows_of(section)
    assert len(rows) == len(found.frame)
    for row, whole in zip(rows, found.frame.to_dict("records"), strict=True):
        assert (row["Dropped"], row["Written"]) == (f"‘{whole['proposed_text']}’", f"‘{whole['written_text']}’")
        assert number(row, "Times") == whole["times"]
        assert number(row, "Of all changed") == 100 * whole["share"]
        assert number(row, "Δ log p of the dropped") == whole["delta_logp"]
        assert number(row, "Δ log p of the written") == whole["delta_logp_written"]
        assert f"[{whole['proposed_text']} → {whole['written_text']}]" in row["First example"]


def test_a_report_has_the_chapter_if_something_changed_and_else_not():
    result = made(GATED, CORRECT)
    found = replacements(result, record_of(*ROWS), tokenizer())
    names = {section.name for section in build([result], replaced=[found]).sections}
    assert names - {section.name for section in build([result]).sections} == {"replacements-0"}
