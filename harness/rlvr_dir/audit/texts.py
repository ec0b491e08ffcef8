"""List the claims about given texts (`--texts`), which both models score: numbers of `rlvr-dir score` as audit rows."""

from typing import Any

from rlvr_dir.audit.claim import NATS, Claim

ONES: dict[str, Any] = {"unit": 1.0, "suffix": "", "digits": 3}
MEAN, SHARE = "Mean over the tokens of the file.", "Share of the tokens of the file."
ROWS: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    ("kl_rl_base", "KL(RL ‖ base) on the given texts", MEAN, NATS),
    ("kl_base_rl", "KL(base ‖ RL) on the given texts", MEAN, NATS),
    ("js", "Jensen–Shannon divergence (JS) on the given texts", MEAN, NATS),
    ("abs_delta_logp", "|Δ log p| of the given tokens", MEAN, NATS),
    ("beyond_1", "Given tokens with |Δ log p| above 1 nat", SHARE, {"digits": 2}),
    ("same_top", "Both models have the same most likely token on the given texts", SHARE, {}),
    ("perplexity_base", "Perplexity of base on the given texts", "exp of the mean of −log p.", ONES),
    ("perplexity_rl", "Perplexity of RL on the given texts", "exp of the mean of −log p.", ONES),
)
CLAIMS = tuple(
    Claim(f"texts/{name}", "texts", sentence, how, lambda scores, name=name: scores.numbers[name].value, **form)
    for name, sentence, how, form in ROWS
)
