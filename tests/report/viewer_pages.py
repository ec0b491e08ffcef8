"""Responses without an engine, for the viewer: a table of token texts, hostile ones among them, and made-up facts."""

import numpy as np

from rlvr_dir.config import Decoding
from rlvr_dir.policy.trace import FACTS, columns
from rlvr_dir.records import Row
from rlvr_dir.report.viewer import ViewedResponse

REPLACE = Decoding(mode="replace", tau=-0.3)
DECODINGS = (Decoding(mode="base"), Decoding(mode="rl"), REPLACE, REPLACE.replace(mode="extrapolate", gamma=0.1))
PWN = "window.pwned=(window.pwned||0)+1"
HOSTILE = (
    f"</script><script>{PWN}</script>",
    f"<img src=x onerror={PWN}>",
    "<!--<script>",
    "]]><svg onload=alert(1)>",
    f"\"'><iframe srcdoc='<script>{PWN}</script>'>",
    f"javascript:{PWN}",
    "&lt;b&gt;&#x3c;i&#x3e;",
    "{{7*7}}{% raw %}${7*7}`",
    "\u202eevil\u202c",
    "\u2066\u2069\u200f\u200b\ufeff",
    "\u2028\u2029",
    "\x00\x07\x08\x1b[31m\x7f\x9b",
    "\ud800",
    "\u0301\u0302" + "\u0336" * 60,
    "مرحبا بالعالم",
    "👩‍👩‍👧 数学 ﷽",
    "\t\r\n",
    "\n\n",
    "__proto__",
    "constructor",
)
_SAID = "so then thus the answer is now because we have and x y = + - 3 14 159 ."
WORDS = tuple(f" {word}" for word in _SAID.split())


class Table:
    """A tokenizer of one table: ids are places in `texts`."""

    def __init__(self, texts):
        self.texts = texts

    def decode(self, ids, **_options):
        return "".join(self.texts[i] for i in ids)


PLAIN = Table((*WORDS, ".\n", "\n\n"))


def rollout(n, seed=0, decoding=REPLACE, tokenizer=PLAIN, top=5, ids=None, problem="made/1", traced=True, known=True):
    """Of n tokens, flagged where the decoding's criterion holds on its Δ log p, as an engine would.

    A written token has the opposite Δ log p of the one that was dropped; not `known` is what was proposed.
    """
    rng = np.random.default_rng(seed)
    size = len(tokenizer.texts)
    ids = rng.integers(0, size, n) if ids is None else np.asarray(ids)
    n = len(ids)
    table = np.zeros((n, columns(top)), np.float32)
    base = -rng.exponential(0.7, n)
    delta = rng.standard_t(2, n) * 0.15
    facts = {
        "logp_base": base,
        "logp_rl": np.minimum(base + delta, 0),
        "entropy_base": rng.exponential(0.5, n),
        "entropy_rl": rng.exponential(0.4, n),
        "kl_rl_base": rng.exponential(0.05, n),
        "kl_base_rl": rng.exponential(0.05, n),
        "rank_base": rng.geometric(0.7, n) - 1,
        "rank_rl": rng.geometric(0.7, n) - 1,
    }
    for name, values in facts.items():
        table[:, FACTS.index(name)] = values
    delta = table[:, FACTS.index("logp_rl")] - table[:, FACTS.index("logp_base")]
    replaced = (delta < np.float32(decoding.tau)) if decoding.gated else np.zeros(n, bool)
    changed = replaced & (rng.random(n) < 0.7)
    proposed = np.where(changed, (ids + 1) % size, ids)
    table[:, FACTS.index("proposed")] = proposed
    for j in range(top):
        at = len(FACTS) + 4 * j
        table[:, at] = table[:, at + 2] = (ids + j) % size
        table[:, at + 1] = -0.1 - j
        table[:, at + 3] = -0.2 - 1.5 * j
    return Row.make(
        problem=problem,
        sample=0,
        text=tokenizer.decode(ids),
        finish_reason="stop",
        replaced=replaced,
        changed=changed,
        token_ids=tuple(int(i) for i in ids),
        prompt_token_ids=(0, 1, 2),
        delta_logp=delta,
        trace=table if traced else None,
        proposed=proposed if known else None,
        delta_logp_written=np.where(changed, -delta, delta),
    )


def answers(n, tokenizer=PLAIN, ids=None, decodings=DECODINGS):
    """One answer a decoding."""
    return [
        ViewedResponse(
            each.label(), rollout(n, seed, each, tokenizer, ids=ids), each, ("wrong", "correct")[seed % 2], "42"
        )
        for seed, each in enumerate(decodings)
    ]
