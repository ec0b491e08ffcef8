"""Start vLLM with little output, and report any failure in one sentence that names the cause.

If vLLM's core has its own process, the error that reaches us only reports that it failed. The cause is in the output of
that process. So this output is written to a file, which is read after a failure and then kept.
"""

import gc
import os
import re
import signal
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any
from weakref import finalize

from rlvr_dir.checkpoints.beside_vllm import on_cpu
from rlvr_dir.checkpoints.weights import PICKLE
from rlvr_dir.config import EngineSpec
from rlvr_dir.decode.types import EngineLost
from rlvr_dir.errors import UserError
from rlvr_dir.progress import phase
from rlvr_dir.watch import owning

LEVEL = "VLLM_LOGGING_LEVEL"
QUIET = "ERROR"  # vLLM's log level, unless the user has chosen one

_LONGEST = 107 - len("/") - 36  # on Linux a socket's path has at most 107 characters; vLLM names its sockets by a UUID

# The prefix of each line in vLLM's log: `(EngineCore pid=7) ERROR 11-21 21:49:22 [core.py:1510] `.
_PREFIX = re.compile(r"^(?P<who>\([^()]* pid=\d+\)|) ?(?:[A-Z]+ \d\d-\d\d \d\d:\d\d:\d\d \[[^\]]*\] ?)?")
_PROGRESS = re.compile(r"%|loading|compil|captur", re.IGNORECASE)
_TRACEBACK = "Traceback (most recent call last):"
_CHAINED = ("During handling of the above", "The above exception was the direct cause")
_PLAIN = {"UserError", "ValueError", "RuntimeError"}  # kinds that add no information to their text
# Errors that repeat another process's error, and kinds that follow from its end.
_PASSED_ON = re.compile(r"initialization failed|[Ss]ee (root cause|stack trace)|died unexpectedly")
_FOLLOWS = {"BrokenPipeError", "ConnectionResetError", "EOFError", "EngineDeadError", "KeyboardInterrupt", "SystemExit"}


class Log:
    """Represent a file that an engine's processes print into.

    It is removed with this object, unless `keep` was called.
    """

    def __init__(self) -> None:
        file, name = tempfile.mkstemp(prefix="rlvr-dir-vllm-", suffix=".log")
        os.close(file)
        self.path = Path(name)
        self._removal = finalize(self, self.path.unlink, missing_ok=True)

    def text(self) -> str:
        """Return everything that was printed; empty if somebody has removed the file."""
        try:
            return self.path.read_text(errors="replace")
        except OSError:
            return ""

    def last(self) -> str:
        """Return the last progress output."""
        lines = [line for line in re.split(r"[\r\n]+", self.text()) if _PROGRESS.search(line)]
        return " ".join(_PREFIX.sub("", lines[-1]).split())[:70] if lines else ""

    def keep(self, text: str = "") -> Path:
        """Keep the file for the user to read, with `text` appended."""
        with self.path.open("a") as file:
            file.write(text)
        self._removal.detach()
        return self.path

    def discard(self) -> None:
        """Remove the file, unless it is kept."""
        self._removal()


def prepare(spec: EngineSpec) -> Log | None:
    """Import vLLM and decide how it starts processes; return the file for their output, or None if there is none.

    On a CPU one process does everything, unless the user has chosen otherwise. This saves start-up time, and scripts
    need no guard. Elsewhere processes are spawned, because a second engine can hang if it is forked after OpenMP or
    CUDA have started threads.

    Raises:
        UserError: vLLM cannot be imported.
    """
    try:
        with lasting():
            from vllm import LLM  # noqa: F401
    except RuntimeError as error:
        if "torchvision::nms" not in str(error):
            raise
        raise UserError(
            "vLLM cannot be imported, because the installed torchvision was built for another version of torch",
            hint="Run `pip uninstall torchvision torchaudio torchcodec`.",
        ) from None
    if on_cpu():
        os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    else:
        os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")
    if len(tempfile.gettempdir()) > _LONGEST and os.access("/tmp", os.W_OK):
        os.environ.setdefault("VLLM_RPC_BASE_PATH", "/tmp")
    if (in_process() and spec.tensor_parallel_size == 1) or os.environ.get(LEVEL) != QUIET:
        return None  # the user wants to see vLLM's log
    return Log()


@contextmanager
def lasting() -> Iterator[None]:
    """Import inside this context without garbage collection, and exclude the imported objects from later collections.

    Otherwise 700,000 permanent objects would be scanned about nine times, which is up to a third of an import of vLLM,
    and again when an engine starts. Existing garbage is collected first, because frozen objects never are.
    """
    collected = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        if collected:
            gc.enable()


def in_process() -> bool:
    """Return whether vLLM's core runs in this process."""
    import vllm.envs

    return not vllm.envs.VLLM_ENABLE_V1_MULTIPROCESSING


def start_vllm(make: Callable[..., Any], arguments: dict[str, Any], log: Log | None) -> Any:
    """Return `make(**arguments)`, a `vllm.LLM`. The output of its processes is written to `log`, if there is one.

    Raises:
        UserError: vLLM does not start. The error states the cause, what is accepted, and where the whole output is.
    """
    try:
        with phase("starting vLLM", log.last if log else ""), owning(log.path if log else None):
            llm = make(**arguments)
        _end_waits(llm.llm_engine.engine_core)
        return llm
    except Exception as error:
        if isinstance(error, UserError):
            failure = error.with_hint("")  # a copy without the traceback
        elif isinstance(error, TypeError) and "unexpected keyword argument" in str(error):
            failure = UserError(f"vLLM does not accept an argument ({error})", argument="vllm_args")
        else:
            cause = explain(cause_of(error, log.text() if log else ""), arguments)
            path = (log or Log()).keep(traceback.format_exc())
            failure = UserError(f"vLLM does not start: {cause}", hint=f"Its whole output is in {path}")
    if in_process():  # here, where `error` no longer references a partial engine
        clean_up()
    raise failure


def _end_waits(client: Any) -> None:
    """Wake the threads that wait for the core's answers when no more can arrive.

    vLLM notices that a core was killed and stops listening, but its main thread keeps waiting at its queue forever.
    """
    from vllm.v1.engine.exceptions import EngineDeadError

    listener = getattr(client, "output_queue_thread", None)  # exists if the core has its own process
    if listener is None:
        return
    outputs, answers = client.outputs_queue, client.utility_results

    def announce() -> None:
        listener.join()
        outputs.put(EngineDeadError())
        for future in list(answers.values()):
            if not future.done():
                future.set_exception(EngineDeadError())

    Thread(target=announce, name="rlvr-dir-core-lost", daemon=True).start()


def lost(error: Exception, log: Log | None, arguments: dict[str, Any]) -> EngineLost:
    """Return the error for processes that ended while decoding: the cause, what to change, and where the log is."""
    cause = printed_cause(log.text()) if log else str(error)
    cause = explain(cause, arguments) if cause else "they printed no error, as when they are killed or memory runs out"
    where = f" Their output is in {log.keep()}." if log else ""
    return EngineLost(
        f"vLLM's processes ended while they were decoding: {cause}",
        hint=f"Every finished response is kept. Run the same command again to resume.{where}",
    )


def clean_up() -> None:
    """Free what an engine in this process leaves behind: process groups, and the memory of its tensors."""
    from vllm.distributed.parallel_state import cleanup_dist_env_and_memory

    cleanup_dist_env_and_memory()


def cause_of(error: BaseException, printed: str) -> str:
    """Describe the first failure: the last line of a printed traceback if there is one, otherwise the error itself."""
    if cause := printed_cause(printed):
        return cause
    ended = re.search(r"'[\w-]+': -(\d+)", str(error))  # the signal that ended a process
    if ended:
        name = signal.Signals(int(ended[1])).name
        return f"its process was ended by {name}" + (", as Linux does where memory runs out" if ended[1] == "9" else "")
    return _log_line(type(error).__name__, str(error))


def printed_cause(printed: str) -> str | None:
    """Return the first error that processes printed and that is not the consequence of another process's error."""
    errors = ((kind, text) for kind, text in _errors(printed) if kind not in _FOLLOWS and not _PASSED_ON.search(text))
    return next((_log_line(kind, text) for kind, text in errors), None)


def _errors(printed: str) -> Iterator[tuple[str, str]]:
    """Yield kind and text of each traceback's error, process by process. For chained errors only the last is used."""
    processes: dict[str, list[str]] = {}
    for line in printed.splitlines():
        if prefix := _PREFIX.match(line):
            processes.setdefault(prefix["who"], []).append(line[prefix.end() :])
    for lines in processes.values():
        for block in "\n".join(lines).split(_TRACEBACK)[1:]:
            stack = block.splitlines()[1:]
            ends = [at for at, line in enumerate(stack) if line[:1].strip()]  # code is indented
            if ends and not any(stack[at].startswith(_CHAINED) for at in ends):
                error = stack[ends[0] : ends[1] if len(ends) > 1 else None]
                kind, _, text = "\n".join(error).partition(":")
                yield kind.rpartition(".")[2], text.strip()


def _log_line(kind: str, text: str) -> str:
    """Return an error as part of a sentence, without pydantic's additions or vLLM's link to its manual."""
    inner = re.search(r"Value error, (.*?)\s*(\[type=|$)", text, re.DOTALL)
    lines = (inner[1] if inner else text).strip().splitlines() or [""]
    line = re.sub(r"\s*See https?://\S+.*$", "", lines[0]).rstrip(". ")
    return line if line and (inner or kind in _PLAIN) else f"{kind}: {line}".rstrip(": ")


def explain(cause: str, arguments: dict[str, Any]) -> str:
    """Return a message for the cause with what is accepted, if it is a common one; otherwise the cause itself."""
    length = re.search(r"max seq len \((\d+)\), \(([\d.]+) GiB KV.*memory \(([\d.]+) GiB\)", cause)
    if length:
        most = re.search(r"maximum model length is (\d+)", cause)
        return (
            f"max_model_len={length[1]} does not fit: one response of that length takes {length[2]} GiB of KV cache, "
            f"and {length[3]} are free. Use "
            + (f"max_model_len={most[1]} or less, or " if most else "a smaller max_model_len, or ")
            + "leave more memory to the cache (gpu_memory_utilization, kv_cache_gib, tensor_parallel_size)"
        )
    free = re.search(r"Free memory on device \S+ \(([\d.]+)/([\d.]+) GiB\)", cause)
    if free:
        share = int(100 * float(free[1]) / float(free[2])) / 100
        return (
            f"gpu_memory_utilization={arguments['gpu_memory_utilization']} is too high: {free[1]} of the GPU's "
            f"{free[2]} GiB are free. Use at most {share}, or a GPU that no other program uses"
        )
    if re.search("out of memory|No available memory for the cache", cause, re.IGNORECASE):
        return (
            f"the two models do not fit ({cause}). Try tensor_parallel_size above "
            f"{arguments['tensor_parallel_size']}, max_num_seqs below {arguments['max_num_seqs']}, a smaller "
            "max_num_batched_tokens, or a GPU that no other program uses"
        )
    if "before the current process has finished its bootstrapping" in cause or "freeze_support" in cause:
        return (
            "its core is a process of its own, which imports the main script again. Open the engine below "
            "`if __name__ == '__main__':` in that script"
        )
    return PICKLE if "weights_only" in cause else cause
