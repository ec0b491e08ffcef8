"""What a sweep file may say, and the sentence for what it may not."""

from pathlib import Path

import pytest
import yaml

from rlvr_dir.config import Pair, Sampling, parse, read_yaml
from rlvr_dir.config.sweep import SweepSpec
from rlvr_dir.errors import UserError
from rlvr_dir.sweep import decoding, sweeps_dir
from rlvr_dir.sweep.decodings import decoding_of, references, sampling_of
from rlvr_dir.sweep.folder import SweepFolder
from rlvr_dir.sweep.outcome import Places
from rlvr_dir.sweep.points import key, listed_points
from rlvr_dir.sweep.specs import load
from rlvr_dir.sweep.sweep import open_sweep
from tests.sweep.made import sweep

TAU = {"decode.tau": {"values": [-0.3, -0.1]}}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"taks": ["x"]}, "key of sweep='taks'"),
        ({"taks": ["x"]}, "did you mean 'tasks'?"),
        ({"sampling": {"sample": 4}}, "did you mean 'samples'?"),
        ({"engine": {"max_num_seq": 4}}, "did you mean 'max_num_seqs'?"),
        ({"decode": {"criterium": "kl"}}, "did you mean 'criterion'?"),
        ({"parameters": {"decode.tua": {"values": [1]}}}, "did you mean 'decode.tau'?"),
        ({"parameters": {"decode.tau": {"value": [1]}}}, "did you mean 'values'?"),
        ({"parameters": {"decode.tau": {"values": [-1], "min": -2, "max": 0}}}, "needs one of: values, min and max"),
        ({"parameters": {"decode.tau": {"values": [-1], "ratio": [0.1]}}}, "needs one of: values, min and max, ratio"),
        ({"parameters": {"decode.tau": {"min": -2}}}, "decode.tau.max is missing"),
        ({"parameters": {"decode.tau": {"min": -2, "max": -1, "log": True}}}, "with log min above 0"),
        ({"parameters": {"decode.tau": {"min": -2, "max": -1}}}, "method=grid"),
        ({"parameters": {"decode.tau": {"values": [-1, -1.0]}}}, "names a value twice"),
        (
            {"parameters": {"decode.tau": {"values": ["low"]}}},
            "values.0='low'",
        ),
        ({"parameters": {"decode.tau": {"ratio": [0.1, 2]}}}, "ratio.1=2"),
        ({"parameters": {**TAU, "decode.criterion": {"values": ["logp", "kl"]}}}, "'logp' is not known"),
        (
            {"parameters": {**TAU, "decode.gamma": {"ratio": [0.1]}}},
            "gamma='ratio'",
        ),
        (
            {"parameters": {"decode.tau": {"ratio": [0.1]}, "decode.primary": {"values": ["base", "rl"]}}},
            "decode.primary is varied with a ratio of decode.tau",
        ),
        ({"parameters": TAU, "decode": {"tau": -0.3}}, "both fixed (decode) and varied"),
        ({"parameters": {"decode.gamma": {"values": [0.1]}}}, "tau is missing"),
        ({"method": "grdi"}, "did you mean 'grid'?"),
        ({"method": "tpe"}, "run_cap is missing"),
        ({"metric": "avg_at_32"}, "did you mean 'avg_at_2'?"),
        ({"metric": "pass_at_3"}, "metric='pass_at_3'"),
        ({"metric": ["avg_at_2", "mean_tokens"]}, "metric="),
        ({"metric": {"name": "avg_at_2", "goal": "max"}}, "accepted: maximize, minimize"),
        ({"pair": "dapo32b"}, "did you mean 'dapo-32b'?"),
        ({"pair": ["tiny", "tiny"]}, "has one name twice"),
        ({"storage": "mysql://x"}, "storage='mysql://x'"),
        ({"storage": "sqlite:///x.db", "workers": {"count": 2}}, "storage=sqlite"),
        ({"samplings": [{"tempature": 0}]}, "did you mean 'temperature'?"),
        ({"samplings": [{"top_p": 2}]}, "samplings.top_p=2 is refused"),
        ({"samplings": [{"temperature": 0, "samples": 2}]}, "samples=2"),
        ({"samplings": [{"temperature": 0, "decodings": "replace,criterion=random,tau=0.1"}]}, "criterion='random'"),
        ({"name": "a/b"}, "it names a folder"),
        ({"tasks": []}, "has no tasks"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_mistake_is_one_sentence(changes, words):
    with pytest.raises(UserError) as caught:
        sweep(**changes)
    assert words in str(caught.value)


def test_a_pairs_folder_is_a_pair(tmp_path):
    with pytest.raises(UserError, match=r"has no folder base, and no pair\.json"):
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
    with pytest.raises(UserError, match="pair='mine=tiny'"):
        sweep(pair="mine=tiny")


def test_a_pair_keeps_the_name_that_its_sweep_was_begun_with(tmp_path):
    pair, folder = {"base": "org/base", "rl": "org/RL-7B"}, SweepFolder(tmp_path)
    assert list(folder.create_or_verify(sweep(pair=pair)).pairs) == ["RL-7B"]
    assert list(folder.create_or_verify(sweep(pair={**pair, "name": "mine"})).pairs) == ["RL-7B"]


def test_one_worker_may_use_sqlite_and_text_numbers_are_numbers():
    assert sweep(storage="sqlite:///x.db").storage == "sqlite:///x.db"
    assert sweep(parameters={"decode.tau": {"values": ["-1e-1"]}}).parameters["decode.tau"].values == (-0.1,)


def decodings(spec):
    return [decoding_of(spec, point, {}) for point in listed_points(spec)]


def test_what_is_left_is_told_after_each_point_without_reading_all_of_them_again(tmp_path, monkeypatch):
    read, decoding_of = [], decoding.decoding_of
    monkeypatch.setattr(decoding, "decoding_of", lambda *given: read.append(given) or decoding_of(*given))
    whole = open_sweep(sweep(), Places.under(tmp_path, track=False))
    whole.folder.make()
    left = whole.todo()
    for number, point in enumerate(left, 1):
        whole.fail(point, "why not")
        whole.failures[key(point)] = 9
        assert whole.todo() == left[number:]
    assert len(read) == 4
    assert [trial.number for trial in whole.study] == [*range(len(left) - 4), 0, 1, 2, 3]


def test_a_grid_is_every_combination_and_gamma_0_is_plain_replacement():
    spec = sweep()
    points = listed_points(spec)
    assert spec.size() == "2 tau x 2 gamma = 4 points"
    assert len({key(point) for point in points}) == len(points) == 4
    labels = [spec.decoding(point).label() for point in points]
    assert labels == ["replace τ-0.3", "extrapolate τ-0.3 γ0.1", "replace τ-0.1", "extrapolate τ-0.1 γ0.1"]
    wanted = [each["reference"]["mode"] for each in references(spec, "tiny", decodings(spec))]
    assert wanted == ["base", "rl", *["veto", "reject"] * 2]  # the gamma = 0 controls are points of the grid


def test_other_samplings_are_references_of_their_own():
    others = [{"temperature": 0, "decodings": ["rl", "base"]}, {"top_p": 0.3}, {"temperature": 1.0}]
    spec = sweep(parameters=TAU, samplings=others, sampling={"samples": 4, "top_p": 0.9, "seed": 7})
    plain = [point for point in references(spec, "tiny", decodings(spec)) if "sampling" not in point]
    drawn = [point for point in references(spec, "tiny", decodings(spec)) if "sampling" in point]
    assert plain == references(sweep(parameters=TAU), "tiny", decodings(spec))
    said = [
        (p["reference"]["mode"], sampling_of(spec, p).difference_from(spec.sampling), sampling_of(spec, p))
        for p in drawn
    ]
    assert said == [
        ("rl", "greedy", Sampling(temperature=0)),
        ("base", "greedy", Sampling(temperature=0)),
        ("rl", "top-p 0.3", Sampling(samples=4, top_p=0.3, seed=7)),
    ]  # the third is the sweep's own


def test_controls_are_added_where_the_grid_has_none():
    spec = sweep(decode={"primary": "rl", "gamma": 0.1}, parameters=TAU)
    found = [each["reference"] for each in references(spec, "tiny", decodings(spec))]
    assert [(r["mode"], r["primary"], r.get("tau")) for r in found] == [
        ("base", "base", None),
        ("rl", "rl", None),
        ("veto", "rl", -0.3),
        ("replace", "rl", -0.3),
        ("veto", "rl", -0.1),
        ("replace", "rl", -0.1),
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
        ({"run_cap": 3}, "2 tau x 2 gamma = 4 points, the first 3 of them", 3),
        ({"run_cap": 3, "pair": pairs}, "2 pairs x 2 tau x 2 gamma = 8 points, the first 3 of each pair", 6),
        ({"run_cap": 5, "pair": pairs}, "2 pairs x 2 tau x 2 gamma = 8 points", 8),
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
