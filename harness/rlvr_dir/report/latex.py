"""Render tables as LaTeX, with booktabs and ulem as in the paper."""

from itertools import groupby

from rlvr_dir.report.model import Cell, Section
from rlvr_dir.text import visible

_ESCAPES = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "τ": r"$\tau$", "γ": r"$\gamma$", "π": r"$\pi$",
    "α": r"$\alpha$", "Δ": r"$\Delta$", "−": "$-$", "±": r"$\pm$", "≥": r"$\ge$", "≤": r"$\le$",
    "×": r"$\times$", "†": r"$^\dagger$", "√": r"$\surd$", "·": r"$\cdot$", "→": r"$\to$", "–": "--", "…": r"\ldots{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\textquotedbl{}",
}  # fmt: skip


def escape(text: str) -> str:
    """Escape text so that LaTeX prints it unchanged."""
    return "".join(_ESCAPES.get(character, character) for character in visible(text))


def cell(value: Cell) -> str:
    r"""Return a cell: `\textbf{55.42} {\scriptsize [44.1, 66.7]}`."""
    text = escape(value.text) + (
        f"$^{{{escape(value.sign)}}}$" if value.sign and value.sign != "†" else escape(value.sign)
    )
    text = {"best": rf"\textbf{{{text}}}", "second": rf"\underline{{{text}}}"}.get(value.mark, text)
    return text + "".join(rf" {{\scriptsize {escape(small)}}}" for small in value.small)


def table(section: Section) -> str:
    """Return a `table` environment: three rules, groups of columns with `cmidrule`."""
    columns = section.columns
    align = "".join("l" if column.words else "r" for column in columns)
    lines = [
        r"\begin{table}[t]", r"\centering", rf"\caption{{{escape(section.title)}}}", rf"\label{{tab:{section.name}}}",
        rf"\begin{{tabular}}{{@{{}}{align}@{{}}}}", r"\toprule",
    ]  # fmt: skip
    if any(column.group for column in columns):
        heads, rules, at = [], [], 1
        for group, members in groupby(columns, key=lambda column: column.group):
            width = len(list(members))
            heads.append(rf"\multicolumn{{{width}}}{{c}}{{{escape(group)}}}" if group else " & " * (width - 1))
            rules += [rf"\cmidrule(lr){{{at}-{at + width - 1}}}"] if group else []
            at += width
        lines += [" & ".join(heads) + r" \\", "".join(rules)]
    lines += [" & ".join(escape(column.title) for column in columns) + r" \\", r"\midrule"]
    for kind, row in zip(section.kinds, section.cells, strict=True):
        cells = [cell(value) for value in row]
        cells = [rf"\textit{{{text}}}" if text else text for text in cells] if kind == "aside" else cells
        lines.append(" & ".join(cells) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}"]
    lines += [rf"\par\smallskip{{\footnotesize {escape(note)}}}" for note in section.notes]
    return "\n".join([*lines, r"\end{table}", ""])
