"""What a sweep file may say, and the sentence for what it may not."""

from pathlib import Path

import pytest
import yaml

from rlvr_dir.config import Pair, Sampling, parse, read_yaml
from rlvr_dir.config.sweep import SweepSpec
from rlvr_dir.errors import UserError
from rlvr_dir.sweep import sweeps_dir
from rlvr_dir.sweep.entries import decoding_of, entries_of
from rlvr_dir.sweep.folder import SweepFolder
from rlvr_dir.sweep.points import key, listed_points
from rlvr_dir.sweep.specs import load
from tests.sweep.made import sweep

TAU = {"decode.tau": {"values": [-0.3, -0.1]}}


@pytest.mark.parametrize(
    ("changes", "argument", "suggested"),
    [
        ({"taks": ["x"]}, None, "tasks"),
        ({"sampling": {"sample": 4}}, None, "samples"),
        ({"engine": {"max_num_seq": 4}}, None, "max_num_seqs"),
        ({"decode": {"criterium": "kl"}}, "decode", "criterion"),
        ({"parameters": {}}, "parameters", ""),
        ({"parameters": {"decode.tua": {"values": [1]}}}, "parameters", "decode.tau"),
        ({"parameters": {"decode.tau": {"value": [1]}}}, "parameters.decode.tau", "values"),
        ({"parameters": {"decode.tau": {"values": [-1], "min": -2, "max": 0}}}, "parameters.decode.tau", ""),
        ({"parameters": {"decode.tau": {"values": [-1], "ratio": [0.1]}}}, "parameters.decode.tau", ""),
        ({"parameters": {"decode.tau": [-1]}}, "parameters.decode.tau", ""),
        ({"parameters": {"decode.tau": {"min": -2}}}, None, ""),
        ({"parameters": {"decode.tau": {"min": -2, "max": -1, "log": True}}}, None, ""),
        ({"parameters": {"decode.tau": {"min": -2, "max": -1}}}, "parameters.decode.tau", ""),
        ({"parameters": {"decode.tau": {"values": [-1, -1.0]}}}, None, ""),
        ({"parameters": {"decode.tau": {"values": ["low"]}}}, None, ""),
        ({"parameters": {"decode.tau": {"ratio": [0.1, 2]}}}, None, ""),
        ({"parameters": {**TAU, "decode.criterion": {"values": ["logp", "kl"]}}}, None, ""),
        ({"parameters": {**TAU, "decode.gamma": {"ratio": [0.1]}}}, "parameters.decode.gamma", ""),
        (
            {"parameters": {"decode.tau": {"ratio": [0.1]}, "decode.primary": {"values": ["base", "rl"]}}},
            "decode.primary", "",
        ),
        ({"parameters": {"decode.tau": {"ratio": [0.1]}}, "decode": {"window": "8:"}}, "decode.window", ""),
        ({"parameters": TAU, "decode": {"tau": -0.3}}, "decode.tau", ""),
        ({"parameters": {"decode.gamma": {"values": [0.1]}}}, None, ""),
        ({"method": "grdi"}, None, "grid"),
        ({"method": "tpe"}, "run_cap", ""),
        ({"method": "tpe", "run_cap": 2, "pair": {"rl": ["tiny@4", "tiny@8"]}}, "method", ""),
        ({"metric": "avg_at_32"}, "metric", "avg_at_2"),
        ({"metric": "pass_at_3"}, "metric", ""),
        ({"metric": ["avg_at_2", "mean_tokens"]}, None, ""),
        ({"metric": {"name": "avg_at_2", "goal": "max"}}, None, ""),
        ({"pair": "dapo32b"}, None, "dapo-32b"),
        ({"pair": ["tiny", "tiny"]}, "pair", ""),
        ({"references": "rl"}, "references", ""),
        ({"controls": ["replaced"]}, None, ""),
        ({"samplings": [{"tempature": 0}]}, None, "temperature"),
        ({"samplings": [{"top_p": 2}]}, None, ""),
        ({"samplings": [{"temperature": 0, "samples": 2}]}, None, ""),
        ({"samplings": [{"temperature": 0, "decodings": "replace,criterion=random,tau=0.1"}]}, None, ""),
        ({"name": "a/b"}, "name", ""),
        ({"tasks": []}, "tasks", ""),
        ({"storage": "journal"}, None, ""),
    ],
    ids=lambda value: str(value)[:60] if isinstance(value, dict) else "",
)  # fmt: skip
def test_a_mistake_names_its_argument(changes, argument, suggested):
    with pytest.raises(UserError) as caught:
        sweep(**changes)
    assert argument in (None, caught.value.argument)
    assert suggested in str(caught.value)  # the spelling of a key, and no sentence


def test_a_pairs_folder_is_a_pair(tmp_path):
    with pytest.raises(UserError):
        sweep(pair=str(tmp_path))
    for role in ("base", "rl"):
        (tmp_path / role).mkdir()
    for given, called in (
        (str(tmp_path), tmp_path.name),
        (f"mine={tmp_path}", "mine"),
        ({"base": str(tmp_path / "base"), "rl": str(tmp_path / "rl")}, tmp_path.name),
        ({"name": "mine", "base": "org/base", "rl": str(tmp_path / "rl")}, "mine"),
        ({"base": "org/base", "rl": "org/RL-7B"}, "RL-7B"),
    ):
        spec = sweep(pair=given)
        [(name, pair)] = spec.pairs.items()
        assert (name, type(pair), Path(pair.rl).name[:2].lower()) == (called, Pair, "rl")
        assert load(yaml.safe_load(yaml.safe_dump(spec.plain()))) == spec
    with pytest.raises(UserError) as caught:
        sweep(pair="mine=tiny")
    assert (caught.value.argument, caught.value.accepted) == ("pair", "tiny")


def test_a_pair_keeps_the_name_that_its_sweep_was_begun_with(tmp_path):
    pair, folder = {"base": "org/base", "rl": "org/RL-7B"}, SweepFolder(tmp_path)
    assert list(folder.create_or_verify(sweep(pair=pair), print).pairs) == ["RL-7B"]
    assert list(folder.create_or_verify(sweep(pair={**pair, "name": "mine"}), print).pairs) == ["RL-7B"]


def test_text_numbers_are_numbers():
    assert sweep(parameters={"decode.tau": {"values": ["-1e-1"]}}).parameters["decode.tau"].values == (-0.1,)


def decodings(spec):
    return [decoding_of(spec, point, {}) for point in listed_points(spec)]


def references(spec):
    return [entry.item for entry in entries_of(spec, listed_points(spec), {"tiny": {}}) if entry.point is None]


def listed(**changes):
    spec = sweep(**changes)
    return [(each.number, each.item[0].label()) for each in entries_of(spec, listed_points(spec), {"tiny": {}})]


def test_every_point_comes_before_its_controls():
    assert listed() == [
        (0, "base"), (1, "rl"),
        (1, "extrapolate τ-0.3 γ0.1"), (0, "replace τ-0.3"), (3, "reject τ-0.3"), (2, "veto τ-0.3"),
        (3, "extrapolate τ-0.1 γ0.1"), (2, "replace τ-0.1"), (5, "reject τ-0.1"), (4, "veto τ-0.1"),
    ]  # fmt: skip
    assert [label for _, label in listed(parameters=TAU)] == [
        "base", "rl", "replace τ-0.3", "reject τ-0.3", "veto τ-0.3", "replace τ-0.1", "reject τ-0.1", "veto τ-0.1",
    ]  # fmt: skip


def test_a_sweep_has_the_controls_that_it_asks_for():
    """Every list is the whole one without some of its controls; what is a point anyway stays."""
    whole = [label for _, label in listed()]
    for controls in (False, [], "reject", ["reject"], ["veto", "replace"], True):
        names = [controls] if isinstance(controls, str) else controls
        left_out = {True: (), False: ("reject", "veto")}.get(names) if isinstance(names, bool) else None
        left_out = {"reject", "veto"} - set(names) if left_out is None else left_out
        kept = [label for label in whole if not label.startswith(tuple(left_out))]
        assert [label for _, label in listed(controls=controls)] == kept
    only = {"parameters": {"decode.tau": {"values": [-0.3]}}, "decode": {"gamma": 0.1}}
    for controls, labels in (
        (["reject"], ["reject τ-0.3"]),
        (["replace"], ["replace τ-0.3"]),
        (True, ["replace τ-0.3", "reject τ-0.3", "veto τ-0.3"]),
    ):
        found = [label for _, label in listed(controls=controls, **only)]
        assert found == ["base", "rl", "extrapolate τ-0.3 γ0.1", *labels]


def test_a_grid_is_every_combination_and_gamma_0_is_plain_replacement():
    spec = sweep()
    points = listed_points(spec)
    assert spec.size() == "2 values of tau × 2 values of gamma = 4 points"
    assert len({key(point) for point in points}) == len(points) == 4
    labels = [spec.decoding(point).label() for point in points]
    assert labels == ["replace τ-0.3", "extrapolate τ-0.3 γ0.1", "replace τ-0.1", "extrapolate τ-0.1 γ0.1"]
    wanted = [decoding.mode for decoding, _ in references(spec)]
    assert wanted == ["base", "rl", *["reject", "veto"] * 2]  # the gamma = 0 controls are points of the grid


def test_other_samplings_are_references_of_their_own():
    others = [{"temperature": 0, "decodings": ["rl", "base"]}, {"top_p": 0.3}, {"temperature": 1.0}]
    spec = sweep(parameters=TAU, samplings=others, sampling={"samples": 4, "top_p": 0.9, "seed": 7})
    plain = [what for what in references(spec) if what[1] == spec.sampling]
    assert [what[0] for what in plain] == [what[0] for what in references(sweep(parameters=TAU))]
    drawn = [what for what in references(spec) if what[1] != spec.sampling]
    said = [(decoding.mode, sampling.difference_from(spec.sampling), sampling) for decoding, sampling in drawn]
    assert said == [
        ("rl", "greedy", Sampling(temperature=0)),
        ("base", "greedy", Sampling(temperature=0)),
        ("rl", "top-p 0.3", Sampling(samples=4, top_p=0.3, seed=7)),
    ]  # the third is the sweep's own


def test_controls_are_added_where_the_grid_has_none():
    spec = sweep(decode={"primary": "rl", "gamma": 0.1}, parameters=TAU)
    found = [decoding for decoding, _ in references(spec)]
    assert [(r.mode, r.primary, r.tau) for r in found] == [
        ("base", "base", None),
        ("rl", "rl", None),
        ("replace", "rl", -0.3),
        ("veto", "rl", -0.3),
        ("replace", "rl", -0.1),
        ("veto", "rl", -0.1),
    ]


def test_a_longer_draw_begins_with_the_shorter_one():
    ranges = {"decode.tau": {"min": -2, "max": -0.1}, "decode.gamma": {"min": 0.01, "max": 1, "log": True}}
    short, long = (listed_points(sweep(method="random", run_cap=n, parameters=ranges)) for n in (5, 9))
    assert long[:5] == short
    assert len({key(point) for point in long}) == 9
    assert all(-2 <= point["decode.tau"] <= -0.1 and 0.01 <= point["decode.gamma"] <= 1 for point in long)


def test_the_size_of_a_sweep_is_the_number_of_its_points():
    pairs = [{"base": "org/base", "rl": f"org/{name}"} for name in ("one", "other")]
    for changes, size, points in (
        ({"run_cap": 3}, "2 values of tau × 2 values of gamma = 4 points, the first 3 of them", 3),
        (
            {"run_cap": 3, "pair": pairs},
            "2 pairs × 2 values of tau × 2 values of gamma = 8 points, the first 3 of each pair",
            6,
        ),
        ({"run_cap": 5, "pair": pairs}, "2 pairs × 2 values of tau × 2 values of gamma = 8 points", 8),
        ({"run_cap": 3, "pair": pairs, "method": "random"}, "3 points by random on each of 2 pairs", 6),
    ):
        spec = sweep(**changes)
        assert (spec.size(), len(listed_points(spec))) == (size, points)


def test_a_small_space_runs_out_of_new_points():
    assert len(listed_points(sweep(method="random", run_cap=20))) == 4


@pytest.mark.parametrize("path", sorted(sweeps_dir().glob("*.yaml")), ids=lambda path: path.stem)
def test_shipped_sweeps_are_valid_and_read_back_as_they_were(path):
    spec = load(yaml.safe_load(path.read_text()))
    assert spec.name == path.stem
    assert load(yaml.safe_load(yaml.safe_dump(spec.plain()))) == spec
    assert spec.size()
    for point in listed_points(spec) if spec.kind == "decode" else ():
        spec.decoding(point, 0.5 if "decode.tau.ratio" in point else None)


def test_the_papers_grids_ship_as_printed():
    grids = {"dapo32b": [-0.5, -0.4, -0.3, -0.2, -0.1], "unireason14b": [-0.5, -0.45, -0.4, -0.35, -0.3]}
    for name, taus in grids.items():
        spec = parse(SweepSpec, read_yaml(sweeps_dir() / f"{name}_tau_gamma.yaml"))
        assert list(spec.parameters["decode.tau"].values) == taus
        assert list(spec.parameters["decode.gamma"].values) == [0.0, 0.05, 0.1]
        assert spec.sampling.samples == 32
