"""Say where a training by one of the presets is not the authors' own, and which key makes it so, if one does."""

from harness.train.spec import TrainSpec
from harness.train.verl.presets import PRESETS


def departures(spec: TrainSpec) -> list[str]:
    """Return a line each; none of a training by no preset's base."""
    if spec.backend != "verl" or spec.base not in [preset["base"] for preset in PRESETS.values()]:
        return []
    found = [
        "verl 0.9.1 takes the token mean over a mini-batch; their 0.5.0 took it in each micro-batch",
        "base is scored as everything is; their logs have 0.00 before the first step",
    ]
    if spec.dapo.dynamic_sampling:
        found.append("groups all right or all wrong are drawn anew; their script: dapo.dynamic_sampling=false")
    if spec.dapo.grader != "math_dapo":
        found.append("a box is asked for and graded; theirs: prompt=math_dapo, dapo.grader=math_dapo")
    if spec.checkpoint == "last":
        found.append("the last checkpoint is scored; their AIME24 scores fit checkpoint=best(aime24)")
    if spec.verl and (positions := spec.verl.max_position_embeddings):
        found.append(
            f"training has {positions:,} positions, and the base's own configuration fewer: compare the two with one "
            "--max-model-len"
        )
    return ["not as the authors trained:", *(f"- {line}" for line in found)]
