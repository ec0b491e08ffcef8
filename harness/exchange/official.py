"""The authors' own result files: read, and checked against themselves.

Their script writes one folder a run,
`{base}-{rl}-{dataset}-w{w0}_{w1}-select_{criterion}-thresh_{tau}-n{n}-t{T}-top_p{p}`,
with one `seed{seed}.json` a seed: a list with an object a problem (`prompt`, `gt`, and lists of length n
`generated_texts`, `accs`, `lengths`, `resample_rates`, `resample_infos`). Flagged positions are the keys of
`resample_infos`, whose values name the proposed token (`original`) and the emitted one (`resampled`). There are no
token ids of the response, no log-probabilities and no problem ids, so problems are known by their place.
"""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator

from harness.digest import digest
from harness.errors import UserError
from harness.exchange.responses import MOST_TOKENS, ForeignRun, Response
from harness.spec import Decoding, parse
from harness.spec.stored import Count, Flag, Number, Stored, Text, check_stored, is_number, read_json

_FOLDER = re.compile(
    r"(?P<models>.+)-(?P<dataset>[^-]+)-w(?P<w0>-?[^_]+)_(?P<w1>[^_]+)-select_(?P<criterion>.+)"
    r"-thresh_(?P<tau>.+)-n(?P<n>[0-9]+)-t(?P<temperature>[^-]+)-top_p(?P<top_p>[^-]+)"
)


class Resampled(Stored, frozen=True):
    """A flagged position: the token that was proposed, and the one in its place."""

    original: Any
    resampled: Any


class ProblemFile(Stored, frozen=True):
    """A problem of their files."""

    prompt: Text
    gt: Text | Number
    generated_texts: Annotated[tuple[Text, ...], Field(min_length=1)]
    accs: tuple[Flag, ...]
    lengths: tuple[Annotated[Count, Field(le=MOST_TOKENS)], ...]
    resample_rates: tuple[Number, ...]
    resample_infos: tuple[dict[Annotated[str, Field(pattern="^[0-9]{1,9}$")], Resampled], ...]

    @model_validator(mode="after")
    def _check(self) -> "ProblemFile":
        lists = (self.accs, self.lengths, self.resample_rates, self.resample_infos)
        if {len(each) for each in lists} != {len(self.generated_texts)}:
            raise ValueError("lists of different lengths are refused; accepted: an entry a response in each")
        for i, (n, rate, flags) in enumerate(zip(self.lengths, self.resample_rates, self.resample_infos, strict=True)):
            if any(int(place) >= n for place in flags):
                raise ValueError(f"response {i} flags position {max(map(int, flags))} of {n} tokens")
            if abs(len(flags) - rate * n) > 1e-6 * max(1, n):
                raise ValueError(f"response {i} tells a ratio of {rate}, but flags {len(flags)} of {n} tokens")
        return self


def read_official(folder: Path, task: str | None = None) -> ForeignRun:
    """Read a run's folder. Sample `s` of a problem is response `s % per_seed` of seed `seeds[s // per_seed]`.

    Raises:
        UserError: no seed files, seeds that do not fit together, or a file that contradicts itself.
    """
    numbers = sorted(int(path.stem[4:]) for path in folder.glob("seed*.json") if path.stem[4:].isdecimal())
    if not numbers:
        raise UserError(f"{folder} holds no seed<number>.json; accepted: a folder that the authors' script wrote")
    paths = {number: folder / f"seed{number}.json" for number in numbers}
    seeds = {number: _problems(path) for number, path in paths.items()}
    first = seeds[numbers[0]]
    per_seed, responses = len(first[0].generated_texts), []
    for turn, (number, problems) in enumerate(seeds.items()):
        if [(p.prompt, p.gt) for p in problems] != [(p.prompt, p.gt) for p in first]:
            raise UserError(
                f"{paths[number]} has other problems than seed{numbers[0]}.json; seeds of one run have the same"
            )
        for place, problem in enumerate(problems):
            if len(problem.generated_texts) != per_seed:
                raise UserError(f"{paths[number]} does not have {per_seed} responses to each problem")
            for i, flags in enumerate(problem.resample_infos):
                said = {
                    "problem": place,
                    "sample": turn * per_seed + i,
                    "text": problem.generated_texts[i],
                    "gold": problem.gt,
                    "correct": bool(problem.accs[i]),
                    "question": problem.prompt,
                    "n_tokens": problem.lengths[i],
                    "replaced": [*flags],
                    "changed": [at for at, tokens in flags.items() if tokens.resampled != tokens.original],
                }
                responses.append(check_stored(said, Response, f"{paths[number]} problem {place}"))
    match = _FOLDER.fullmatch(folder.name)
    told = {name: _number(value) for name, value in match.groupdict().items()} if match else {}
    remarks = [] if match else ["the folder's name does not give the settings, so none are recorded"]
    if numbers != list(range(8)):
        said = ", ".join(map(str, numbers))
        remarks.append(f"seeds {said}: the authors' notebook takes seeds 0 to 7 only")
    source = {"folder": folder.name, **told, "seeds": numbers, "per_seed": per_seed}
    source["files"] = {path.name: digest(path.read_bytes()) for path in paths.values()}
    drawn = {name: told[name] for name in ("temperature", "top_p") if is_number(told.get(name))}
    run = ForeignRun("official", task or told.get("dataset"), None, tuple(responses), "accs", drawn)
    return replace(run, decoding=_decoding(told), remarks=tuple(remarks), source=source)


def _problems(path: Path) -> list[ProblemFile]:
    problems = read_json(path)
    if not isinstance(problems, list) or not problems:
        raise UserError(f"{path} is not a list of problems")
    return [check_stored(each, ProblemFile, f"{path} problem {number}") for number, each in enumerate(problems)]


def _number(said: str) -> Any:
    try:
        value = json.loads(said)
    except (ValueError, RecursionError):
        return said
    return value if is_number(value) else said


def _decoding(told: dict[str, Any]) -> Decoding | None:
    """Return how a folder's name says that it was decoded (gamma = -w0; 0 is plain replacement); None where not."""
    criterion, w0, tau = (told.get(name) for name in ("criterion", "w0", "tau"))
    if criterion == "none" or (criterion == "all" and not w0):
        return Decoding(mode="base" if criterion == "none" else "rl")
    if criterion != "neg_logp" or not is_number(tau) or not is_number(w0):
        return None
    how = {"mode": "extrapolate", "gamma": -w0} if w0 else {"mode": "replace"}
    return parse(Decoding, {**how, "tau": tau})
