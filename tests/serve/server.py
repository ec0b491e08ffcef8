"""A real server in a process of its own, on a free port, and clients of it."""

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rlvr_dir.config import Decoding
from rlvr_dir.tiny import benchmark

RULES = (
    Decoding(mode="base"),
    Decoding(mode="rl"),
    Decoding(mode="replace", tau=-0.1),
    Decoding(mode="extrapolate", tau=-0.1, gamma=0.5),
    Decoding(mode="extrapolate", primary="rl", criterion="js", tau=0.002, gamma=1.0),
)


@dataclass
class Server:
    """A server that takes requests at `url`; `said` is the file of its standard error."""

    process: subprocess.Popen
    url: str
    said: Path


def tell(process, signum):
    """Send SIGTERM to a server's process, or SIGINT to all of its group, as a terminal does."""
    if signum == signal.SIGINT:
        os.killpg(process.pid, signum)
    else:
        process.send_signal(signum)


def start(err, *options, **environment):
    """Start a server of the tiny pair in a process group of its own, with its standard error at `err`."""
    command = [sys.executable, "-m", "rlvr_dir.cli", "serve", "--port", "0", "--enforce-eager", "--kv-cache-gib", "0.5"]
    return subprocess.Popen(
        [*command, *options],
        stdout=subprocess.PIPE,
        stderr=err,
        text=True,
        env={**os.environ, **environment},
        start_new_session=True,
    )


@contextmanager
def served(folder, *options, **environment):
    """Serve the tiny pair; what the server says on standard error is in `folder`/serve.err."""
    with (folder / "serve.err").open("wb") as err:
        process = start(err, *options, **environment)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()  # the first word is the address; nothing, if the process has ended
        assert line.startswith("serving at "), (folder / "serve.err").read_text()[-3000:]
        yield Server(process, line.split()[2].strip(",;"), folder / "serve.err")
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()
        process.stdout.close()


def problems(n):
    """The first n problems of tiny_medium: (id, text)."""
    return [(row["id"], row["problem"]) for row in benchmark("tiny_medium")[:n]]


def rule_fields(decoding):
    """A decoding as the fields of a request."""
    given = decoding.model_dump(mode="json", exclude_none=True)
    return {name: value for name, value in given.items() if name in ("mode",) or decoding.gated}
