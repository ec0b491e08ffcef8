"""Provide studies and clients of rlvr-dir, to run in a checkout and to copy: `python -m examples.tiny --help`."""
