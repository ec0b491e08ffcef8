"""What is exported holds to the published schemas, has our numbers, and says which model or models decoded."""

import json
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import jsonschema
import pytest
import yaml
from huggingface_hub import parse_eval_result_entries

from harness.errors import UserError
from harness.exchange.export import FORMATS, dataset_of, export
from harness.exchange.material import Target, system_of
from harness.spec import Decoding
from tests.exchange.made import HUB, MODES, TASK, results
from tests.report.made import result, theirs

SCHEMAS = Path(__file__).parent / "schemas"
NOW = datetime(2026, 11, 23, tzinfo=UTC)
TARGET = Target("somebody", "third_party", now=NOW)


def schema(name):
    return json.loads((SCHEMAS / name).read_text())


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return results(tmp_path_factory.mktemp("records"))


def lm_eval_result():
    return theirs("squad", Decoding(mode="rl"), "f1/none", engine={"backend": "vllm", "pair": HUB})


def test_every_eval_ever_holds_to_its_schemas(found, tmp_path):
    written = export([*found, lm_eval_result()], "eee", tmp_path, TARGET)
    whole, line = schema("eee-0.3.0-eval.schema.json"), schema("eee-0.3.0-instance_level_eval.schema.json")
    aggregates = [file for file in written.files if file.suffix == ".json"]
    assert len(aggregates) == 5
    for file, one in zip(aggregates, [*found, lm_eval_result()], strict=True):
        data = json.loads(file.read_text())
        jsonschema.validators.validator_for(whole)(whole).validate(data)
        assert data["evaluation_results"][0]["score_details"]["score"] == pytest.approx(one.avg)
        if not one.shares:
            assert "detailed_evaluation_results" not in data
            continue
        told = data["detailed_evaluation_results"]
        samples = tmp_path / told["file_path"]
        assert told["checksum"] == sha256(samples.read_bytes()).hexdigest()
        rows = [json.loads(row) for row in samples.read_text().splitlines()]
        assert len(rows) == told["total_rows"] == one.correct.size
        for row in rows:
            jsonschema.validators.validator_for(line)(line).validate(row)
            assert row["evaluation_id"] == data["evaluation_id"]
        assert sum(row["evaluation"]["is_correct"] for row in rows) == one.correct.sum()


@pytest.mark.parametrize(("lower", "higher"), [(("f1/none",), False), ((), True)])
def test_lm_eval_is_told_which_way_its_own_metric_is_better(tmp_path, lower, higher):
    """It was told the opposite."""
    [file] = export([lm_eval_result().replace(lower_is_better=lower)], "lm-eval", tmp_path, TARGET).files
    assert json.loads(file.read_text())["higher_is_better"] == {"squad": {"f1": higher}}


def test_two_models_are_never_one_models_name(found, tmp_path):
    systems = [system_of(each) for each in found]
    assert [system.id for system in systems] == [
        "Qwen/Qwen2.5-32B",
        "BytedTsinghua-SIA/DAPO-Qwen-32B",
        "rlvr-dir/DAPO-Qwen-32B-with-Qwen2.5-32B-replace-tau-0.3",
        "rlvr-dir/DAPO-Qwen-32B-with-Qwen2.5-32B-extrapolate-tau-0.3-gamma0.1",
    ]
    assert [system.single for system in systems] == [True, True, False, False]
    target = result(Decoding(mode="rl"), pair={**HUB, "recipient": "org/Big"})
    assert system_of(target).id == "rlvr-dir/DAPO-Qwen-32B-with-Qwen2.5-32B-on-Big-rl"
    assert not system_of(target).single
    power = system_of(result(Decoding(mode="power", primary="rl"), pair=HUB))
    assert (power.kind, power.models) == ("one model, by a rule", {"rl": HUB["rl"]})
    assert not system_of(result(Decoding(mode="expo", gamma=0.5), pair=HUB)).single
    for form in ("eee", "inspect", "lm-eval"):
        for file in export(found[2:], form, tmp_path / form, TARGET).files:
            text = file.read_text()
            names = set(HUB.values())
            for line in [json.loads(text)] if file.suffix == ".json" else map(json.loads, text.splitlines()):
                about = line.get("model_info", line.get("eval", line))
                assert not names & {about.get(key) for key in ("id", "model_id", "model", "model_name")}


def test_a_checkpoint_on_a_disk_has_no_path_outside(tmp_path):
    own = {"base": str(tmp_path / "models/mine/base"), "rl": str(tmp_path / "models/mine/rl")}
    assert system_of(result(Decoding(mode="rl"), pair=own)).id == "local/mine-rl"
    assert system_of(result(Decoding(mode="base"), pair={"base": None})).id == "unknown/base"
    one = results(tmp_path / "records", modes=MODES[2:3], about=own)
    for form in FORMATS:
        for file in export(one, form, tmp_path / form, TARGET).files:
            assert str(tmp_path) not in file.read_text(), form


def test_the_hubs_results_are_of_one_model_and_whole(found, tmp_path):
    whole = result(MODES[1], task="aime24", problems=30, pair=HUB, ids=tuple(map(str, range(30))))
    gated = result(MODES[2], task="aime24", problems=30, pair=HUB, ids=tuple(map(str, range(30))))
    target = Target(datasets=dict([dataset_of("aime24=org/aime:aime24")]), source_url="https://example.org", now=NOW)
    written = export([whole, gated, *found], "eval-results", tmp_path, target)
    file, _ = written.files
    assert file == tmp_path / "BytedTsinghua-SIA__DAPO-Qwen-32B/.eval_results/aime24.yaml"
    [entry] = parse_eval_result_entries(yaml.safe_load(file.read_text()))
    assert (entry.dataset_id, entry.task_id, entry.value) == ("org/aime", "aime24", round(100 * whole.avg, 2))
    other = result(MODES[1], task="aime24", pair={"base": "org/base", "rl": "org/rl"})
    export([whole, gated, other], "eval-results", tmp_path, target)
    card = (tmp_path / "model-card.md").read_text()
    assert card.index("Of rl `BytedTsinghua-SIA/DAPO-Qwen-32B`") < card.index("Of rl `org/rl`:")
    assert "give --dataset aime24=ORG/NAME:TASK_ID" in export([whole], "eval-results", tmp_path, TARGET).remarks[0]


@pytest.mark.parametrize("form", ["eee", "inspect", "lm-eval"])
def test_scores_are_exported_where_the_record_is_gone(tmp_path, form):
    written = export([result(MODES[1], pair=HUB)], form, tmp_path / form, TARGET)
    assert len(written.files) == 1
    assert "its record is not at hand" in written.remarks[0]


@pytest.mark.parametrize(
    ("form", "target", "sentence"),
    [
        ("csv", TARGET, "format='csv' is not known; accepted: eee, eval-results"),
        ("eee", Target(relationship="friend"), "relationship='friend' is not known"),
        ("eval-results", Target(datasets={"nope": ("o/n", "t")}), f"dataset='nope' is not known; accepted: {TASK}$"),
    ],
)
def test_a_mistake_is_one_sentence(found, tmp_path, form, target, sentence):
    with pytest.raises(UserError, match=sentence):
        export(found, form, tmp_path, target)


@pytest.mark.parametrize("said", ["aime24", "aime24=org/aime", "=org/aime:x", "aime24=aime:x", "a=b/c/d:x", "a=b/:x"])
def test_a_dataset_of_the_hub_is_named_whole(said):
    with pytest.raises(UserError, match="accepted: TASK=ORG/NAME:TASK_ID"):
        dataset_of(said)
