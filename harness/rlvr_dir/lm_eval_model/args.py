"""Read the model arguments of `--model rlvr_dir`, and check a run before the `lm_eval` command evaluates.

An argument either is one of an `EvalSpec`, or concerns only lm-eval.
"""

import fnmatch
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from rlvr_dir.config import TINY, Decoding, EngineSpec, EvalSpec, Presentation, Sampling, Spec, load_eval, parse
from rlvr_dir.config.base import Place
from rlvr_dir.config.evaluation import load_criteria
from rlvr_dir.config.pair import OPTIONS, PAIR_OPTIONS
from rlvr_dir.config.sampling import SamplingSettings
from rlvr_dir.errors import UserError, nearest, unknown
from rlvr_dir.problems.benchmark import GROUPS, TASKS, named
from rlvr_dir.problems.data import find_benchmark, preflight, task_config, tasks_dir, unknown_task
from rlvr_dir.problems.generation import INSTEAD, LENGTHS, check_gen_kwargs

REQUEST_ARGUMENTS = (
    *PAIR_OPTIONS, *Decoding.options(), *SamplingSettings.options(), *EngineSpec.model_fields, "data_dir",
    *Presentation.model_fields,
)  # fmt: skip
CACHE_REFUSAL = (
    "is not supported: lm-eval's cache does not distinguish models, tau, gamma or samples, so it would return one "
    "response for all of them"
)
# Where the `lm_eval` command stores rollouts and logs results, like `rlvr-dir eval`; `off` turns it off.
PLACES = {"records": "runs/records", "tracking": os.environ.get("RLVR_DIR_TRACKING_URI") or "runs"}
_LM_EVAL_DEVICE = "cuda:0"  # lm-eval's value if the user sets none

# lm-eval reads `off` as False, and `on` as True
_Kept = Annotated[Place | None, BeforeValidator(lambda value: None if value in (False, "off") else str(value))]


class OwnArgs(Spec, frozen=True):
    """Hold the model arguments that change neither a rollout nor a score, and a check of the task's number of samples.

    `records` and `tracking` are the folder of the record store and that, or the server, of MLflow; None stores nothing.
    """

    chat: Annotated[
        Literal["auto", "off"], BeforeValidator(lambda value: {True: "auto", False: "off"}.get(value, value))
    ] = "auto"
    samples: int | None = Field(default=None, ge=1)
    records: _Kept = None
    tracking: _Kept = None


TEMPLATE_KWARGS = ("chat_template_kwargs", "chat_template_args", "enable_thinking")  # our name, then lm-eval's
ACCEPTED = (*REQUEST_ARGUMENTS, *OwnArgs.model_fields, *TEMPLATE_KWARGS[1:])
_TOKENIZER = "nothing: the tokenizer is the RL checkpoint's"
_ADAPTER = "pretrained=ADAPTER,base=BASE"
_WHOLE = "nothing: a checkpoint in bfloat16, float16 or float32"
# Arguments of lm-eval's other models, and what to use instead.
_INSTEAD = {
    **dict.fromkeys(LENGTHS, "max_tokens=…"),
    "do_sample": "temperature=…, where 0 is greedy",
    "until": "--gen_kwargs until=…",
    **INSTEAD,
    "n": "samples=…",
    "repeats": "samples=…",
    "think_end_token": "nothing: the last box of a response counts, whatever comes before it",
    **dict.fromkeys(("tokenizer", "tokenizer_mode", "tokenizer_revision", "use_fast_tokenizer"), _TOKENIZER),
    **dict.fromkeys(("add_bos_token", "prefix_token_id"), "nothing: the tokenizer and its chat template determine it"),
    **dict.fromkeys(("truncation", "truncation_side"), "nothing: a prompt that is too long is an error"),
    **dict.fromkeys(("peft", "lora_local_path", "max_lora_rank"), _ADAPTER),
    "delta": "base=… and pretrained=…, two whole checkpoints",
    "subfolder": "pretrained=FOLDER/SUBFOLDER",
    **dict.fromkeys(("quantization", "autogptq", "gptqmodel", "load_in_4bit", "load_in_8bit", "gguf_file"), _WHOLE),
    "max_length": "max_model_len=…",
    "max_batch_size": "max_num_seqs=…",
    "data_parallel_size": "workers=…",
    **dict.fromkeys(("parallelize", "tp_plan", "device_map"), "tensor_parallel_size=…"),
    **dict.fromkeys(("softmax_dtype", "mixed_precision_dtype"), "dtype=…"),
    **dict.fromkeys(("max_memory_per_gpu", "max_cpu_memory"), "gpu_memory_utilization=…"),
    "logits_cache": "nothing: this model does not compute likelihoods",
    "offload_folder": "nothing: both models are in memory",
}


@dataclass(frozen=True)
class ModelArgs:
    """Hold the parsed model arguments. Tasks and samples, and missing sampling settings, come with lm-eval's
    requests."""

    spec: EvalSpec
    own: OwnArgs

    @property
    def decoding(self) -> Decoding:
        """Return the only decoding."""
        return self.spec.decodings[0]

    @property
    def seed(self) -> int:
        """Return the random seed."""
        return (self.spec.sampling or Sampling()).seed

    @property
    def sampling(self) -> dict[str, Any]:
        """Return the temperature, the top_p and the max_tokens that were given, which apply to every task."""
        sampling = (self.spec.sampling or Sampling()).explicit()
        return {
            name: value for name, value in sampling.items() if name in SamplingSettings.model_fields and name != "seed"
        }


class CheckedArgs(dict[str, Any]):
    """Hold the model arguments as lm-eval shows and stores them, and the parsed ones, so that they are parsed once."""

    def __init__(self, arguments: Mapping[str, Any], read: ModelArgs) -> None:
        super().__init__(arguments)
        self.read = read


def parse_model_args(arguments: Mapping[str, Any]) -> ModelArgs:
    """Validate model arguments. `batch_size`, `max_batch_size` and `device` may come from lm-eval's own options.

    Raises:
        UserError: An argument is unknown, or a value is not valid.
    """
    args = {name: value for name, value in arguments.items() if value is not None and value != ""}
    batch = args.pop("batch_size", None), args.pop("max_batch_size", None)
    args = _with_template_kwargs(args)
    load_criteria(args)
    if wrong := [name for name in args if name not in ACCEPTED and name not in Decoding.options()]:
        if instead := _INSTEAD.get(wrong[0]):
            problem = "is not a model argument of rlvr_dir"
            raise UserError(problem, argument="model_args", value=wrong[0], accepted=f"{instead}")
        raise unknown("model_args", wrong[0], ACCEPTED)
    if args.get("device") == _LM_EVAL_DEVICE:
        del args["device"]
    for size in batch:  # lm-eval's default is 1, and "auto" may contain a schedule; both mean the engine's own choice
        if str(size).isdecimal() and int(size) > 1:
            args.setdefault("max_num_seqs", int(size))
    own = parse(OwnArgs, {name: args.pop(name) for name in OwnArgs.model_fields if name in args})
    spec = load_eval({}, args)
    if own.chat == "off" and (kwargs := spec.engine.chat_template_kwargs):
        raise UserError("contradicts chat=off. Remove one of them", argument="chat_template_kwargs", value=kwargs)
    return ModelArgs(spec, own)


def _with_template_kwargs(args: dict[str, Any]) -> dict[str, Any]:
    """Return model arguments with `enable_thinking` and `chat_template_args` of lm-eval's own models merged into ours.

    Raises:
        UserError: They contradict each other.
    """
    kwargs: dict[str, Any] = {}
    for name in [name for name in TEMPLATE_KWARGS if name in args]:
        value = args.pop(name)
        template_kwargs = {name: value} if name == "enable_thinking" else parse(EngineSpec, {TEMPLATE_KWARGS[0]: value})
        for key, value in (
            template_kwargs if isinstance(template_kwargs, dict) else template_kwargs.chat_template_kwargs
        ).items():
            if kwargs.setdefault(key, value) != value:
                problem = f"{name}: {key}={value!r} and {key}={kwargs[key]!r} contradict each other"
                raise UserError(problem, argument=key, hint="Remove one of them")
    return {**args, TEMPLATE_KWARGS[0]: kwargs} if kwargs else args


def announce_tiny(spec: EvalSpec, args: Mapping[str, Any]) -> None:
    """Print on stderr that the tiny pair is used, if no pair was named."""
    if spec.pair == TINY and not {"pair", "pretrained"} & set(args):
        print("rlvr_dir: no pair named; using the tiny pair that ships with rlvr-dir", file=sys.stderr)


def prepare(config: Any) -> tuple[list[Any], bool]:
    """Check and complete a run of the `lm_eval` command for our model, before tasks are indexed or models load.

    `config` is lm-eval's `EvaluatorConfig`. Return the tasks of benchmarks that are files (`PATH.jsonl`, `NAME=PATH`),
    which lm-eval cannot find and which are removed from its list, and whether lm-eval's own tasks are requested, too.

    Raises:
        UserError: A cache would mix up samples, or a limit, an argument or a benchmark file is not valid.
    """
    sys.excepthook = one_line(sys.excepthook, config.model_args or {})
    if config.use_cache:
        raise UserError(CACHE_REFUSAL, argument="use_cache", value=config.use_cache)
    if config.cache_requests:
        problem = "is not supported: lm-eval's cache does not distinguish data files or prompts of a task"
        raise UserError(problem, argument="cache_requests", value=config.cache_requests)
    if config.limit is not None and config.limit <= 0:
        raise UserError(
            f"limit={config.limit:g} is not allowed", accepted="a number of problems, or a share between 0 and 1"
        )
    args = {**PLACES, **(config.model_args or {})}
    own = {name: getattr(config, name) for name in ("batch_size", "max_batch_size", "device")}
    read = parse_model_args({**own, **args})
    check_gen_kwargs(config.gen_kwargs or {}, read.sampling)  # those of a task are read with its requests
    spec, rest = read.spec, {name: value for name, value in args.items() if name != "pair"}
    if spec.pair == TINY:  # lm-eval names its output folder after `pretrained`
        announce_tiny(spec, args)
        args = {"pretrained": TINY, **rest}
    elif "pair" in args:
        pair = spec.pair.model_dump(exclude_defaults=True)
        args = {**{OPTIONS.get(field, field): value for field, value in pair.items()}, **rest}
    config.model_args = CheckedArgs(args, read)
    config.include_path = _with_ours(config.include_path)
    data_dir = (config.metadata or {}).get("data_dir") or spec.data_dir
    config.tasks, files = _without_files(config.tasks, spec, data_dir)
    return files, _asks_defaults(config.tasks, config.include_path)


def refuse_unknown_tasks(names: Sequence[Any], managers: Sequence[Any]) -> None:
    """Reject tasks that none of lm-eval's task managers finds.

    Raises:
        UserError: There is one; the error names the first, and tasks with similar names.
    """
    for name in names if managers else ():
        if isinstance(name, str) and not managers[-1].match_tasks([name]):
            raise unknown_task(name, nearest(name, managers[-1].all_tasks))


def with_tasks(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of lm-eval's `simple_evaluate` for our model, with a `TaskManager` that finds our tasks
    first.

    Raises:
        UserError: A model argument or a benchmark file is not valid.
    """
    manager, model_args = arguments.get("task_manager"), arguments.get("model_args") or {}
    folders = _with_ours(getattr(manager, "include_path", None))
    if str(tasks_dir()) in folders[1:]:  # the `lm_eval` command's manager, which `prepare` has changed already
        return dict(arguments)
    from lm_eval.tasks import TaskManager
    from lm_eval.utils import simple_parse_args_string

    parsed = simple_parse_args_string(model_args) if isinstance(model_args, str) else model_args
    args = parse_model_args(parsed) if isinstance(arguments["model"], str) else arguments["model"].args
    gen_kwargs = arguments.get("gen_kwargs") or {}
    check_gen_kwargs(simple_parse_args_string(gen_kwargs) if isinstance(gen_kwargs, str) else gen_kwargs, args.sampling)
    metadata = (arguments.get("metadata") or {}) if manager is None else (manager.metadata or {})
    data_dir = metadata.get("data_dir") or args.spec.data_dir
    names, files = _without_files(arguments.get("tasks"), args.spec, data_dir)
    if manager is None:
        metadata = {**parsed, **(arguments.get("metadata") or {})}
        manager = TaskManager(include_path=folders, include_defaults=_asks_defaults(names, folders), metadata=metadata)
    else:
        defaults = any(entry.yaml_path and "lm_eval" in entry.yaml_path.parts for entry in manager.task_index.values())
        manager = TaskManager(include_path=folders, include_defaults=defaults, metadata=manager.metadata)
    return {**arguments, "tasks": [*names, *files], "task_manager": manager}


def _with_ours(folders: Any) -> list[Any]:
    """Return folders of tasks, as lm-eval takes them, with ours before them."""
    include_paths = [folders] if isinstance(folders, str | Path) else folders or []
    return [str(tasks_dir()), *map(str, include_paths)]


def _asks_defaults(names: list[Any], folders: list[Any]) -> bool:
    """Return whether a requested task is in none of the folders, so that lm-eval reads all of its 14,000 files."""
    from lm_eval.tasks import TaskManager

    def whole(name: Any) -> bool:  # a group, or a task, that names no other
        entry = index.get(name) if isinstance(name, str) else None
        ours = entry and entry.yaml_path and tasks_dir() in entry.yaml_path.parents
        return bool(entry and ("TASK" in entry.kind.name or ours))

    index = TaskManager(include_path=folders, include_defaults=False).task_index
    return not all(map(whole, names))


def _without_files(tasks: Any, spec: EvalSpec, data_dir: str | None) -> tuple[list[Any], list[Any]]:
    """Divide tasks into those that lm-eval finds, and those of benchmark files, in the form that it loads.

    Raises:
        UserError: A file is not valid, or one of our benchmarks has no data.
    """
    names = [tasks] if isinstance(tasks, str) else tasks or []
    tasks = [part for name in names for part in (name.split(",") if isinstance(name, str) else [name])]
    files = [task for task in tasks if isinstance(task, str) and named(task)[1]]
    names = [task for task in tasks if task not in files]
    if doubled := [task for task in files if named(task)[0] in names]:
        raise UserError(
            "has the name of another task that is asked for", argument="task", value=doubled[0], accepted="NAME=PATH"
        )
    shipped = dict.fromkeys(task for name in names if isinstance(name, str) for task in fnmatch.filter(TASKS, name))
    for task in dict.fromkeys(part for name in shipped for part in GROUPS.get(name, (name,))):
        find_benchmark(task, data_dir)
    benchmarks = preflight(files, presentation=spec) if files else {}
    return names, [task_config(task, benchmark) for task, benchmark in benchmarks.items()]


def one_line(previous: Any, model_args: Mapping[str, Any]) -> Any:
    """Return an exception hook that prints a `UserError` as one line with status 2, and passes others to `previous`.

    Fields of a pair are named as in `model_args`.
    """

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not isinstance(error, UserError):
            return previous(kind, error, trace)
        sentence = str(error)
        for field, option in OPTIONS.items():
            if option in model_args:
                sentence = re.sub(rf"(?<![-.\w]){field}(?==)", option, sentence)
        print(f"rlvr_dir: {sentence}", file=sys.stderr)
        raise SystemExit(2)  # Python ends with the status that its hook raises

    return hook
