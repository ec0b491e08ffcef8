"""Make models as transformers has them, in a process where vLLM may have changed their classes."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any


@contextmanager
def beside_vllm(config: Any) -> Iterator[None]:
    """Make within a model of this configuration.

    vLLM's Transformers backend, which serves Olmo 3 and others, makes their decoder's class one that is compiled as
    vLLM's configuration says, and of which no model can be made where there is none. By this one nothing is compiled.
    """
    if "vllm.compilation.decorators" not in sys.modules:
        yield
        return
    from vllm.config import CompilationConfig, CompilationMode, VllmConfig, set_current_vllm_config

    plain: Any = VllmConfig(compilation_config=CompilationConfig(mode=CompilationMode.NONE))
    plain.model_config = SimpleNamespace(hf_config=config)  # it is asked whether the model could be compiled
    with set_current_vllm_config(plain):
        yield


def on_cpu() -> bool:
    """Return whether the vLLM that is installed computes on the CPU."""
    from vllm.platforms import current_platform

    return current_platform.is_cpu()
