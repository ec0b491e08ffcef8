"""Make the chapters of analyses by `rlvr-dir analyse`: their own tables, as figures and tables of a report."""

from collections.abc import Callable, Sequence
from pathlib import Path

from rlvr_dir.analysis.result import Analysis
from rlvr_dir.errors import DamagedError, UserError
from rlvr_dir.report.credit import credit_chapter
from rlvr_dir.report.model import Chapter
from rlvr_dir.report.responses import gated_chapter, token_chapter
from rlvr_dir.report.training import training_chapter


def analysis_chapters(places: Sequence[Path]) -> list[Chapter]:
    """Make a chapter for each analysis in some files, or in folders of them. Other files of a folder are ignored.

    Raises:
        UserError: A place contains none.
        DamagedError: A file is not as `rlvr-dir analyse` wrote it.
    """
    chapters: list[Chapter] = []
    for place in places:
        files = [file for file in sorted(place.glob("*.json")) if file.stem.partition("-")[0] in CHAPTERS]
        analyses = [(file, Analysis.read(file)) for file in ([place] if place.is_file() else files)]
        if not analyses:
            raise UserError("contains nothing that `rlvr-dir analyse` wrote", argument="analysis", value=str(place))
        analyses.sort(key=lambda entry: list(CHAPTERS).index(entry[1].kind))
        for file, analysis in analyses:
            slug = f"-{len(chapters)}" if chapters else ""
            try:
                chapters.append(CHAPTERS[analysis.kind](analysis, slug))
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
                reason = f"{type(error).__name__}: {str(error)[:100]}"
                raise DamagedError(f"{file} does not fit together ({reason})") from None
    return chapters


CHAPTERS: dict[str, Callable[[Analysis, str], Chapter]] = {
    "tokens": token_chapter,
    "gated": gated_chapter,
    "credit": credit_chapter,
    "training": training_chapter,
}
