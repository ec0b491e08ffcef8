"""Train placebos: change a tiny base without a reward for right answers, to know what a placebo shows.

| training | what changes the base |
|---|---|
| `verdict` | DAPO, 1 for a right answer: the true one |
| `random` | DAPO, 1 or 0 by a coin |
| `length` | DAPO, 1 for a response of `LONG` tokens or more |
| `own_samples` | likelihood of its own responses, at temperature 1: no gradient in expectation |
| `noise` | normal noise on every weight, of the norm by which the true training changed it |

`length` is not a placebo on these sums, because longer responses are right more often (docs/decisions.md).
"""

from collections.abc import Sequence
from random import Random
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase, Qwen2ForCausalLM

from examples.tiny.pretrain import pad, response_loss
from rlvr_dir.tiny import vocabulary as v
from rlvr_dir.train import DapoSettings
from rlvr_dir.train.reward import Completion, Reward
from rlvr_dir.train.run import OnProgress

TRAININGS = ("verdict", "random", "length", "own_samples", "noise")
LONG = 40  # tokens; the shipped base writes 33 for a problem of RL's training


def reward_of(training: str, seed: int) -> Reward | None:
    """Return the reward that replaces the accuracy, if any."""
    if training == "length":
        return long_enough
    if training != "random":
        return None
    coin = Random(f"reward {seed}")

    def by_coin(completions: Sequence[Completion], **_: Any) -> list[float | None]:
        return [float(coin.random() < 0.5) for _ in completions]

    return by_coin


def long_enough(completion_ids: Sequence[Sequence[int]], **_: Any) -> list[float | None]:
    """Reward responses of `LONG` tokens or more."""
    return [float(len(ids) >= LONG) for ids in completion_ids]


def train_on_own_samples(
    model: Qwen2ForCausalLM,
    tokenizer: PreTrainedTokenizerBase,
    problems: Sequence[dict[str, Any]],
    settings: DapoSettings,
    *,
    progress: OnProgress | None = None,
) -> None:
    """Raise the likelihood of the model's own responses, with DAPO's number of steps, responses and updates, in
    place."""
    torch.manual_seed(settings.seed)
    random = Random(f"own samples {settings.seed}")
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate, betas=(0.9, 0.99), weight_decay=0.0)
    for step in range(settings.steps):
        prompts = [random.choice(problems)["prompt"] for _ in range(settings.responses)]
        inputs = tokenizer.apply_chat_template(
            prompts, add_generation_prompt=True, padding=True, return_tensors="pt", return_dict=True
        )
        with torch.no_grad():
            written = model.generate(
                **inputs, do_sample=True, top_p=1.0, top_k=0, max_new_tokens=settings.max_response_tokens
            )
        width = inputs["input_ids"].shape[1]
        documents = [(_unpadded(row[:width]), _ended(row[width:])) for row in written.tolist()]
        losses = []
        for first in range(0, len(documents), settings.minibatch):
            optimizer.zero_grad(set_to_none=True)
            loss = response_loss(model, *pad(documents[first : first + settings.minibatch]), narrow=False)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
        if progress:
            progress((step + 1) / settings.steps, f"loss {sum(losses) / len(losses):.3f}")


def _unpadded(prompt: list[int]) -> list[int]:
    return [token for token in prompt if token != v.ID[v.PAD]]


def _ended(response: list[int]) -> list[int]:
    """Return a response up to its end of text."""
    end = v.ID[v.EOS]
    return response[: response.index(end) + 1] if end in response else response


@torch.no_grad()
def add_noise(model: PreTrainedModel, changed: PreTrainedModel, seed: int) -> None:
    """Change every weight of `model`, in place, by noise of the norm of its difference to that of `changed`."""
    generator = torch.Generator().manual_seed(seed)
    theirs = changed.state_dict()
    for name, weight in model.named_parameters():
        noise = torch.randn(weight.shape, generator=generator)
        weight.add_(noise * ((theirs[name] - weight).norm() / noise.norm()))


def change(model: PreTrainedModel, base: PreTrainedModel) -> float:
    """Return the norm of the difference of two models' weights, as a share of the norm of `base`."""
    theirs = dict(base.named_parameters())
    squares = [
        ((weight - theirs[name]).square().sum().item(), theirs[name].square().sum().item())
        for name, weight in model.named_parameters()
    ]
    moved, whole = map(sum, zip(*squares, strict=True))
    return (moved / whole) ** 0.5
