"""Draw with matplotlib to SVG that uses the page's text colour, has unique ids, and is the same bytes every time."""

import io
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rlvr_dir.stats import Estimate
from rlvr_dir.text import visible

if TYPE_CHECKING:
    from matplotlib.typing import RcKeyType

# Colours that also differ in lightness and for colour-blind readers (Okabe and Ito), readable on white and on black.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#8b5a2b")
BASE, RL, EXPO, COUPLING = "#8c8c8c", "#d55e00", "#8a5cc2", "#808080"
MARKS = ("o", "s", "^", "D", "v", "P", "X", "<", "*")  # more than colours: no two lines have both in common
DASHES = ("-", (0, (6, 2)), (0, (2, 2)))  # used in turn, so that lines that coincide are all visible
_LEGEND = ("color", "linestyle", "linewidth", "marker", "markersize", "markerfacecolor")
NARROW = 3.9  # inches, of a figure that is as narrow as a phone
_LONGEST = 100  # characters of a label
INK = "#1b2a3a"  # becomes the page's text colour
STYLE: "dict[RcKeyType, Any]" = {
    "svg.fonttype": "none", "svg.hashsalt": "rlvr-dir", "font.family": "sans-serif", "font.size": 9,
    "text.parse_math": False, "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": INK, "axes.titlesize": 9,
    "xtick.color": INK, "ytick.color": INK, "axes.spines.top": False, "axes.spines.right": False,
    "legend.frameon": False, "legend.fontsize": 9, "figure.facecolor": "none", "axes.facecolor": "none",
    "savefig.facecolor": "none", "axes.unicode_minus": False,
}  # fmt: skip


class Drawing:
    """Hold a figure while it is drawn: its `axes`, one below the other; then its `svg`."""

    def __init__(self, figure: Any, axes: Any) -> None:
        self.figure, self.axes, self.svg = figure, axes, ""

    @property
    def one(self) -> Any:
        """Return the only axes."""
        return self.axes[0]


@contextmanager
def drawing(name: str, height: float, panels: int = 1, *, width: float = NARROW, **options: Any) -> Iterator[Drawing]:
    """Draw a figure in the style of all reports, with `panels` of this height in inches; at the end it becomes SVG.

    By default it is as wide as a phone, where its letters are 11 pixels high; wider screens enlarge it. `name` begins
    all its ids, so that one page can contain many. Titles and labels may contain any names; they are made `visible`,
    and cut at 100 characters.
    """
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*[Gg]lyph.*")  # the browser has fonts that matplotlib does not have
        figure = Figure(figsize=(width, height * panels), layout="constrained")
        canvas = Drawing(figure, figure.subplots(panels, 1, squeeze=False, **options)[:, 0])
        yield canvas
        canvas.svg = _svg(figure, name)


def height_of(lines: int) -> float:
    """Return the height in inches of a panel with this many lines named beside it (`beside`)."""
    return max(2.6, 0.17 * lines + 0.7)


def _svg(figure: Any, name: str) -> str:
    from matplotlib.text import Text
    from matplotlib.ticker import FixedFormatter

    out = io.StringIO()
    for axis in (one_axis for axes in figure.axes for one_axis in (axes.xaxis, axes.yaxis)):
        if isinstance(ticks := axis.get_major_formatter(), FixedFormatter):  # each drawing sets their texts again
            ticks.seq = [visible(label, _LONGEST) for label in ticks.seq]
    for text in figure.findobj(Text):
        text.set_text(visible(text.get_text(), _LONGEST))
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    text = text[text.index("<svg") :].replace(INK, "currentColor")
    prefix = re.sub(r"[^A-Za-z0-9_-]", "-", name)
    text = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', text)
    text = re.sub(r'(xlink:href="#|url\(#)', rf"\g<1>{prefix}-", text)
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    return text.strip()


def look(i: int, **changes: Any) -> dict[str, Any]:
    """Return the colour, the marker and the dashes of the i-th line of a figure."""
    plain = {"color": COLOURS[i % len(COLOURS)], "marker": MARKS[i % len(MARKS)], "linestyle": DASHES[i % len(DASHES)]}
    return plain | changes


def line(axes: Any, at: Sequence[float], estimates: Sequence[Estimate], label: str = "", **style: Any) -> None:
    """Draw estimates with their intervals, and a line through them. Unknown estimates have no point."""
    points = [
        (x, estimate, estimate.value) for x, estimate in zip(at, estimates, strict=True) if estimate.value is not None
    ]
    values = [value for *_, value in points]
    spans = [
        [0.0 if end is None else abs(end - value) for _, estimate, value in points for end in [getattr(estimate, side)]]
        for side in ("low", "high")
    ]
    style = {"markersize": 3.5, "linewidth": 1.1, "elinewidth": 0.6, "capsize": 1.5, **style}
    axes.errorbar([x for x, *_ in points], values, yerr=spans, label=visible(label, 60) or None, **style)


def bars(axes: Any, at: Sequence[float], estimates: Sequence[Estimate], width: float, **style: Any) -> None:
    """Draw bars of estimates with their intervals. Unknown estimates have no bar."""
    axes.bar(at, [estimate.value or 0.0 for estimate in estimates], width, **style)
    for x, estimate in zip(at, estimates, strict=True):
        if estimate.low is not None:
            axes.plot([x, x], [estimate.low, estimate.high], color="#808080", linewidth=0.9)


def ranked_bars(axes: Any, rows: Sequence[tuple[str, float]], colour: str, places: int) -> None:
    """Draw horizontal bars from the top down, in this many places, each named by its token."""
    axes.barh(range(len(rows)), [value for _, value in rows], color=colour, height=0.7)
    axes.set_yticks(range(len(rows)), [visible(token, 24) for token, _ in rows], family="monospace")
    axes.set_ylim(places - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)


def label_rows(axes: Any, labels: Sequence[str]) -> None:
    """Write the names of rows above them, because names are too long to fit beside a figure."""
    axes.set_yticks([])
    axes.set_ylim(len(labels) - 0.5, -0.9)
    for at, label in enumerate(labels):
        axes.text(0.01, at - 0.22, label, transform=axes.get_yaxis_transform(), va="bottom")


def beside(axes: Any) -> None:
    """Name each line beside the axes, in its style and close to the height at which it ends."""
    from matplotlib.container import ErrorbarContainer

    named = []
    for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
        drawn = handle[0] if isinstance(handle, ErrorbarContainer) else handle
        end = axes.transData.transform((axes.get_xlim()[0], float(drawn.get_ydata()[-1])))
        named.append((axes.transAxes.inverted().transform(end)[1], label, drawn))
    named.sort(key=lambda entry: entry[0])
    line_height = 0.2 * len(axes.figure.axes) / axes.figure.get_figheight()  # as a share of the axes' height
    gap = min(1 / max(1, len(named)), line_height)
    places = [height for height, *_ in named]
    for i in range(1, len(places)):
        places[i] = max(places[i], places[i - 1] + gap)
    for i in reversed(range(len(places))):
        places[i] = min(places[i], 1 - gap * (len(places) - 1 - i))
    for place, (_, label, drawn) in zip(places, named, strict=True):
        style = {name: getattr(drawn, f"get_{name}")() for name in _LEGEND}
        axes.plot([1.02, 1.05, 1.08], [place] * 3, markevery=[1], transform=axes.transAxes, clip_on=False, **style)
        axes.text(1.1, place, label, transform=axes.transAxes, va="center")


def root_axis(axes: Any) -> None:
    """Scale the x axis by square roots, which spreads small shares and includes 0."""
    import numpy as np
    from matplotlib.ticker import FormatStrFormatter

    axes.set_xscale("function", functions=(lambda x: np.sqrt(np.maximum(x, 0)), np.square))
    most = axes.dataLim.x1
    ticks = (0, 0.1, 0.5, 1, 2, 5, 10, 20, 40, 60, 80, 100)
    last = next((tick for tick in ticks if tick >= most), most) if most > 0 else 1  # no point is beyond the last tick
    axes.set_xlim(0, max(1.02 * last, 1.05 * most))
    axes.set_xticks([tick for tick in ticks if last / 100 < tick <= last or tick == 0])
    axes.xaxis.set_major_formatter(FormatStrFormatter("%g"))


def percent_axis(axis: Any, unit: str = " %") -> None:
    """Write the ticks of a share as `0.1 %`, also on a logarithmic axis; those of a difference without the unit."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g}{unit}"))
    axis.set_minor_formatter(NullFormatter())
