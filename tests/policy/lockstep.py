"""Triton's interpreter, with many programs of a grid at once: what it does to one number, numpy does to all of theirs.

The interpreter runs one program after the other, and nearly all of its time is Python's, a tenth of a millisecond for
each operator whatever its size. Here a value that differs between programs has an axis more, the first, with one place
for each program. A scalar is an array of shape (1,) to the interpreter, so it becomes (programs, 1).

Programs stay together as long as they take the same way. Where they do not (an `if`, how often a loop goes round), what
they wrote is taken back, and those of each way start again together.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any
from unittest.mock import patch

import numpy as np
import triton.language as tl
from triton.runtime import interpreter

AT_ONCE = 1 << 19  # numbers in the tiles of all programs together, about: more take memory and save no time

_memory = interpreter._interpreter  # loads and stores, at any address
_patch_tensor = interpreter._patch_lang_tensor
_written: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []  # addresses, what was there, which are meant


class Diverged(Exception):
    """Programs take different ways."""

    def __init__(self, ways: np.ndarray) -> None:
        self.ways = ways  # of each program, a number


def agreed(ways: np.ndarray) -> Any:
    """Return the way of all programs."""
    ways = np.ravel(ways)
    if (ways != ways[0]).any():
        raise Diverged(ways)
    return ways[0]


def launch(self: interpreter.InterpretedFunction, *args: Any, grid: tuple[int, ...], warmup: bool, **kwargs: Any):
    """Run a kernel on tensors of the CPU; in place of `InterpretedFunction.run`."""
    kernel = self.rewrite()
    kwargs = {name: value for name, value in kwargs.items() if name in self.arg_names}
    given = inspect.getcallargs(kernel, *args, **kwargs)
    constants = {name for name, kind in inspect.get_annotations(kernel).items() if "constexpr" in str(kind)}
    given = {name: value if name in constants else interpreter._implicit_cvt(value) for name, value in given.items()}
    places = np.indices(grid).reshape(len(grid), -1)
    parts = max(1, places.shape[1] * given.get("TILE", 1) // AT_ONCE)
    scope = interpreter._patch_lang(self.fn)
    try:
        for some in np.array_split(places, min(parts, places.shape[1]), axis=1):
            together(lambda: kernel(**given), some)
    finally:
        scope.restore()


def together(run: Callable[[], None], places: np.ndarray) -> None:
    """Run the programs at these places of the grid, (axes, programs), one group for each way that they take."""
    interpreter.interpreter_builder.places = places
    _written.clear()
    try:
        run()
    except Diverged as found:
        for addresses, before, mask in reversed(_written):
            _memory.store(addresses, before, mask)
        for way in np.unique(found.ways):
            together(run, places[:, found.ways == way])


class Memory:
    """`triton._C.libtriton.interpreter`, for arrays of which some have an axis of programs and some do not."""

    def __getattr__(self, name: str) -> Any:
        return getattr(_memory, name)

    def load(self, addresses, mask, other, dtype):
        return _memory.load(*np.broadcast_arrays(addresses, mask, other), dtype)

    def store(self, addresses, value, mask):
        addresses, value, mask = np.broadcast_arrays(addresses, value, mask)
        self._remember(addresses, value, mask)
        _memory.store(addresses, value, mask)

    def atomic_rmw(self, operator, addresses, value, mask, order):
        addresses, value, mask = np.broadcast_arrays(addresses, value, mask)
        self._remember(addresses, value, mask)
        return _memory.atomic_rmw(operator, addresses, value, mask, order)

    def _remember(self, addresses, value, mask):
        meant = mask.nonzero()
        addresses, mask = addresses[meant], mask[meant]
        before = _memory.load(addresses, mask, np.zeros(addresses.shape, value.dtype), value.dtype)
        _written.append((addresses, before, mask))


def _program_id(self, axis):
    return interpreter.TensorHandle(self.places[axis][:, None].astype(np.int32), tl.int32)


def _splat(self, kind, scalar):
    data = scalar.data if len(scalar.data) == 1 else scalar.data.reshape(-1, *[1] * len(kind.shape))
    return interpreter.TensorHandle(_spread(data, kind.shape), scalar.dtype.scalar)


def _broadcast(self, block, shape):
    return interpreter.TensorHandle(_spread(block.data, shape), block.dtype.scalar)


def _spread(data: np.ndarray, shape: list[int]) -> np.ndarray:
    return np.broadcast_to(data, (*data.shape[: max(0, data.ndim - len(shape))], *shape))


def _expand_dims(self, block, axis):  # of one axis to two: the others have none of programs to be told from
    return interpreter.TensorHandle(np.expand_dims(block.data, axis - 2), block.dtype.scalar)


def _reduced(operator: Callable[..., np.ndarray], block: tl.tensor, axis: int) -> tl.tensor:
    """Reduce a block along one of its own axes."""
    shape = [int(size) for size in block.shape]
    data = np.asarray(operator(block.handle.data, axis=axis - len(shape)))
    del shape[axis]
    data = data.astype(interpreter._get_np_dtype(block.dtype))
    kind = tl.block_type(block.dtype, shape) if shape else block.dtype
    return tl.tensor(interpreter.TensorHandle(data if shape else data.reshape(-1, 1), block.dtype), kind)


def _sum(self, block):
    return _reduced(np.sum, block, self.axis)


def _most(self, block, val_reduce_op, idx_reduce_op=None):
    assert idx_reduce_op is None
    return _reduced(val_reduce_op, block[0] if isinstance(block, tuple) else block, self.axis)


def _cumsum(self, block):
    data = np.cumsum(block.handle.data, axis=self.axis - len(block.shape)).astype(
        interpreter._get_np_dtype(block.dtype)
    )
    return [tl.tensor(interpreter.TensorHandle(data, block.dtype), block.type)]


def _patched_tensor(tensor, scope):
    _patch_tensor(tensor, scope)
    scope.set_attr(tensor, "__bool__", lambda self: True if len(self.shape) else bool(agreed(self.handle.data)))
    scope.set_attr(tensor, "__index__", lambda self: int(agreed(self.handle.data)))


def rounds(*bounds: Any) -> range:
    """Stand in for `range`: programs need to agree on its start and on how often it goes round, not on its end."""
    bounds = [np.ravel(each.handle.data if isinstance(each, tl.tensor) else each).astype(np.int64) for each in bounds]
    start, end, step = bounds if len(bounds) == 3 else [*(bounds if len(bounds) == 2 else (0, *bounds)), 1]
    times = np.maximum(-(-(end - start) // step), 0)
    agreed(times + (np.asarray(start) << 32))
    start, times, step = (int(np.ravel(each)[0]) for each in (start, times, step))
    return range(start, start + times * step, step)


@contextmanager
def in_lockstep(*modules: ModuleType) -> Iterator[None]:
    """Run the kernels of these modules so."""
    builder = interpreter.InterpreterBuilder
    with ExitStack() as changed:
        for place, name, ours in (
            (interpreter, "_interpreter", Memory()),
            (interpreter, "_patch_lang_tensor", _patched_tensor),
            (interpreter.InterpretedFunction, "run", launch),
            (interpreter.ReduceOps, "sum", _sum),
            (interpreter.ReduceOps, "min_max", _most),
            (interpreter.ScanOps, "cumsum", _cumsum),
            (builder, "create_get_program_id", _program_id),
            (builder, "create_splat", _splat),
            (builder, "create_broadcast", _broadcast),
            (builder, "create_expand_dims", _expand_dims),
            *((module, "range", rounds) for module in modules),
        ):
            changed.enter_context(patch.object(place, name, ours, create=name == "range"))
        yield
