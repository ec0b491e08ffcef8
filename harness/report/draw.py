"""Drawing: matplotlib to SVG that takes the page's own ink, has ids of its own, and is the same bytes every time."""

import io
import re
import warnings
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from harness.text import visible

if TYPE_CHECKING:
    from matplotlib.typing import RcKeyType

P = ParamSpec("P")
T = TypeVar("T")

# Colours that also differ in lightness and to colour-blind eyes (Okabe and Ito), readable on white and on black.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#999999")
BASE, RL, EXPO, COUPLING = "#8c8c8c", "#d55e00", "#8a5cc2", "#808080"
MARKS = ("o", "s", "^", "D", "v", "P", "X")
_LONGEST = 100  # characters of a label
INK = "#1b2a3a"  # becomes the page's text colour
STYLE: "dict[RcKeyType, Any]" = {
    "svg.fonttype": "none", "svg.hashsalt": "rlvr-dir", "font.family": "sans-serif", "font.size": 9,
    "text.parse_math": False, "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": INK, "axes.titlesize": 9,
    "xtick.color": INK, "ytick.color": INK, "axes.spines.top": False, "axes.spines.right": False,
    "legend.frameon": False, "legend.fontsize": 8, "figure.facecolor": "none", "axes.facecolor": "none",
    "savefig.facecolor": "none", "axes.unicode_minus": False,
}  # fmt: skip


def styled(draw: Callable[P, T]) -> Callable[P, T]:
    """Let a function draw in this room's style from beginning to end."""

    @wraps(draw)
    def inside(*args: P.args, **kwargs: P.kwargs) -> T:
        import matplotlib

        with matplotlib.rc_context(STYLE), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*[Gg]lyph.*")  # the browser has fonts that matplotlib has not
            return draw(*args, **kwargs)

    return inside


def canvas(width: float, height: float, rows: int = 1, columns: int = 1, **how: Any) -> tuple[Any, Any]:
    """Make a figure of so many inches and its axes (an array of them where there are several)."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, **how)


def svg(figure: Any, name: str) -> str:
    """Return the figure as an `<svg>` element; `name` begins all its ids, so that many can stand on one page.

    Titles and labels may hold anybody's names: they are made `visible`, and cut at 100 characters.
    """
    from matplotlib.text import Text
    from matplotlib.ticker import FixedFormatter

    out = io.StringIO()
    for axis in (each for axes in figure.axes for each in (axes.xaxis, axes.yaxis)):
        if isinstance(ticks := axis.get_major_formatter(), FixedFormatter):  # each drawing sets their texts anew
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


def root_axis(axes: Any) -> None:
    """Scale the x axis by square roots: small shares are spread out, and 0 has its place."""
    import numpy as np
    from matplotlib.ticker import FormatStrFormatter

    axes.set_xscale("function", functions=(lambda x: np.sqrt(np.maximum(x, 0)), np.square))
    axes.set_xlim(left=0)
    most = axes.get_xlim()[1]
    axes.set_xticks(
        [tick for tick in (0, 0.1, 0.5, 1, 2, 5, 10, 20, 40, 60, 80, 100) if most / 100 < tick <= most or tick == 0]
    )
    axes.xaxis.set_major_formatter(FormatStrFormatter("%g"))


def percent_axis(axis: Any) -> None:
    """Write the ticks of a share as `0.1 %`, also where the axis is logarithmic."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
    axis.set_minor_formatter(NullFormatter())
