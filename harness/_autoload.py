"""Start-up hook: makes `lm_eval --model rlvr_dir --tasks aime24` work with the stock lm-eval command.

lm-eval 0.4.13 has no plugin discovery, so `rlvr_dir_autoload.pth` imports this module in every Python process. It
imports nothing itself; it waits for three lm-eval modules and then (a) adds the model name `rlvr_dir` and, where a run
asks for that model, (b) puts our task files in front of lm-eval's own of the same name (its `aime24` is one greedy
sample with another prompt), checks the request before any model loads, and (c) keeps its rollouts and logs its results.
Runs of other models are left alone.

It has one more errand: in a process that one of our vLLM engines has spawned it begins to watch the parent, before vLLM
is imported (`harness.watch`).

RLVR_DIR_NO_AUTOLOAD=1 turns it off. Nothing here may ever break the start of Python: all of it is guarded.
"""

from __future__ import annotations

import functools
import os
import sys

TYPE_CHECKING = False  # `typing` itself is not imported: this runs whenever a Python starts
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

_MODELS, _CONFIG, _EVALUATOR = "lm_eval.models", "lm_eval.config.evaluate_config", "lm_eval.evaluator"


def _register(module: Any) -> None:
    """Add the model, lazily, once lm-eval's own models are there (its registry must not be filled before them)."""
    from lm_eval.api.registry import model_registry

    if "rlvr_dir" not in model_registry:
        model_registry.register("rlvr_dir", target="harness.evals.lm:RlvrDirLM")


def _wrap(module: Any) -> None:
    """Make an evaluation of our model see our tasks, from the command line and from a --config file alike."""
    config_class = module.EvaluatorConfig
    original = config_class.process_tasks

    def process_tasks(self: Any, *args: Any, **kwargs: Any) -> Any:
        files = []
        if self.model == "rlvr_dir":
            from harness.evals.args import prepare

            files = prepare(self)
        manager = original(self, *args, **kwargs)
        self.tasks = [*self.tasks, *files]
        return manager

    config_class.process_tasks = process_tasks


def _track(module: Any) -> None:
    """Make an evaluation of our model keep and log what came of it, where its model arguments say so.

    Its prompts go through the chat template, where it has one, as with `--apply_chat_template`.
    """
    inner = module.evaluate

    def evaluate(*args: Any, **kwargs: Any) -> Any:
        lm: Any = args[0] if args else kwargs.get("lm")
        if type(lm).__module__ != "harness.evals.lm":
            return inner(*args, **kwargs)
        import inspect

        from harness.tracked import evaluated

        return evaluated(inner, lm, inspect.signature(inner).bind(*args, **kwargs).arguments)

    module.evaluate = functools.wraps(inner)(evaluate)


_AFTER = {_MODELS: _register, _CONFIG: _wrap, _EVALUATOR: _track}


class _Finder:
    """Finds exactly these modules, through the finders that would have found them anyway; our step follows."""

    @classmethod
    def find_spec(
        cls, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        finders = [each for each in sys.meta_path if each is not cls and hasattr(each, "find_spec")]
        found: Any = None
        for finder in finders if name in _AFTER else ():
            found = found or finder.find_spec(name, path, target)
        if found is not None and found.loader is not None:
            inner = found.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                inner(module)
                try:
                    _AFTER[name](module)
                except Exception as error:
                    print(f"rlvr-dir: the lm-eval hook could not be set ({error!r})", file=sys.stderr)

            found.loader.exec_module = exec_module
        return found


def install() -> None:
    """Set the hook once; a module that is already imported gets its step now."""
    if _Finder in sys.meta_path:
        return
    sys.meta_path.insert(0, _Finder)
    for name, after in _AFTER.items():
        if name in sys.modules:
            after(sys.modules[name])


try:
    if os.environ.get("RLVR_DIR_NO_AUTOLOAD", "") in ("", "0"):
        install()
        if "RLVR_DIR_ENGINE_OWNER" in os.environ and "--multiprocessing-fork" in sys.orig_argv:
            from harness.watch import end_with_parent

            end_with_parent()
except Exception:
    pass
