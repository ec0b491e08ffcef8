#!/usr/bin/env bash
# Make a virtual environment with exactly the versions of a lock, and this package in it, editable.
#
#   requirements/install.sh DIRECTORY LOCK
#
# Python is $PYTHON, else python3.11, else a Python 3.11 that uv brings. The CPU build of torch is on no ordinary package
# index: pip takes it where its configuration leads to it, else uv does, which knows PyTorch's own index.
# uv itself is the one on the PATH, else it comes from the package index into the environment's folder.
set -euo pipefail
environment=$1 lock=$2
bin=$environment/bin

uv() {
    local program=$environment/uv/bin/uv python=$bin/python
    if type -P uv > /dev/null; then
        program=$(type -P uv)
    elif [ ! -x "$program" ]; then
        [ -x "$python" ] || python=python3
        "$python" -m pip install -qq --disable-pip-version-check --target "$environment/uv" uv || {
            echo "make: $why, and uv, which would help, cannot be installed; accepted: python3.11 with venv, or uv on the PATH" >&2
            exit 2
        }
    fi
    "$program" "$@"
}

pip() {
    "$bin/python" -m pip install -qq --disable-pip-version-check --no-compile --no-deps "$@"
}

if [ ! -x "$bin/python" ]; then
    if [ -n "${PYTHON:-}" ] || type -P python3.11 > /dev/null; then
        type -P "${PYTHON:-python3.11}" > /dev/null || { echo "make: PYTHON=$PYTHON is not installed; accepted: a Python 3.11" >&2; exit 2; }
        "${PYTHON:-python3.11}" -m venv "$environment"
    else
        why="python3.11 is not installed" uv venv --quiet --seed --allow-existing --python 3.11 "$environment"
    fi
fi
torch=$(grep -E '^torch==.*\+cpu$' "$lock" || true)
if [ -n "$torch" ] && ! pip "$torch" 2> "$environment/torch.log"; then
    if ! grep -q 'No matching distribution found for torch' "$environment/torch.log"; then
        cat "$environment/torch.log" >&2
        exit 1
    fi
    echo "make: pip does not find $torch; uv fetches it from PyTorch's own index"
    why="pip does not find $torch" uv pip install --quiet --python "$bin/python" --no-deps --torch-backend cpu "$torch"
fi
pip -r "$lock"
pip --no-build-isolation --editable .
# Bytecode for all that is imported, made once and on all cores: without it a start of vLLM takes 28 s in place of 14
# where Python may not write its own (PYTHONDONTWRITEBYTECODE, a read-only disk). A few files that are never imported do
# not compile.
"$bin/python" -m compileall -qq -j 0 -x '/tests?/|/testing/' "$environment/lib" || true
touch "$environment/.installed"
