"""The paper's pairs and models are known by name, place and content, and never by a guess."""

import json

import pytest

from harness.errors import UserError
from harness.report.build import build
from harness.report.known import like_models, model_known, model_of, name_of, pair_known
from harness.spec import Decoding
from harness.spec.published import KNOWN
from tests.report.made import DAPO, result

ORZ = "Open-Reasoner-Zero/Open-Reasoner-Zero-32B"
MATH = "Qwen/Qwen2.5-Math-7B"


def checkpoint(place, like, origin=None, **changed):
    """Make a folder with the config.json of a published model; `origin` is the repository that it names."""
    kind, fields = KNOWN[like]
    place.mkdir(parents=True)
    named = {} if origin is None else {"_name_or_path": origin}
    (place / "config.json").write_text(json.dumps({"model_type": kind, **fields, **named, **changed}))
    return str(place)


def beside(made):
    """Return the section of a report, and the first words of its rows."""
    [section] = [one for one in made.sections if one.title == "Beside the paper"]
    rows = [row.cells[0].text for table in section.parts for row in table.rows]
    return section, rows


def test_checkpoints_are_recognised():
    assert name_of("BytedTsinghua-SIA/DAPO-Qwen-32B") == "dapo"
    assert name_of("someone/else") is None
    assert model_of("Qwen/Qwen2.5-Math-7B") == "Qwen2.5-Math-7B"
    assert model_of("Qwen/Qwen2.5-32B") is None


@pytest.mark.parametrize(
    ("rl", "called", "name"),
    [
        ("BytedTsinghua-SIA/DAPO-Qwen-32B", "", "dapo"),
        ("/cache/models--BytedTsinghua-SIA--DAPO-Qwen-32B/snapshots/0a1b", "", "dapo"),
        ("/models/Open-Reasoner-Zero-32B", "", "orz"),
        ("/models/rl", "unireason-14b", "unireason"),
        ("/models/rl", "DAPO-Qwen-32B", "dapo"),
        ("/models/rl", "DAPO", None),  # what a training is called
        ("somebody/DAPO-Qwen-32B", "", None),  # another's weights
    ],
)
def test_the_papers_pairs_are_found_wherever_they_lie(rl, called, name):
    assert name_of(rl, called) == name


@pytest.mark.parametrize("origin", [ORZ, f"/mnt/{ORZ}", "/c/models--Open-Reasoner-Zero--Open-Reasoner-Zero-32B/s/0a"])
def test_a_pair_is_known_by_content_and_marked(tmp_path, origin):
    rl = checkpoint(tmp_path / "mine" / "rl", DAPO["base"], origin)
    base = checkpoint(tmp_path / "mine" / "base", DAPO["base"], DAPO["base"])
    found = pair_known(base, rl)
    assert found.name == "orz"
    assert [text.split(" is taken for ")[0] for text in found.unsure] == ["mine/rl", "mine/base"]
    assert pair_known(DAPO["base"], rl).unsure == found.unsure[:1]
    section, rows = beside(
        build([result(Decoding(mode="replace", tau=-0.4), pair={"base": base, "rl": rl}, problems=30)])
    )
    assert all(row.endswith(" †") for row in rows)
    assert rows
    assert section.parts[0].notes[1].startswith(f"† mine/rl is taken for {ORZ}, whose name and sizes its config.json")
    assert str(tmp_path) not in section.parts[0].notes[1]


@pytest.mark.parametrize(
    ("like", "origin", "changed"),
    [
        (DAPO["base"], DAPO["base"], {}),  # an RL model that was trained from base says base
        (DAPO["base"], "somebody/Open-Reasoner-Zero-32B", {}),
        (DAPO["base"], ORZ, {"num_hidden_layers": 63}),
        (DAPO["base"], ORZ, {"model_type": "llama"}),
        ("Qwen/Qwen2.5-7B", ORZ, {}),
        (DAPO["base"], None, {}),
    ],
)
def test_other_content_is_no_match(tmp_path, like, origin, changed):
    assert pair_known(DAPO["base"], checkpoint(tmp_path / "rl", like, origin, **changed)) is None


def test_another_base_or_a_folder_of_other_sizes_is_no_match(tmp_path):
    assert pair_known("Qwen/Qwen2.5-32B-Instruct", DAPO["rl"]) is None
    small = checkpoint(tmp_path / "small", "Qwen/Qwen2.5-7B")
    assert pair_known(small, DAPO["rl"]) is None
    assert pair_known(DAPO["base"], checkpoint(tmp_path / "DAPO-Qwen-32B", "Qwen/Qwen2.5-7B")) is None
    assert pair_known(checkpoint(tmp_path / "b" / "Qwen2.5-32B", DAPO["base"]), DAPO["rl"]).unsure == ()
    [why] = pair_known("/not/here/base", DAPO["rl"]).unsure
    assert why.startswith("here/base is taken for Qwen/Qwen2.5-32B, which nothing but its place beside")
    assert model_of("somebody/Qwen2.5-Math-7B") is None


def test_a_name_wins():
    assert pair_known(DAPO["base"], DAPO["rl"], "orz-32b").name == "orz"
    assert pair_known("a/b", "c/d", "DAPO-32b").unsure == ()
    assert model_known(MATH, "qwen3-8b-base").name == "Qwen3-8B-Base"


def test_a_name_of_a_model_with_other_sizes_is_refused(tmp_path):
    small = checkpoint(tmp_path / "small", MATH)
    with pytest.raises(UserError, match=r"'orz-32b' is .* the sizes of Qwen/Qwen2\.5-32B, and .*/small has others"):
        pair_known(DAPO["base"], small, "orz-32b")
    with pytest.raises(UserError, match="'qwen3-8b-base' is what the paper calls"):
        model_known(small, "qwen3-8b-base")


def test_sizes_alone_ask_for_the_name(tmp_path):
    pair = {role: checkpoint(tmp_path / "mine" / role, DAPO["base"]) for role in ("base", "rl")}
    section, rows = beside(build([result(Decoding(), pair=pair, problems=30)]))
    assert rows == []
    assert "mine has the sizes of dapo-32b and orz-32b." in section.paragraphs[0]
    assert "`dapo-32b=PLACE` or `orz-32b=PLACE` sets" in section.paragraphs[0]
    named = beside(build([result(Decoding(), pair=pair, problems=30, name="dapo-32b")]))[1]
    assert named == ["AIME24, rl, Avg@4"]


def test_the_base_of_trainings_is_known_by_content_or_named(tmp_path):
    origin = checkpoint(tmp_path / "a", MATH, MATH)
    [found] = model_known(origin).unsure
    assert found.endswith(f"/a is taken for {MATH}, whose name and sizes its config.json has")
    plain = checkpoint(tmp_path / "b", MATH)
    assert (model_known(plain), like_models(plain)) == (None, ["qwen2.5-math-7b"])
    run = result(Decoding(), pair={"base": plain, "rl": "mine/dapo"}, problems=30, name="DAPO")
    section, rows = beside(build([run]))
    assert (rows, "`--paper-base qwen2.5-math-7b`" in section.paragraphs[0]) == ([], True)
    assert beside(build([run], paper_base="Qwen2.5-Math-7B"))[1] == ["AIME24, Qwen2.5-Math-7B, DAPO, Avg@4"]
    with pytest.raises(UserError, match=r"paper_base.*'qwen3-8b'.*qwen3-8b-base"):
        build([run], paper_base="qwen3-8b")
    with pytest.raises(UserError, match=r"paper_base=.qwen2\.5-math-7b. names one base, and these results have 2"):
        build([run, result(Decoding())], paper_base="qwen2.5-math-7b")


def test_a_config_that_is_none_tells_nothing(tmp_path):
    for name, text in (("a", "["), ("b", "[]"), ("c", '"' * 2_000_000), ("d", '{"num_hidden_layers": {}}')):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(text)
        assert pair_known(DAPO["base"], str(tmp_path / name)) is None
    (tmp_path / "e").mkdir()
    (tmp_path / "e" / "config.json").write_text("[" * 100_000)
    for place in (str(tmp_path / "e"), "~nobody-of-that-name/rl", "?", "", "a\0b"):
        assert (pair_known(DAPO["base"], place), like_models(place)) == (None, [])
