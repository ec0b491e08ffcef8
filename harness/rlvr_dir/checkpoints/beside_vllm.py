"""Create models as in transformers, in a process where vLLM may have changed their classes."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any


@contextmanager
def beside_vllm(config: Any) -> Iterator[None]:
    """Allow to create a model with this configuration in a `with` block.

    vLLM's Transformers backend, which serves Olmo 3 and others, replaces the class of their decoder by one that is
    compiled according to vLLM's configuration, and that cannot be created without one. This provides a configuration
    that compiles nothing.
    """
    if "vllm.compilation.decorators" not in sys.modules:
        yield
        return
    from vllm.config import CompilationConfig, CompilationMode, VllmConfig, set_current_vllm_config

    plain: Any = VllmConfig(compilation_config=CompilationConfig(mode=CompilationMode.NONE))
    plain.model_config = SimpleNamespace(hf_config=config)  # used to decide whether the model can be compiled
    with set_current_vllm_config(plain):
        yield


def on_cpu() -> bool:
    """Return whether the installed vLLM computes on the CPU."""
    from vllm.platforms import current_platform

    return current_platform.is_cpu()
