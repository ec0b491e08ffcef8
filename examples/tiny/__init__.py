"""Build the tiny pair that ships with rlvr-dir, and others like it: `python -m examples.tiny --help`.

`recipe` pretrains a base (`corpus`, `pretrain`) and trains it with DAPO, or as a placebo (`placebos`); `measure` scores
the pair without our engines, and `card` writes its model card. Problems and weights belong to the package
(`rlvr_dir.tiny`).
"""
