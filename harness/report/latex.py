"""Tables as LaTeX, with booktabs and ulem as in the paper."""

from itertools import groupby

from harness.report.model import Cell, Table
from harness.text import visible

_ESCAPES = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "τ": r"$\tau$", "γ": r"$\gamma$", "π": r"$\pi$",
    "α": r"$\alpha$", "Δ": r"$\Delta$", "−": "$-$", "±": r"$\pm$", "≥": r"$\ge$", "≤": r"$\le$",
    "×": r"$\times$", "†": r"$^\dagger$", "√": r"$\surd$", "·": r"$\cdot$", "→": r"$\to$", "–": "--", "…": r"\ldots{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\textquotedbl{}",
}  # fmt: skip


def escape(text: str) -> str:
    """Write text so that LaTeX prints it as it is."""
    return "".join(_ESCAPES.get(character, character) for character in visible(text))


def cell(one: Cell) -> str:
    r"""Write a cell: `\textbf{55.42} {\scriptsize [44.1, 66.7]}`."""
    text = escape(one.text) + (f"$^{{{escape(one.sign)}}}$" if one.sign and one.sign != "†" else escape(one.sign))
    if one.mark == "best":
        text = rf"\textbf{{{text}}}"
    elif one.mark == "second":
        text = rf"\underline{{{text}}}"
    return text + "".join(rf" {{\scriptsize {escape(small)}}}" for small in one.small)


def table(one: Table) -> str:
    """Write a `table` environment: three rules, groups of columns with `cmidrule`."""
    align = "".join("l" if column.words else "r" for column in one.columns)
    lines = [
        r"\begin{table}[t]", r"\centering", rf"\caption{{{escape(one.caption)}}}", rf"\label{{tab:{one.name}}}",
        rf"\begin{{tabular}}{{@{{}}{align}@{{}}}}", r"\toprule",
    ]  # fmt: skip
    if any(column.group for column in one.columns):
        heads, rules, at = [], [], 1
        for group, columns in groupby(one.columns, key=lambda column: column.group):
            width = len(list(columns))
            heads.append(rf"\multicolumn{{{width}}}{{c}}{{{escape(group)}}}" if group else " & " * (width - 1))
            rules += [rf"\cmidrule(lr){{{at}-{at + width - 1}}}"] if group else []
            at += width
        lines += [" & ".join(heads) + r" \\", "".join(rules)]
    lines += [" & ".join(escape(column.title) for column in one.columns) + r" \\", r"\midrule"]
    for row in one.rows:
        cells = [cell(each) for each in row.cells]
        if row.kind == "aside":
            cells = [rf"\textit{{{text}}}" if text else text for text in cells]
        lines += [r"\midrule"] if row.rule else []
        lines.append(" & ".join(cells) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}"]
    lines += [rf"\par\smallskip{{\footnotesize {escape(note)}}}" for note in one.notes]
    return "\n".join([*lines, r"\end{table}", ""])
