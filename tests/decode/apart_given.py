"""For `found_apart`: scores given texts by vLLM's model runner V2, a GPU's, in Triton's interpreter."""

import os

from tests.decode.apart import run_runner_v2


def main(pair, texts, scoring):
    """Return the scores by place."""
    os.environ["RLVR_DIR_DECISION"] = "torch"
    run_runner_v2()
    from rlvr_dir.decode import open_engine
    from tests.conftest import vllm_spec

    with open_engine(pair, vllm_spec(max_num_seqs=8, self_test=False), lazily=True) as engine:
        scores = dict(engine.score(texts, scoring))
        assert engine._engine.vllm_config.use_v2_model_runner
    return scores
