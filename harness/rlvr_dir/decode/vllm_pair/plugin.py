"""vLLM calls `register` in every process it starts (entry point group `vllm.general_plugins`)."""

from rlvr_dir.watch import end_with_parent

ARCHITECTURE = "RLVRPairForCausalLM"
EXTRA_ARG = "rlvr"  # of a request's sampling parameters: what a step needs to know of it
CONTEXT_KEY = "rlvr_pair"  # where the logits processor finds the model, in the engine's own forward context


def register() -> None:
    """Make the pair's model known by name; the class itself is imported only by an engine that uses it.

    A process that an engine of ours has started begins here to watch its parent.
    """
    end_with_parent()
    from vllm import ModelRegistry

    ModelRegistry.register_model(ARCHITECTURE, "rlvr_dir.decode.vllm_pair.model:RLVRPairForCausalLM")
