"""A criterion of one's own, as docs/decoding.md has it: on both engines, in specs and hashes; and mistakes in it."""

import pickle
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rlvr_dir.config import Decoding, Sampling, load_eval, parse, parse_decoding
from rlvr_dir.errors import UserError
from rlvr_dir.lm_eval_model.args import parse_model_args
from rlvr_dir.policy.gates import OWN, GateError
from rlvr_dir.policy.own import VARIABLE, NotLoaded, load_named
from rlvr_dir.policy.rule import Rule
from tests.facts import refuses
from tests.policy.rules import decided, logits, requests

DOCS = Path(__file__).parents[2] / "docs" / "decoding.md"
EXAMPLE = re.search(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)[1]


def forget(monkeypatch):
    """Begin a process anew, as far as criteria are concerned."""
    OWN.clear()
    monkeypatch.setenv(VARIABLE, "")
    sys.modules.pop("margin", None)


@pytest.fixture
def margin(tmp_path, monkeypatch):
    """A module that Python finds, here and in the processes that are started."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.chdir(tmp_path)
    forget(monkeypatch)
    (tmp_path / "margin.py").write_text(EXAMPLE)
    yield tmp_path / "margin.py"
    forget(monkeypatch)


def asked(text):
    """A decoding as a command reads it."""
    return load_eval({}, {"decodings": [text], "tasks": "tiny_easy"}).decodings[0]


def test_it_is_a_criterion_like_any_other(margin):
    decoding = asked("replace,criterion=margin:Margin,tau=0.5,places=2")
    assert (decoding.label(), decoding.caption) == (
        "replace τ0.5 margin/2", "margin of RL's most likely token (places 2)",
    )  # fmt: skip
    assert parse(Decoding, decoding.model_dump()) == decoding
    assert Rule.of_plain(Rule(decoding.gate).plain()).gate == decoding.gate
    assert pickle.loads(pickle.dumps(decoding)) == decoding
    assert load_eval({}, {"mode": "replace", "criterion": "margin:Margin", "tau": 1, "tasks": "tiny_easy"})
    flat = {"mode": "replace", "criterion": "margin:Margin", "tau": 0.5, "places": 2}
    assert parse_model_args(flat).decoding == load_eval({}, flat).decodings[0] == decoding
    base, rl = logits(50, 20)
    got = decided(base, rl, Rule(decoding.gate), requests(50))
    best = rl.log_softmax(1).topk(3).values
    assert got.replaced.equal(best[:, 0] - best[:, 2] < 0.5)
    assert 3 < got.replaced.sum() < 47


def test_its_source_is_part_of_the_hash(margin, monkeypatch):
    first = asked("replace,criterion=margin:Margin,tau=0.5").hash()
    forget(monkeypatch)
    margin.write_text(EXAMPLE.replace("best[:, 0] - best[:, -1]", "best[:, 0] - 2 * best[:, -1]"))
    assert asked("replace,criterion=margin:Margin,tau=0.5").hash() != first


def test_what_a_record_names_is_not_imported(margin, monkeypatch):
    told = asked("replace,criterion=margin:Margin,tau=0.5,places=2").model_dump()
    forget(monkeypatch)
    margin.write_text("raise SystemExit('imported')")
    read = parse(Decoding, told)
    assert isinstance(read.gate, NotLoaded)
    assert (read.label(), read.model_dump()) == ("replace τ0.5 margin/2", told)
    with refuses("criterion", "margin:Margin"):
        parse_decoding("replace,criterion=margin:Margin,tau=0.5")  # as a request to a server has it
    with refuses("criterion", "margin:Margin", kind=GateError):
        Rule.of_plain({**Rule().plain(), "gate": told})


@pytest.mark.parametrize(
    "told",
    [
        {"criterion": "x:A\x1b[31m"},
        {"criterion": "<script>:A"},
        {"criterion": "x" * 300 + ":A"},
        {"source": "<b>"},
        {"places": "<img src=x>"},
        {"<b>": 1},
        {"places": "1" * 500},
    ],
)
def test_what_a_strangers_record_tells_of_one_is_words_alone(told):
    plain = {"mode": "replace", "criterion": "x:A", "source": "0" * 16, "tau": 0.5, "places": [1, 2]}
    assert parse(Decoding, plain).model_dump().items() >= plain.items()
    with pytest.raises(UserError):
        parse(Decoding, {**plain, **told})


@pytest.mark.parametrize(
    ("source", "criterion", "words"),
    [
        ("", "no_such_module_here:Margin", "PYTHONPATH"),
        ("x = (", "margin:Margin", "SyntaxError margin.py line 1"),
        ("x = 1\nx.y", "margin:Margin", "AttributeError margin.py 2"),
        (EXAMPLE, "margin:Marge", "Threshold Margin"),
        ("Margin = 3", "margin:Margin", "margin:Margin"),
        (EXAMPLE.partition("    def value")[0], "margin:Margin", "value(step)"),
    ],
)
def test_what_cannot_be_imported_is_said_in_a_sentence(margin, source, criterion, words):
    margin.write_text(source)
    with refuses("criterion", criterion, *words.split()):
        load_eval({}, {"mode": "replace", "criterion": criterion, "tau": 1, "tasks": "tiny_easy"})


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("step.lr", "1"),
        ("step.token / 0 + nothing", "NameError nothing margin.py 15"),
    ],
)
def test_a_mistake_in_it_is_one_sentence_with_its_line(margin, value, words, transformers_engine):
    margin.write_text(EXAMPLE.replace("return best[:, 0] - best[:, -1]", f"return {value}"))
    from rlvr_dir.decode import Request

    request = Request("1 + 1 =", "p", 0, asked("replace,criterion=margin:Margin,tau=0.5"), Sampling(max_tokens=4))
    with refuses("criterion", "margin:Margin", *words.split()):
        list(transformers_engine.generate([request]))


@pytest.mark.vllm
def test_both_engines_give_the_same_tokens(margin, transformers_engine, tmp_path):
    """vLLM's in a process of its own; the command's engine is opened after the criterion is imported."""
    pytest.importorskip("vllm", reason="vLLM is not installed")
    from rlvr_dir.decode import open_engine
    from tests.conftest import vllm_spec
    from tests.decode.requests import assert_same, make_requests

    decoding = asked("replace,criterion=margin:Margin,tau=1.5")
    wanted = [replace(each, decoding=decoding) for each in make_requests(6, samples=2, max_tokens=24)]
    theirs = list(transformers_engine.generate(wanted))
    with open_engine(transformers_engine.pair, vllm_spec()) as engine:
        assert_same(engine.generate(wanted), theirs)
    assert any(each.n_replaced for each in theirs)


@pytest.mark.parametrize(
    "given",
    [
        {"decodings": ["rl", "replace,criterion=margin:Margin,tau=1"]},
        {"decode": {"criterion": "margin:Margin"}},
        {"parameters": {"decode.criterion": {"values": ["kl", "margin:Margin", "margin:Margin above"]}}},
    ],
)
def test_names_are_found_wherever_a_person_writes_them(margin, given):
    load_named(given)
    assert "margin:Margin" in OWN


SWEEP = """
name: margin
tasks: [tiny_easy]
limit: 2
sampling: {samples: 1, max_tokens: 40}
decode: {criterion: "margin:Margin", tau: 1e0}
parameters: {decode.places: {values: [1, 2]}}
engine: {backend: transformers}
"""


def test_a_sweep_varies_its_parameters_and_decodes_anew_where_its_file_has_changed(margin, tmp_path, monkeypatch):
    from rlvr_dir.cli.sweep import read
    from rlvr_dir.sweep.folder import SweepFolder
    from rlvr_dir.sweep.outcome import Places
    from rlvr_dir.sweep.run import run_sweep

    (tmp_path / "margin.yaml").write_text(SWEEP)

    def run():
        spec = read("margin.yaml", [])
        run_sweep(spec, Places.under(tmp_path, records=None, track=False), say=said.append)
        return spec

    said = []
    spec = run()
    assert [spec.decoding(point).label() for point in spec.covering_points()] == [
        "replace τ1 margin/1",
        "replace τ1 margin/2",
    ]
    summary = (tmp_path / "sweeps/margin/summary.md").read_text()
    assert {"margin/1", "margin/2"} <= set(summary.split())
    said.clear()
    run()
    assert not any(line.startswith("trial ") for line in said)
    forget(monkeypatch)
    with pytest.raises(UserError) as caught:
        SweepFolder.of(spec, tmp_path).stored()
    assert caught.value.value == str(tmp_path / "sweeps/margin")
    margin.write_text(EXAMPLE.replace("best[:, -1]", "best[:, -1] + 0.1"))
    run()
    assert sum(line.startswith("trial ") for line in said) == 2


def test_a_sweep_goes_on_without_the_point_whose_criterion_fails(margin, tmp_path):
    """Asked for together in one stream, they fail together; apart, only the one does, and its own control."""
    from rlvr_dir.cli.sweep import read
    from rlvr_dir.sweep.outcome import Places
    from rlvr_dir.sweep.run import open_sweep, run_sweep

    (tmp_path / "margin.yaml").write_text(SWEEP.replace("[1, 2]", "[100000, 1]"))
    spec, places = read("margin.yaml", []), Places.under(tmp_path, track=False)
    summary = run_sweep(spec, places, say=lambda text: None, progress=False)
    assert [entry.label for entry in summary.entries] == [
        "base",
        "rl",
        "reject τ1 margin/1",
        "veto τ1 margin/1",
        "replace τ1 margin/1",
    ]
    assert (summary.states, summary.failed) == ({"complete": 1, "failed": 1}, 3)
    failed = open_sweep(spec, places).folder.read_failures()
    assert [(failure.number, bool(failure.reference)) for failure in failed] == [(2, True), (3, True), (0, False)]
    assert all("margin:Margin" in failure.reason for failure in failed)
    again = run_sweep(spec, places, say=lambda text: None, progress=False)
    assert (again.states, again.failed) == (summary.states, summary.failed), "what fails again is no end of the rest"
