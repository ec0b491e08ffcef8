"""Compare true tiny pairs with placebos, by what each criterion gains in them: `python -m examples.stage --help`.

`make paper-stage` builds the pairs (`examples/tiny`), sweeps each (`sweeps/tiny_stage.yaml`), and runs this.
"""
