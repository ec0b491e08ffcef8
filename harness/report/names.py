"""What criteria are called in sentences, figures and tables."""

CRITERIA = {
    "delta_logp": "Δ log p", "kl": "KL", "kl_rl_base": "KL(RL, base)", "kl_base_rl": "KL(base, RL)",
    "entropy_base": "entropy of base", "entropy_rl": "entropy of RL", "random": "random",
    "abs_delta_logp": "|Δ log p|", "nll_rl": "−log p of RL", "ce": "cross entropy", "js": "Jensen–Shannon",
    "spike": "spike of cross entropy",
    "always": "no gate", "coupling": "coupling",
}  # fmt: skip
PAPERS = (*list(CRITERIA)[:7],)  # the criteria of the paper


def gate_name(gate: str) -> str:
    """Return what a gate is called, with its side and its span: `Δ log p above`, `spike of cross entropy over 32`."""
    named, *side = gate.split()
    criterion, _, span = named.partition("/")
    return " ".join((CRITERIA[criterion], *([f"over {span}"] if span else []), *side))
