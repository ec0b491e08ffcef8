"""vLLM calls `register` in every process it starts (entry point group `vllm.general_plugins`)."""

ARCHITECTURE = "RLVRPairForCausalLM"


def register() -> None:
    """Makes the pair model known by name; the class itself is imported only by an engine that uses it."""
    from vllm import ModelRegistry

    ModelRegistry.register_model(ARCHITECTURE, "harness.decode.vllm_pair.model:RLVRPairForCausalLM")
