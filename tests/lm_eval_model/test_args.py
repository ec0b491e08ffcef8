"""Model arguments and generation arguments: parsed, or refused in one sentence."""

import ast
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from rlvr_dir.config import TINY, Sampling
from rlvr_dir.errors import UserError
from rlvr_dir.lm_eval_model.args import ACCEPTED, one_line, parse_model_args, prepare
from rlvr_dir.problems.generation import check_gen_kwargs, sampling_of, with_given
from tests.facts import refuses

HALVES = {"pretrained": "rl-dir", "base": "base-dir"}


def test_everything_the_issue_names():
    args = parse_model_args(
        HALVES | {"mode": "extrapolate", "criterion": "kl", "tau": "0.3", "gamma": 0.05, "seed": "7", "primary": "rl"}
        | {"dtype": "float32", "max_model_len": "512", "enforce_eager": True, "kv_cache_gib": "1.5", "revision": 12}
    )  # fmt: skip
    pair, engine = args.spec.pair, args.spec.engine
    assert (pair.rl, pair.base, pair.rl_revision) == ("rl-dir", "base-dir", "12")
    assert (args.decoding.tau, args.decoding.gamma, args.decoding.primary) == (0.3, 0.05, "rl")
    assert (engine.max_model_len, engine.kv_cache_gib, args.seed) == (512, 1.5, 7)


@pytest.mark.parametrize("given", [{}, {"pair": "tiny"}, {"pretrained": "tiny"}, {"mode": "base"}])
def test_nothing_named_is_the_tiny_pair(given):
    assert parse_model_args(given).spec.pair == TINY


@pytest.mark.parametrize(
    ("given", "changes"),
    [
        ({"batch_size": 1, "device": "cuda:0", "max_batch_size": None}, {}),
        ({"batch_size": "auto"}, {}),
        ({"batch_size": 64}, {"max_num_seqs": 64}),
        ({"batch_size": 64, "max_num_seqs": 8}, {"max_num_seqs": 8}),
        ({"device": "cpu"}, {"device": "cpu"}),
    ],
)
def test_lm_evals_own_options_do_not_get_in_the_way(given, changes):
    assert parse_model_args(given).spec.engine == parse_model_args({}).spec.engine.replace(**changes)


def test_places_are_kept_unless_they_are_off():
    own = parse_model_args({"records": "r", "tracking": "http://h:1"}).own
    assert (own.records, own.tracking) == ("r", "http://h:1")
    for off in ("off", False):
        own = parse_model_args({"records": off, "tracking": off}).own
        assert (own.records, own.tracking) == (None, None)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"taw": -0.3}, "model_args taw tau"),
        ({"max_gen_toks": 9}, "model_args max_gen_toks max_tokens"),
        ({"do_sample": True}, "model_args temperature"),
        ({"top_k": 5}, "model_args top_p"),
        ({"temperature": -1}, "temperature -1"),
        ({"max_tokens": 0}, "max_tokens 0"),
        ({"criterion": "random", "mode": "replace", "tau": 0.1, "temperature": 0}, "criterion random"),
        ({"tokenizer": "x"}, "model_args RL"),
        ({"pretrained": "x"}, "pretrained base pair"),
        ({"base": "x"}, "base pretrained pair"),
        ({"revision": "x"}, "revision pretrained base pair"),
        ({"pair": "dapo"}, "pair dapo dapo-32b"),
        ({"pair": "tiny", "pretrained": "x"}, "pair tiny"),
        ({"mode": "extrapolat", "tau": -1}, "mode extrapolat extrapolate"),
        ({"mode": "replace"}, "tau replace"),
        ({"mode": "replace", "tau": "low"}, "tau low"),
        ({"mode": "replace", "tau": -1, "criterion": "entropy"}, "criterion entropy"),
        ({"seed": -1}, "seed -1"),
        ({"samples": 0}, "samples 0"),
        ({"chat": "on"}, "chat on"),
        ({"trackin": "off"}, "model_args trackin tracking"),
        ({"grader": "robst"}, "grader robst robust"),
        ({"backend": "sglang"}, "backend sglang"),
    ],
)
def test_refusals(given, message):
    with refuses(*message.split()):
        parse_model_args(given)


YAML = {"until": [], "do_sample": True, "temperature": 1.0, "top_p": 0.7, "max_gen_toks": 20000}


def test_generation_arguments_become_the_sampling():
    sampling, stop = sampling_of(YAML, samples=32, seed=3)
    assert (sampling.temperature, sampling.top_p, sampling.max_tokens) == (1.0, 0.7, 20000)
    assert (sampling.samples, sampling.seed, stop) == (32, 3, ())
    sampling, stop = sampling_of(YAML | {"max_new_tokens": 64, "until": "END", "top_p": 1}, samples=1, seed=0)
    assert (sampling.max_tokens, sampling.top_p, stop) == (64, 1.0, ("END",))
    asks_nothing = {"min_p": 0.0, "typical_p": 1.0, "num_beams": 1}
    assert sampling_of(YAML | asks_nothing, samples=32, seed=3) == sampling_of(YAML, samples=32, seed=3)


@pytest.mark.parametrize(
    "given",
    [
        YAML | {"do_sample": False},
        YAML | {"temperature": 0},
        {"do_sample": False, "temperature": 0.0},
        {"do_sample": False, "top_k": 5, "top_p": 0.9, "min_p": 0.1, "num_beams": 1},
        {"until": ["\n"]},  # as in lm-eval's own models, a task that does not say how to draw is greedy
    ],
)
def test_what_is_greedy_in_lm_eval_is_greedy_here(given):
    sampling, _ = sampling_of(given, samples=1, seed=3)
    assert sampling == Sampling(temperature=0, max_tokens=given.get("max_gen_toks", 256))
    with refuses("repeats", "4"):
        sampling_of(given, samples=4, seed=3)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"top_k": 5}, "gen_kwargs top_k 5 top_p"),
        (YAML | {"min_p": 0.1}, "gen_kwargs min_p 0.1 top_p"),
        (YAML | {"typical_p": 0.9}, "gen_kwargs typical_p 0.9 top_p"),
        ({"top_p": 1.5}, "top_p 1.5"),
        ({"max_gen_toks": "many"}, "max_tokens many"),
    ],
)
def test_generation_arguments_are_never_ignored(given, message):
    with refuses(*message.split()):
        sampling_of(YAML | given, samples=1, seed=0)


@pytest.mark.parametrize("module", ["vllm_causallms", "huggingface"])
def test_every_argument_of_lm_evals_own_backends_is_accepted_or_gets_its_counterpart(module):
    """Its source is read, not imported: vLLM need not be installed."""
    source = Path(find_spec("lm_eval").origin).with_name("models") / f"{module}.py"
    classes = [node for node in ast.parse(source.read_text()).body if isinstance(node, ast.ClassDef)]
    [init] = [node for node in classes[0].body if isinstance(node, ast.FunctionDef) and node.name == "__init__"]
    names = {argument.arg for argument in init.args.args} - {"self", "batch_size", "max_batch_size"}
    assert {"pretrained", "tokenizer", "enable_thinking"} < names
    for name in sorted(names - {*ACCEPTED, "enable_thinking", "chat_template_args"}):
        with refuses("model_args", "rlvr_dir", name):
            parse_model_args({name: "x"})


def test_sampling_among_the_model_arguments_takes_the_place_of_a_tasks_own():
    args = parse_model_args({"temperature": "0.6", "max_tokens": 32, "seed": 5})
    assert (args.sampling, args.seed) == ({"temperature": 0.6, "max_tokens": 32}, 5)
    sampling, _ = sampling_of(with_given(YAML, args.sampling), samples=4, seed=args.seed)
    assert sampling == Sampling(samples=4, temperature=0.6, top_p=0.7, max_tokens=32, seed=5)
    greedy = {"until": ["\n"], "do_sample": False}
    sampling, stop = sampling_of(with_given(greedy, args.sampling), samples=1, seed=5)
    assert (sampling.temperature, sampling.max_tokens, stop) == (0.6, 32, ("\n",))
    sampling, _ = sampling_of(with_given(YAML, parse_model_args({"temperature": 0}).sampling), samples=1, seed=0)
    assert (sampling.greedy, sampling.max_tokens) == (True, 20000)
    assert parse_model_args({}).sampling == {}


@pytest.mark.parametrize(
    ("model_args", "gen_kwargs", "clash"),
    [
        ({"max_tokens": 32}, {"max_gen_toks": 64}, "max_tokens 32 max_gen_toks=64"),
        ({"temperature": 0.6}, {"temperature": 1.0}, "temperature 0.6 1.0"),
        ({"temperature": 0}, {"do_sample": True}, "temperature do_sample"),
        ({"top_p": 0.9}, {"top_p": 0.7}, "top_p 0.9 0.7"),
        ({"max_tokens": 32, "temperature": 0.6}, {"max_new_tokens": 32, "temperature": 0.6, "until": "x"}, None),
        ({"max_tokens": 32}, {"temperature": 0.6}, None),
    ],
)
def test_a_contradiction_of_model_arguments_and_gen_kwargs_is_refused(model_args, gen_kwargs, clash):
    given = parse_model_args(model_args).sampling
    if clash is None:
        return check_gen_kwargs(gen_kwargs, given)
    with refuses(*clash.split()):
        check_gen_kwargs(gen_kwargs, given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"pretrained": "x"}, "pretrained='x' is there and baserl='y', pretrained=1"),
        ({"pair": "p"}, "rl='x' is there and baserl='y', pretrained=1"),
    ],
)
def test_the_stock_command_calls_a_checkpoint_as_it_was_typed(given, said, capsys):
    error = UserError("rl='x' is there and baserl='y', pretrained=1")
    with pytest.raises(SystemExit):
        one_line(sys.excepthook, given)(UserError, error, None)
    assert capsys.readouterr().err == f"rlvr_dir: {said}\n"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"limit": 0}, "limit 0"),
        ({"limit": -1}, "limit -1"),
        ({"gen_kwargs": {"n": 4}}, "gen_kwargs n"),
        ({"gen_kwargs": {"top_k": 5}}, "gen_kwargs top_k 5 top_p"),
        ({"gen_kwargs": {"temperature": -1}}, "temperature -1"),
        ({"gen_kwargs": {"max_gen_toks": 0}}, "max_tokens 0"),
        ({"tasks": ["tiny_easy,aime24"], "model_args": {"data_dir": "none"}}, "aime24 none/aime24.jsonl"),
        ({"tasks": ["rlvr_math"], "metadata": {"data_dir": "none"}}, "aime24 none/aime24.jsonl"),
        ({"tasks": ["amc*"], "model_args": {"data_dir": "none"}}, "none/amc.jsonl"),
        ({"gen_kwargs": {"max_gen_toks": 9}, "model_args": {"max_tokens": 8}}, "max_tokens max_gen_toks 9"),
    ],
)
def test_a_request_of_the_stock_command_is_checked_before_a_model_loads(changes, message, monkeypatch):
    from lm_eval.config.evaluate_config import EvaluatorConfig

    monkeypatch.setattr("sys.excepthook", sys.excepthook)
    config = EvaluatorConfig(model="rlvr_dir", **{"tasks": ["tiny_easy"], **changes})
    with refuses(*message.split()):
        prepare(config)
    prepare(EvaluatorConfig(model="rlvr_dir", tasks=["tiny_easy"], limit=0.5, gen_kwargs={"temperature": 0.6}))


@pytest.mark.parametrize(
    ("tasks", "asked"),
    [
        (["tiny_easy", "minerva"], False),
        (["rlvr_math"], False),  # a group of ours, of our tasks
        (["theirs"], False),
        ([], False),  # benchmarks that are files alone
        (["tiny_easy", "gsm8k"], True),
        (["tiny_*"], True),  # lm-eval has tinyBenchmarks
        (["of_gsm8k"], True),  # a group in the user's folder may name tasks of lm-eval's
        ([{"task": "gsm8k", "num_fewshot": 0}], True),
    ],
)
def test_lm_evals_own_tasks_are_read_where_one_may_be_asked_for(tasks, asked, tmp_path, data_dir):
    from lm_eval.config.evaluate_config import EvaluatorConfig

    (tmp_path / "theirs.yaml").write_text("task: theirs\ndataset_path: json\noutput_type: generate_until\n")
    (tmp_path / "group.yaml").write_text("group: of_gsm8k\ntask: [gsm8k]\n")
    config = EvaluatorConfig(
        model="rlvr_dir", tasks=tasks or ["tiny_easy"], include_path=str(tmp_path), model_args={"data_dir": data_dir}
    )
    config.tasks = tasks
    assert prepare(config) == ([], asked)
