"""Print the replacements of criteria.yaml: each criterion where it flags 2 and 4 % of base's own tokens, by seed 0.

python examples/smol/thresholds.py runs/paper-smol

Base's answers are decoded only where the records do not hold them with what both models made of every token.
"""

import sys
from pathlib import Path

from rlvr_dir.config import Decoding, load_eval, read_yaml
from rlvr_dir.errors import UserError
from rlvr_dir.evals.traces import criterion_values
from rlvr_dir.sweep.matched import is_uniform, tau_for
from rlvr_dir.sweep.taus import gate_of

BOTH = (0.02, 0.04)
SHARES = {
    "abs_delta_logp": BOTH, "kl": (0.02,), "kl_rl_base": BOTH, "kl_base_rl": BOTH,  # KL at 5 %: decision.yaml
    "entropy_base": BOTH, "entropy_rl": BOTH, "random": BOTH,
}  # fmt: skip


def replacements(out: Path) -> list[str]:
    """Return the replacements as criteria.yaml has them, of the pair and the records in the folder of a run."""
    asked = [f"pair={out}/train-0/seed-0", f"tasks=[{out}/data/decide_medium.jsonl]", "decodings=[base]"]
    spec = load_eval(read_yaml(Path(__file__).with_name("criteria.yaml"), asked))
    gates = {criterion: gate_of(Decoding(mode="replace", criterion=criterion, tau=0.0)) for criterion in SHARES}
    measured = [gate for gate in gates.values() if not is_uniform(gate)]
    values = criterion_values(spec, out / "records", gates=measured)[Decoding(mode="base")]
    taus = [
        (criterion, tau_for(gate, values.get(gate.without_threshold(), ()), share).tau)
        for criterion, gate in gates.items()
        for share in SHARES[criterion]
    ]
    return [f"replace,criterion={criterion},tau={tau:g}" for criterion, tau in taus]


if __name__ == "__main__":
    try:
        print(*replacements(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/paper-smol")), sep="\n")
    except UserError as error:
        sys.exit(f"error: {error}")
