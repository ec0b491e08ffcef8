"""A training with what it needs from other rooms: base, problems, and Avg@k by the evaluator of `rlvr-dir eval`.

    run(spec, Path("runs/train/x"))

`harness.train` may import none of them; the commands and the sweeps may.
"""

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.spec.decoding import Mode
    from harness.train.backends import Scores, Source, Validate
    from harness.train.spec import TrainSpec


def run(spec: "TrainSpec", out: Path, *, bases: Path | None = None, **options: Any) -> dict[str, Any]:
    """Trains, or goes on; `options` are those of `harness.train.run_training`, whose summary this returns.

    Args:
        bases: a folder in which the validation of a base is remembered, for the next training from it.

    Raises:
        UserError: the machine lacks something, the folder is another training's or in use, or the data is too small.
    """
    start = source(spec, bases)
    from harness.train.backends import train

    return train(spec, out, start, **options)


def source(spec: "TrainSpec", bases: Path | None = None) -> "Source":
    """The base, the problems and the evaluator of a training.

    Raises:
        UserError: the data cannot be read, or the tiny weights are missing.
    """
    from harness.train.data import read_problems
    from harness.train.spec import TINY

    if spec.base == TINY:
        from harness.tiny import tiny_pair

        base = tiny_pair().base
    else:
        base = str(Path(spec.base).resolve()) if Path(spec.base).is_dir() else spec.base
    if spec.data == TINY:
        from harness.tiny.recipe import rl_problems as problems
    else:
        rows = read_problems(spec.data, spec.instruction)

        def problems(seed: int) -> list[dict[str, Any]]:
            return rows

    from harness.train.backends import Source

    validate = validator(spec) if bases is None else _remembered(validator(spec), spec, bases)
    return Source(base, problems, validate)


def validator(spec: "TrainSpec") -> "Validate":
    """Avg@k by `harness.evals`, as `rlvr-dir eval` would score the checkpoint."""

    def validate(base: str, rl: str, mode: "Mode", folder: Path | None) -> "Scores":
        from harness.evals import evaluate
        from harness.spec import Decoding, EvalSpec, Pair

        asked = spec.validation
        results = evaluate(
            EvalSpec(
                pair=Pair(base=base, rl=rl, trust_remote_code=spec.trust_remote_code),
                decodings=(Decoding(mode=mode),),
                tasks=asked.tasks,
                sampling=asked.sampling,
                limit=asked.limit,
                engine=asked.engine,
                grader=spec.dapo.grader,
            )
        )
        if folder is not None:
            for result in results:
                result.write(folder)
        k = max(1, asked.sampling.samples // 2)
        return {
            result.task: {
                "samples": result.samples,
                "problems": len(result.problem_ids),
                "avg": result.avg,
                "error": result.standard_error,
                "pass": result.pass_at(k),
                "tokens": float(result.n_tokens.mean()),
                "truncated": float(result.truncated.mean()),
            }
            for result in results
        }

    return validate


def _remembered(validate: "Validate", spec: "TrainSpec", folder: Path) -> "Validate":
    """`validate`, but that of a base once for all trainings that ask the same of it."""
    from harness.records.config import fingerprint
    from harness.train.folder import read_json, write_json

    def once(base: str, rl: str, mode: "Mode", results: Path | None) -> "Scores":
        if mode != "base":
            return validate(base, rl, mode, results)
        weights = fingerprint(base)  # a place may hold other weights by now
        asked = json.dumps([weights, spec.dapo.grader, spec.validation.replace(every=0).canonical()])
        file = folder / f"{hashlib.sha256(asked.encode()).hexdigest()[:16]}.json"
        if not file.is_file():
            write_json(file, validate(base, rl, mode, results))
        return read_json(file)

    return once
