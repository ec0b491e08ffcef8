"""A CPU as one of verl's platforms, so that its real workers run in the tests: loaded as a plugin, before our own.

verl 0.9.1 brings platforms of NVIDIA, AMD and Huawei alone. Beside the platform a line of its own stands in the way:
`utils/distributed.py:89` names the backends "cpu:gloo,DEVICE:...", and a device named twice is refused. And vLLM's
linear layers drop their weights once these are packed for a CPU (`model_executor/layers/linear.py:216`), where verl
loads new ones into them each step: here they are left as they are.
"""

import sys
import types
from contextlib import contextmanager

import torch
from verl.plugin.platform import PlatformBase, set_platform

device = types.ModuleType("cpu")
device.__dict__.update(vars(torch.cpu))
for name in ("max_memory_allocated", "max_memory_reserved", "memory_allocated", "memory_reserved"):
    setattr(device, name, lambda *_: 0)
for name in ("empty_cache", "manual_seed", "manual_seed_all", "reset_peak_memory_stats", "ipc_collect"):
    setattr(device, name, lambda *_: None)
device.mem_get_info = lambda *_: (2**33, 2**33)
device.get_device_name = lambda *_: "cpu"
device.get_rng_state, device.set_rng_state = torch.get_rng_state, torch.set_rng_state


class Cpu(PlatformBase):
    device_name = vendor_name = "cpu"
    device_module = device

    def is_available(self):
        return True

    def current_device(self):
        return torch.device("cpu")

    def device_count(self):
        return 1

    def manual_seed(self, seed):
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def _nothing(self, *_):
        return None

    set_device = synchronize = set_allocator_settings = empty_cache = profiler_start = profiler_stop = cudart = _nothing

    def get_device_capability(self, device_index=0):
        return None, None

    def communication_backend_name(self):
        return "gloo"

    def visible_devices_envvar(self):
        return "CUDA_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg):
        yield

    def ray_resource_name(self):
        return "GPU"  # Ray is told that there is one

    def ray_noset_envvars(self):
        return []

    def is_ipc_supported(self):
        return False  # weights go to vLLM through shared memory


set_platform(Cpu())

from verl.utils import distributed  # noqa: E402

_group = distributed.initialize_global_process_group_ray
distributed.initialize_global_process_group_ray = lambda timeout_second=None, backend=None: _group(
    timeout_second, backend or "gloo"
)

if "vllm" in sys.modules:  # in a worker of vLLM's, which loads verl's extension before it loads the model
    from vllm.model_executor.layers import utils

    utils.dispatch_cpu_unquantized_gemm = lambda layer, remove_weight: setattr(
        layer, "cpu_linear", torch.nn.functional.linear
    )
