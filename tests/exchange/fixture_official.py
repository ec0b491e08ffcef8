"""A run folder as the authors' script writes it (`notes/official_code.md`, 4), by hand: 2 problems, 2 seeds, n = 2."""

import json

FOLDER = "tbase-trl-aime24-w-0.05_1.05-select_neg_logp-thresh_-0.3-n2-t1.0-top_p0.7"
GOLD = ("68", "204")


def response(text, acc, length, flagged):
    infos = {str(at): {"original": 7, "assistant": 8, "resampled": 8 if at % 2 else 7} for at in flagged}
    return text, acc, length, len(flagged) / length, infos


SEEDS = {
    0: (
        (response(r"so \boxed{68}<|im_end|>", True, 7, [1, 4]), response(r"\boxed{67}", False, 3, [])),
        (response(r"\boxed 204", False, 10, [9]), response(r"\boxed{204}", True, 11, [0, 1, 2])),
    ),
    1: (
        (response(r"\boxed{068}", True, 5, [2]), response(r"\boxed{x=68}", True, 6, [])),
        # their verdict is wrong here, on purpose: ours must differ
        (response(r"\boxed{204}", False, 9, [3]), response("no box", False, 4, [])),
    ),
}
NAMES = ("generated_texts", "accs", "lengths", "resample_rates", "resample_infos")


def write(folder):
    run = folder / FOLDER
    run.mkdir(parents=True)
    for seed, problems in SEEDS.items():
        objects = []
        for i, (gold, rows) in enumerate(zip(GOLD, problems, strict=True)):
            columns = [list(column) for column in zip(*rows, strict=True)]
            prompt = f"<|im_start|>user\nProblem {i}<|im_end|>\n"
            objects.append({"prompt": prompt, "gt": gold, **dict(zip(NAMES, columns, strict=True))})
        (run / f"seed{seed}.json").write_text(json.dumps(objects))
    return run


def notebook():
    """What their notebook computes: plain means over all responses of all seeds."""
    rows = [row for problems in SEEDS.values() for rows in problems for row in rows]
    return {name: sum(row[i] for row in rows) / len(rows) for i, name in enumerate(NAMES) if i in (1, 2, 3)}
