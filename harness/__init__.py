"""rlvr-dir: what did RLVR change in this model, token by token, and can that change be used?

Kept empty of imports: Python's start-up hook (`rlvr_dir_autoload.pth`) passes through here in every process.
"""

__version__ = "0.1.0"
