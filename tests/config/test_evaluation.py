"""An evaluation as data: from a file, from options over it, under one hash."""

import pytest

from rlvr_dir import grading
from rlvr_dir.config import (
    TINY,
    Decoding,
    EngineSpec,
    EvalSpec,
    Sampling,
    load_eval,
    parse,
    parse_decoding,
    preset,
    read_yaml,
)
from rlvr_dir.config.presentation import DEFAULT_GRADER, Grader
from rlvr_dir.grading import GRADERS
from rlvr_dir.sweep.specs import load
from tests.facts import refuses

FILE = """
tasks: [tiny_easy, tiny_medium]
decodings:
- rl
- replace,tau=-0.3
- {mode: extrapolate, tau: -0.3, gamma: 0.1}
sampling: {samples: 8}
engine: {backend: transformers}
limit: 40
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "spec.yaml"
    path.write_text(FILE)
    return path


def test_a_file_is_the_whole_evaluation(file):
    spec = load_eval(read_yaml(file))
    assert spec == EvalSpec(
        tasks=("tiny_easy", "tiny_medium"),
        decodings=(Decoding(), Decoding(mode="replace", tau=-0.3), Decoding(mode="extrapolate", tau=-0.3, gamma=0.1)),
        sampling=Sampling(samples=8),
        engine={"backend": "transformers"},
        limit=40,
    )
    assert spec.pair == TINY
    assert parse(EvalSpec, spec.model_dump()) == spec
    assert parse(EvalSpec, spec.model_dump(mode="json")).hash() == spec.hash()


def test_options_win_over_the_file(file):
    options = {"limit": 3, "max_tokens": 60, "tasks": "tiny_hard", "pair": "dapo-32b", "dtype": "float32", "seed": None}
    spec = load_eval(read_yaml(file, ["sampling.temperature=0.5"]), options)
    assert (spec.limit, spec.tasks, spec.pair) == (3, ("tiny_hard",), preset("dapo-32b"))
    assert (spec.sampling.samples, spec.sampling.max_tokens, spec.sampling.temperature) == (8, 60, 0.5)
    assert (spec.engine.backend, spec.engine.dtype) == ("transformers", "float32")
    assert load_eval(read_yaml(file), {"decodings": ["base"]}).decodings == (Decoding(mode="base"),)


def test_an_option_of_the_decoding_changes_the_only_one():
    one = {"decodings": "extrapolate,tau=-0.3,gamma=0.1"}
    [changed] = load_eval(one, {"tau": -0.1}).decodings
    assert changed == Decoding(mode="extrapolate", tau=-0.1, gamma=0.1)
    assert load_eval(one, {"mode": "rl"}).decodings == (Decoding(mode="rl"),)
    with refuses("tau", "-0.1"):
        load_eval({"decodings": ["rl", "base"]}, {"tau": -0.1})


def test_controls_are_a_short_way_of_writing_more_decodings():
    extra = Decoding(mode="extrapolate", tau=-0.3, gamma=0.1)
    spec = load_eval({"decodings": [extra.model_dump()], "controls": True})
    controls = [Decoding(mode=mode, tau=-0.3) for mode in ("veto", "reject", "replace")]
    assert spec.decodings == (Decoding(mode="base"), Decoding(mode="rl"), *controls, extra)
    assert spec.hash() == load_eval({"decodings": ["base", "rl", *controls, extra]}).hash()
    for plain in (
        "resample,tau=-0.3",
        "veto,tau=-0.3",
        "replace,criterion=coupling",
        "extrapolate,criterion=always,gamma=-1",
    ):
        found = load_eval({"decodings": plain, "controls": True}).decodings
        assert [each.label() for each in found] == ["base", "rl", parse_decoding(plain).label()]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"taks": "amc"}, "taks evaluation tasks"),
        ({"sampling": {"sample": 3}}, "sample sampling samples"),
        ({"samples": 3}, "samples evaluation sampling.samples"),
        ({"sampling": 3}, "sampling 3"),
        ({"sampling": {"top_p": 3}}, "sampling.top_p 3"),
        ({"engine": {"dtype": "bf16"}}, "engine.dtype bf16 bfloat16"),
        ({"decodings": [{"mod": "rl"}]}, "mod decodings.0 mode"),
        ({"decodings": ["rl", {"mode": "replace"}]}, "tau mode replace"),
        ({"decodings": ["rl", "rl"]}, "decodings rl"),
        ({"decodings": []}, "decodings"),
        ({"pair": "dapo32b"}, "pair dapo32b dapo-32b"),
        ({"pair": {"base": "x"}}, "base pretrained pair"),
        ({"pair": {"bsae": "x", "rl": "y"}}, "bsae pair base"),
        ({"grader": "robst"}, "grader robst robust"),
        ({"limit": 0}, "limit 0"),
        ({"tasks": [1]}, "tasks.0 1"),
    ],
)
def test_a_mistake_is_one_sentence_with_the_nearest_name(data, message):
    with refuses(*message.split()):
        load_eval(data)


def test_files_that_are_none_are_refused(tmp_path):
    (tmp_path / "bad.yaml").write_text("a: [")
    (tmp_path / "list.yaml").write_text("[1]")
    for given, words in (
        ((tmp_path / "none.yaml",), "file"),
        ((tmp_path / "bad.yaml",), "YAML"),
        ((tmp_path / "list.yaml",), "mapping"),
        ((None, ["limit"]), "set KEY VALUE"),
        ((None, ["sampling 3", "sampling.samples=4"]), "set sampling.samples"),
    ):
        with refuses(*words.split()):
            read_yaml(*given)


def test_names_agree_with_the_rooms_that_know_them():
    from typing import get_args

    assert set(get_args(Grader)) == set(GRADERS)
    assert DEFAULT_GRADER == grading.DEFAULT_GRADER


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("tasks: [a]\nlimit: 1\ntasks: [b]", "tasks"),
        ("sampling: {samples: 8, top_p: 0.7, samples: 1}", "samples"),
        ("a: [{x: 1}, {1: 2, 1: 3}]", "1"),
    ],
)
def test_a_key_that_is_there_twice_is_refused(tmp_path, text, key):
    (tmp_path / "twice.yaml").write_text(text)
    with refuses("twice.yaml", "YAML", key):
        read_yaml(tmp_path / "twice.yaml")


def test_keys_may_be_merged_and_stand_in_several_mappings(tmp_path):
    (tmp_path / "merged.yaml").write_text("a: &a {x: 1, y: 2}\nb: {<<: *a, x: 3}\nc: {<<: [*a, *a], z: 4}\n")
    assert read_yaml(tmp_path / "merged.yaml") == {
        "a": {"x": 1, "y": 2}, "b": {"x": 3, "y": 2}, "c": {"x": 1, "y": 2, "z": 4},
    }  # fmt: skip


def test_an_option_takes_the_place_of_the_files():
    for file in ({}, {"sampling": {"top_p": 0.9, "samples": 2}}):
        sampling = load_eval(file, {"top_p": 0.3}).sampling
        assert (sampling.top_p, sampling.samples) == (0.3, 2 if file else 32)


@pytest.mark.parametrize(
    ("read", "words"),
    [
        (lambda: parse(EvalSpec, read_yaml(None, ["limit=yes", "tasks=[tiny_easy]"])), "limit True"),
        (lambda: parse(Sampling, {"samples": True}), "samples True"),
        (lambda: parse(Sampling, {"temperature": False}), "temperature False"),
        (lambda: parse(EngineSpec, {"max_num_seqs": True}), "max_num_seqs True"),
        (lambda: parse(Decoding, {"mode": "replace", "tau": True}), "tau True"),
        (lambda: load_sweep({"values": [True]}), "parameters.decode.tau.values [True]"),
        (lambda: load_sweep({"min": False, "max": 1.0}), "parameters.decode.tau.min False"),
    ],
)
def test_a_truth_value_is_no_number(read, words):
    """YAML takes `yes` for true, and pydantic true for 1."""
    with refuses(*words.split()):
        read()


def test_truth_values_stay_where_they_are_meant():
    assert parse(EngineSpec, {"enforce_eager": "yes"}).enforce_eager is True
    assert parse(EngineSpec, {"enforce_eager": True}).enforce_eager is True


def load_sweep(tau):
    return load({"name": "x", "tasks": ["tiny_easy"], "parameters": {"decode.tau": tau}})
