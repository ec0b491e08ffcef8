"""The paper's own numbers, through the functions that draw ours, give the paper's tables cell by cell.

The tables here are typed from the paper: `*` is bold, `_` underlined.
"""

import numpy as np
import pytest

from rlvr_dir.report import paper

MAIN = """
14.79 47.46 6.67 27.84 40.62 79.25 20.69 51.52
35.73 54.09 17.6 30.45 73.04 89.03 42.12 57.86
*39.06 *60.58 *18.54 *36.72 *73.64 *89.69 *43.75 *62.33
5.42 30.63 5.73 32.8 27.64 78.09 12.93 47.17
36.98 *72.3 26.67 46.76 69.13 88.51 44.26 69.19
*38.13 69.87 *31.15 *55.38 *71.05 *92.3 *46.78 *72.52
"""
REWEIGHTING = """
35.63 *61.95 _16.46 _32.19 72.06 _89.1 41.38 _61.08
_36.35 55.27 13.02 20.69 *79.97 84.93 _43.11 53.63
*39.06 _60.58 *18.54 *36.72 _73.64 *89.69 *43.75 *62.33
"""
MINERVA = """
18.35 61.04
46.43 _69.44
_48.68 68.69
47.01 64.59
*49.72 *70.37
29.8 70.43
_55.04 *76.98
*56.57 _76.78
"""
GRIDS = {
    "paper-grid-aime24-dapo": """
_51.98 51.56 51.67 52.71 51.98
51.88 _53.02 *55.42 *54.06 *54.9
*54.17 *53.33 _53.85 _53.85 _54.27
""",
    "paper-grid-aime24-orz": """
43.65 43.33 *46.15 44.90 42.81
*47.19 _45.52 _45.83 _46.25 _43.44
_43.75 *47.50 45.52 *47.08 *45.42
""",
    "paper-grid-aime24-unireason": """
_53.65 53.33 53.12 54.06 53.54
51.88 *54.79 _53.54 _55.00 _54.69
*54.37 _53.75 *53.96 *55.83 *55.10
""",
    "paper-grid-minerva-dapo": """
56.63 56.43
56.8 *57.22
*58.27 56.57
""",
    "paper-grid-minerva-orz": """
56.41 56.39
*57.17 *57.08
55.51 55.28
""",
    "paper-grid-minerva-unireason": """
54.00 54.14
*54.50 54.50
54.32 *56.16
""",
}
SIGNS = {"*": "best", "_": "second"}


def printed(text):
    return [[(float(word.lstrip("*_")), SIGNS.get(word[0], "")) for word in line.split()] for line in text.split("\n") if line]  # noqa: E501  # fmt: skip


def cells(table, first):
    rows = zip(table.kinds, table.cells, strict=True)
    return [[(round(cell.value, 6), cell.mark) for cell in row[first:]] for kind, row in rows if kind != "aside"]


@pytest.fixture(scope="module")
def tables():
    return {table.name: table for table in paper.paper_chapter().sections}


@pytest.mark.parametrize(("name", "text"), [("main", MAIN), ("reweighting", REWEIGHTING), ("minerva", MINERVA)])
def test_methods(tables, name, text):
    """Bold, underline, and the averages, which are computed here and typed there."""
    ours, theirs = cells(tables[f"paper-{name}"], 2), printed(text)
    assert ours == theirs


@pytest.mark.parametrize("name", GRIDS)
def test_grids(tables, name):
    """Thresholds run upwards, as in the paper; the ratio row is beside the scores, not among them."""
    assert cells(tables[name], 1) == printed(GRIDS[name])
    assert tables[name].kinds[0] == "aside"
    last = [np.mean([value for value, _ in row]) for row in printed(GRIDS[name])]
    assert f"γ = 0 {last[0]:.2f}; γ = 0.05 {last[1]:.2f}; γ = 0.1 {last[2]:.2f}" in tables[name].notes[-1]
