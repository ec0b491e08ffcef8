"""How the embedded tiny pair was made, and others like it: `python -m examples.tiny --help`.

`recipe` pretrains a base (`corpus`, `pretrain`) and trains it with DAPO, or as a placebo (`placebos`); `measure` scores
the pair without our engines, `card` writes its model card. Problems and weights are the package's (`rlvr_dir.tiny`).
"""
