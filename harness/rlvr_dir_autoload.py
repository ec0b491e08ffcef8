"""Start-up hook: makes `lm_eval --model rlvr_dir --tasks aime24` work with the stock lm-eval command.

lm-eval 0.4.13 has no plugin discovery, so `rlvr_dir_autoload.pth` imports this module in every Python process. It
imports nothing itself, not even our own package. It waits for four lm-eval
modules and then (a) adds the model names `rlvr_dir` and `rlvr-dir`, (b) adds our tasks behind lm-eval's own, where
lm-eval has none of the name, and, where a run asks for our model, (c) puts all of our tasks in front (lm-eval's
`aime24` is one greedy sample with another prompt) and leaves lm-eval's index of its own 14,000 files out where no task
of it is asked for, checks the request before any model loads, keeps its rollouts and logs its results.

In a process that one of our vLLM engines has spawned, it also begins to watch the parent, before vLLM is imported
(`rlvr_dir.watch`).

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

NAMES = ("rlvr_dir", "rlvr-dir")


def _is_ours(model: Any) -> bool:
    """Return whether a model of lm-eval's, or its name, is ours."""
    return model in NAMES if isinstance(model, str) else type(model).__module__ == "rlvr_dir.lm_eval_model.lm"


def _register(module: Any) -> None:
    """Add the model, lazily, once lm-eval's own models are there (its registry must not be filled before them)."""
    from lm_eval.api.registry import model_registry

    for name in NAMES:
        if name not in model_registry:
            model_registry.register(name, target="rlvr_dir.lm_eval_model.lm:RlvrDirLM")


def _add_tasks(module: Any) -> None:
    """Make a `TaskManager` find our tasks too, behind lm-eval's own and the user's.

    Groups are left out: `rlvr_math` would take lm-eval's `aime24`.
    """
    manager_class = module.TaskManager
    original = manager_class.__init__

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        import inspect

        original(self, *args, **kwargs)
        asked = inspect.signature(original).bind(self, *args, **kwargs).arguments
        if not asked.get("include_defaults", True):
            return
        here = os.path.dirname(os.path.abspath(__file__))
        folders = (os.path.join(here, "rlvr_dir", "_data", "tasks"), os.path.join(os.path.dirname(here), "tasks"))
        folder = next((path for path in folders if os.path.isfile(os.path.join(path, "_math.yaml"))), None)
        if folder is None:
            return
        ours = manager_class(include_path=folder, include_defaults=False).task_index
        missing = [name for name, entry in ours.items() if "TASK" in entry.kind.name and name not in self.task_index]
        self.task_index.update((name, ours[name]) for name in missing)
        for names in (self.all_tasks, self.all_subtasks):
            names[:] = sorted([*names, *missing])

    manager_class.__init__ = init


def _prepare(module: Any) -> None:
    """Make an evaluation of our model see our tasks, from the command line and from a --config file alike."""
    config_class = module.EvaluatorConfig
    original = config_class.process_tasks

    def process_tasks(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not _is_ours(self.model):
            return original(self, *args, **kwargs)
        from lm_eval import tasks

        from rlvr_dir.lm_eval_model.args import prepare, refuse_unknown_tasks

        files, defaults = prepare(self)
        manager_class, opened = tasks.TaskManager, []

        def open_manager(*places: Any, **options: Any) -> Any:
            opened.append(manager_class(*places, include_defaults=defaults, **options))
            return opened[-1]

        tasks.TaskManager = open_manager
        try:
            manager = original(self, *args, **kwargs)
        except ValueError:  # lm-eval's own message is a traceback
            refuse_unknown_tasks(self.tasks, opened)
            raise
        finally:
            tasks.TaskManager = manager_class
        self.tasks = [*self.tasks, *files]
        return manager

    config_class.process_tasks = process_tasks


def _wrap(module: Any) -> None:
    """Make an evaluation of our model see our tasks from Python too, and keep and log what came of it.

    Kept and logged is what its model arguments say. Its prompts go through the chat template, where it has one, as with
    `--apply_chat_template`.
    """
    simple, inner = module.simple_evaluate, module.evaluate

    def simple_evaluate(*args: Any, **kwargs: Any) -> Any:
        if not _is_ours(args[0] if args else kwargs.get("model")):
            return simple(*args, **kwargs)
        import inspect

        from rlvr_dir.lm_eval_model.args import with_tasks

        return simple(**with_tasks(inspect.signature(simple).bind(*args, **kwargs).arguments))

    def evaluate(*args: Any, **kwargs: Any) -> Any:
        lm: Any = args[0] if args else kwargs.get("lm")
        if not _is_ours(lm):
            return inner(*args, **kwargs)
        import inspect

        from rlvr_dir.lm_eval_model.tracking import evaluated

        return evaluated(inner, lm, inspect.signature(inner).bind(*args, **kwargs).arguments)

    module.simple_evaluate = functools.wraps(simple)(simple_evaluate)
    module.evaluate = functools.wraps(inner)(evaluate)


_AFTER = {
    "lm_eval.models": _register,
    "lm_eval.tasks.manager": _add_tasks,
    "lm_eval.config.evaluate_config": _prepare,
    "lm_eval.evaluator": _wrap,
}


class _Finder:
    """Finds exactly these modules, through the finders that would have found them anyway; our step follows."""

    @classmethod
    def find_spec(
        cls, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        finders = [finder for finder in sys.meta_path if finder is not cls and hasattr(finder, "find_spec")]
        spec: Any = None
        for finder in finders if name in _AFTER else ():
            spec = spec or finder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            inner = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                inner(module)
                try:
                    _AFTER[name](module)
                except Exception as error:
                    print(f"rlvr-dir: the lm-eval hook could not be set ({error!r})", file=sys.stderr)

            spec.loader.exec_module = exec_module
        return spec


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
            from rlvr_dir.watch import end_with_parent

            end_with_parent()
except Exception:
    pass
