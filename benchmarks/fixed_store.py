"""Print everything about a fixed store of results, to compare it before and after a change of the code.

    python -m benchmarks.fixed_store make STORE         # decode, sweep and train once: minutes on two cores
    python -m benchmarks.fixed_store print STORE OUT    # every command that reads it, one text per file in OUT
    diff -r OUT_BEFORE OUT_AFTER                        # refactoring alone leaves no difference

The store has the tiny pair: six decodings with their controls on two tasks with two seeds, an lm-eval task, a sweep,
and trainings by two methods with two seeds. `print` runs each command again on cached responses, and generates nothing.
Times, dates and places are masked; `records.txt` has the digest of each record's tokens.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
RULES = (
    "replace,tau=-0.3", "replace,tau=-0.1,primary=rl", "extrapolate,tau=-0.3,gamma=0.1", "replace,criterion=coupling",
    "replace,criterion=kl,tau=0.3", "resample,tau=-0.3",
)  # fmt: skip
TASK = """task: sum_of_two
dataset_path: json
dataset_kwargs: {data_files: {test: FILE}}
test_split: test
output_type: generate_until
doc_to_text: "{{problem}}"
doc_to_target: "{{answer}}"
generation_kwargs: {do_sample: true, temperature: 1.0, until: ["\\n\\n"], max_gen_toks: 64}
repeats: 1
metric_list:
  - {metric: exact_match, aggregation: mean, higher_is_better: true}
"""
EVAL = ["--samples", "4", "--limit", "16", "--max-tokens", "128", "--enforce-eager", "--no-track"]
OUT = ["--out", "results", "--records", "records"]
SWEEP = ["run", "tiny_tau_gamma", "--set", "limit=8", "--set", "sampling.samples=4", "--set", "metric.name=avg_at_4"]
SWEEP += ["--no-track", "--out", "."]
# What changes from run to run, or with the machine's speed.
MASKS = (
    (r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d)?)?", "DATE"),
    (r'"seconds": [0-9.e-]+', '"seconds": 0'),
    (r"\b\d\d:\d\d(:\d\d)?\b", "TIME"),
    (r"[0-9.,]+ tok/s", "SPEED"),
    (r"[0-9.]+ (s|ms|min)\b", "SECONDS"),
)


def run(*words: str, check: bool = True) -> str:
    """Run a command of this program in the current folder and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "rlvr_dir.cli", *words],
        env={
            **os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "harness"), "COLUMNS": "160",
            "PYTHONHASHSEED": "0",
        },
        capture_output=True, text=True,
    )  # fmt: skip
    if check and done.returncode:
        raise SystemExit(f"{' '.join(words)}\n{done.stdout}{done.stderr}")
    return done.stdout


def evaluations() -> list[list[str]]:
    """Return the evaluations: ours with two seeds, then the one of lm-eval's task."""
    rules = [word for rule in RULES for word in ("-d", rule)]
    ours = [
        ["eval", "--tasks", "tiny_easy,tiny_medium", *rules, "--controls", *EVAL, "--seed", seed, *OUT] for seed in "01"
    ]
    other = ["eval", "--tasks", "sum_of_two.yaml", "-d", "rl", "-d", RULES[0], "--limit", "8", "--enforce-eager"]
    return [*ours, [*other, "--no-track", *OUT]]


def trainings() -> list[list[str]]:
    """Return the trainings; the second is compared with the first."""
    how = ["--seeds", "0,1", "--steps", "2", "--set", "validation.limit=8", "--no-track"]
    return [
        ["train", *how, "--out", "train/DAPO"],
        ["train", "--method", "low_prob", *how, "--out", "train/low_prob", "--against", "train/DAPO"],
    ]


def make(store: Path) -> None:
    """Decode, sweep and train into a new folder."""
    store.mkdir(parents=True)
    os.chdir(store)
    rows = [{"problem": f"What is {a}+{b}?", "answer": str(a + b)} for a in range(2, 6) for b in range(3, 7)]
    Path("sum_of_two.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    Path("sum_of_two.yaml").write_text(TASK.replace("FILE", "sum_of_two.jsonl"))
    for words in (*evaluations(), ["sweep", *SWEEP], *trainings()):
        run(*words)


def show(store: Path, out: Path) -> None:
    """Write the output of every command that reads the store, with times and places masked."""
    out = out.absolute()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    os.chdir(store)
    for folder in ("results", "report", "report-sweep", "report-train"):
        shutil.rmtree(folder, ignore_errors=True)
    texts = {f"eval-{i}.txt": run(*words) for i, words in enumerate(evaluations())}
    texts["sweep.txt"] = run("sweep", *SWEEP)
    texts |= {f"train-{i}.txt": run(*words) for i, words in enumerate(trainings())}
    places = ["results", "sweeps/tiny_tau_gamma", "train/DAPO", "train/low_prob"]
    for i, place in enumerate(places):
        texts[f"compare-{i}.txt"] = run("compare", place, check=False)
        texts[f"table-{i}.txt"] = run("table", place, "--csv", f"table-{i}.csv", check=False)
    texts["compare-against.txt"] = run("compare", "results", "--against", "rl")
    texts["compare-trainings.txt"] = run("compare", "train/low_prob", "train/DAPO", check=False)
    run("report", places[0], places[1], "--out", "report")
    run("report", *places[2:], "--out", "report-train")
    names = ["report", "report-train", "results", "sweeps/tiny_tau_gamma", "train"]
    files = [
        path for name in names for path in Path(name).rglob("*") if path.suffix in {".csv", ".json", ".md", ".tex"}
    ]
    files += [*Path().glob("table-*.csv")]
    texts |= {str(path).replace("/", "__"): path.read_text() for path in files if "checkpoint" not in str(path)}
    texts["records.txt"] = records()
    for name, text in texts.items():
        (out / name).write_text(masked(text, store))


def records() -> str:
    """Return the name of each record with a digest of its tokens and flags."""
    from rlvr_dir.records import RecordStore

    lines = []
    for name in sorted(RecordStore("records").names()):
        record, digest = RecordStore("records").read(*name), hashlib.sha256()
        for key in sorted(record.rows):
            row = record.rows[key].load()
            digest.update(repr((key, list(row.token_ids), [int(flag) for flag in row.replaced])).encode())
        lines.append(f"{'/'.join(name)} {len(record.rows)} {digest.hexdigest()[:16]}\n")
    return "".join(lines)


def masked(text: str, store: Path) -> str:
    """Mask what changes from run to run."""
    text = text.replace(str(store.absolute()), "STORE").replace(str(ROOT), "ROOT")
    for pattern, word in MASKS:
        text = re.sub(pattern, word, text)
    return text


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["make", store]:
            make(Path(store).absolute())
        case ["print", store, out]:
            show(Path(store).absolute(), Path(out))
        case _:
            raise SystemExit(__doc__)
