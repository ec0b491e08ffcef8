"""Register the pair's model in every process that vLLM starts (entry point group `vllm.general_plugins`)."""

from rlvr_dir.watch import end_with_parent

ARCHITECTURE = "RLVRPairForCausalLM"
EXTRA_ARG = "rlvr"  # key in a request's sampling parameters for what a step needs
CONTEXT_KEY = "rlvr_pair"  # key of the model in the engine's forward context, for the logits processor


def register() -> None:
    """Register the pair's model by name. Only an engine that uses the class imports it.

    A process that was started by one of our engines also begins to watch its parent.
    """
    end_with_parent()
    from vllm import ModelRegistry

    ModelRegistry.register_model(ARCHITECTURE, "rlvr_dir.decode.vllm_pair.model:RLVRPairForCausalLM")
