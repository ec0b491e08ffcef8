"""Run `python -m rlvr_dir.cli`."""

from rlvr_dir.cli import main

main()
