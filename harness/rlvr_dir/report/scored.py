"""The page and the terminal's lines of scored texts: the answer in sentences, a table, the texts in colours."""

from rlvr_dir.analysis.score import Number, Scores
from rlvr_dir.policy.given import Setting
from rlvr_dir.report.model import Cell, Report, Section, cell, frame
from rlvr_dir.report.viewer import ViewedResponse, viewer_data, viewer_fragment
from rlvr_dir.text import visible

LEAST = 0.0001  # nats; a smaller difference is printed as less than this
SHOWN = 20  # texts on the page, those with the largest mean |Δ log p| first
VERDICTS = {
    "wrote": "{name} wrote these texts at {claimed}. All other candidates are ruled out after {tokens:,} tokens, with "
    "an error of at most 0.1 %.",
    "neither": "No candidate wrote these texts at {claimed}: all are ruled out after {tokens:,} tokens. Of everything "
    "that was compared, {name} at {setting} is most likely.",
    "precision": "There is no verdict. {name} is most likely, but {own} of the tokens are outside its own nucleus, and "
    "only {others} outside those of the others. The texts were probably computed in another type or engine. Score them "
    "in the type that wrote them (--dtype).",
    "undecided": "{tokens:,} tokens are too few to say who wrote these texts at {claimed}: {left} are not ruled out. "
    "{name} is most likely so far.",
}
NUCLEI = "{own} of the tokens are outside the nucleus of {name}, and at least {others} outside that of each other one."
SHIFTS = {0: "", 1: ", if each is moved to the next token,", -1: ", if each is moved to the token before,"}


def lines(scores: Scores) -> list[str]:
    """Return the answer as sentences: who wrote the texts, how far the models differ, whether log-probabilities fit."""
    said, numbers, verdict = [], scores.numbers, scores.verdict
    if verdict is not None:
        shares = {name: f"{100 * getattr(verdict, name):.2f} %" for name in ("own", "others")}
        words = {"name": visible(verdict.name), "left": visible(" and ".join(verdict.left)), **shares}
        words |= {"claimed": setting_words(scores.claimed), "setting": setting_words(verdict.setting)}
        templates = [VERDICTS[verdict.kind], *[NUCLEI] * (verdict.kind == "wrote" and scores.claimed[1] < 1)]
        said += [template.format(**{**vars(verdict), **words}) for template in templates]
    shown = {name: " ".join([(each := number_cell(number)).text, *each.small]) for name, number in numbers.items()}
    said.append(
        f"On {len(scores.texts):,} text{'s' * (len(scores.texts) != 1)} with {scores.tokens:,} tokens, KL(RL ‖ base) "
        f"is {shown['kl_rl_base']} per token and both have the same most likely token at {shown['same_top']} of the "
        "positions."
    )
    if scores.fits:
        said.append(
            f"The log p of {visible(scores.writer)} minus that in the file is {shown['off_mean']} on average, with "
            f"a root mean square of {shown['off_spread']}. Importance ratios are outside 0.9 to 1.1 for "
            f"{shown['off_ratio']} of the tokens."
        )
    if (fit := scores.explanation) is not None:
        distance = f"{fit.distance:.4f}" if fit.distance >= LEAST else f"less than {LEAST}"
        said.append(
            f"The file's log-probabilities{SHIFTS[fit.shift]} fit {visible(fit.name)} at {setting_words(fit.setting)} "
            f"much better: the mean absolute difference is {distance} nats."
        )
    engine = f"Scored in {scores.info['dtype']} by {scores.info['backend']}."
    return [*said, f"{engine} Brackets are 95 % confidence intervals over texts."]


def setting_words(setting: Setting) -> str:
    """Return `temperature 1 and top-p 0.7`."""
    return f"temperature {setting[0]:g} and top-p {setting[1]:g}" if setting[0] else "temperature 0 (greedy)"


def number_cell(number: Number) -> Cell:
    """Return a number with its unit, and its interval beneath."""
    if number.unit == "%":
        return cell(number.value, 2, suffix=" %")
    size = abs(number.value.value or 1.0)
    return cell(number.value, 4 if size >= 1e-3 else 6, unit=1.0, suffix=f" {number.unit}".rstrip())


def page(scores: Scores) -> Report:
    """Return the page: sentences, the table, and the texts in which the models differ most, token by token."""
    headline, *opening = lines(scores)
    moved = {
        text: -abs(trace.fact("delta_logp")[text.counted]).mean()
        for text, trace in zip(scores.texts, scores.traces, strict=True)
    }
    shown = sorted(moved, key=lambda text: moved[text])[:SHOWN]
    rows = {text.name: scores.record.rows[f"texts/{text.number}", 0].load() for text in shown}
    data = viewer_data({name: [ViewedResponse("given", row)] for name, row in rows.items()}, scores.tokenizer)
    title = f"{len(shown)} of {len(moved)} texts, those with the largest mean |Δ log p| first"
    table = [{"on these texts": number.title, "value": number_cell(number)} for number in scores.numbers.values()]
    details = (("base", scores.pair.base), ("rl", scores.pair.rl))
    front = (Section("numbers", "Base and RL", frame(table)),)
    return Report(
        "Given texts, scored",
        headline,
        tuple(opening),
        front,
        details=details,
        viewers=((title, viewer_fragment(data)),),
    )
