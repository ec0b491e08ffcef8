"""Commands that read what is stored never import torch, which takes seconds and half a gigabyte."""

import subprocess
import sys

import numpy as np
import pytest

from rlvr_dir.config import Decoding, Sampling
from rlvr_dir.policy.trace import columns
from rlvr_dir.records import RecordConfig, RecordStore, Row
from rlvr_dir.tiny import tiny_pair
from tests.records.made import INFO, TASK, made

HEAVY = ("torch", "transformers", "vllm")
RUN = f"""
import sys
from rlvr_dir.cli import main
try:
    main()
finally:
    print("imported:", *({set(HEAVY)!r} & set(sys.modules)))
"""
COMMANDS = (
    "compare records",
    "report records --out report",
    "view {record} --store records --out view.html",
    "table records --csv responses.csv",
    "records list --store records",
    "records show {record} --store records",
    "records export {record} --store records --out record.jsonl",
    "records results --store records --out results",
    "records grade --store records",
    "records verify --store records",
    "records gc --store records",
    "sweep run tiny_tau_gamma --dry-run",
    "sweep run paper --dry-run",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder whose `records` are of the tiny pair, traced and graded; with the name of one of them."""
    folder, problems = tmp_path_factory.mktemp("light"), [f"{TASK}/{TASK}-{i:03}" for i in range(3)]
    for decoding in (Decoding(mode="base"), Decoding(mode="rl"), Decoding(mode="replace", tau=-0.1)):
        config = RecordConfig.of(tiny_pair(), decoding, Sampling(samples=2), INFO)
        about = {"base": tiny_pair().base, "rl": tiny_pair().rl}
        with RecordStore(folder / "records").open(
            config, TASK, problems, 2, metadata=about, trace_columns=columns(1)
        ) as record:
            for key in record.missing():
                rollout = made(*key)
                table = np.arange(len(rollout.token_ids) * columns(1), dtype=np.float32).reshape(-1, columns(1)) % 31
                rollout.token_ids = [token % 31 for token in rollout.token_ids]
                record.add(Row.make(*key, rollout.text, rollout.finish_reason, rollout.replaced, rollout.changed,
                                    rollout.token_ids, (5, 6, 7), rollout.delta_logp, trace=table))  # fmt: skip
            record.finish()
            record.grade(dict.fromkeys(problems, "1"))
    return folder, record.name


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_reads_what_is_stored_does_not_import_torch(command, folder):
    place, record = folder
    arguments = command.format(record=record).split()
    done = subprocess.run([sys.executable, "-c", RUN, *arguments], capture_output=True, text=True, cwd=place)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "imported:"
