"""What a process under test says, a line each, on a pipe of its own: libraries write to its standard output."""

import os
import subprocess

VARIABLE = "RLVR_DIR_TEST_SAYS"


def say(text):
    """Write a line, in one piece, to whoever started this process by `started`."""
    os.write(int(os.environ[VARIABLE]), f"{text}\n".encode())


def started(command, env=None, **how):
    """Start a process; return it with the lines that it will say."""
    read, write = os.pipe()
    environment = {**(os.environ if env is None else env), VARIABLE: str(write)}
    process = subprocess.Popen(command, text=True, env=environment, pass_fds=(write,), **how)
    os.close(write)
    return process, os.fdopen(read)
