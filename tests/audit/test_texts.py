"""`audit --texts`: rows on given texts are the numbers of `rlvr-dir score`."""

import json

import pytest

from rlvr_dir.analysis.score import score
from rlvr_dir.audit.run import audit
from rlvr_dir.audit.texts import CLAIMS
from rlvr_dir.tiny import tiny_pair
from tests.facts import refuses


def test_rows_on_given_texts_are_those_of_score(tmp_path):
    path, pair = tmp_path / "texts.jsonl", tiny_pair()
    path.write_text("".join(json.dumps({"text": f"so {n} a + 7 = {n + 7} ."}) + "\n" for n in (12, 45, 31)))
    kwargs = {"records": tmp_path / "records", "backend": "transformers"}
    rows = audit(pair.base, pair.rl, rows=(), texts=path, **kwargs)
    assert [*rows.name] == [claim.name for claim in CLAIMS]
    numbers = score(pair, path, out=tmp_path / "other", engine={"backend": "transformers"}).numbers
    for row in rows.to_dict("records"):
        number = numbers[row["name"].removeprefix("texts/")].value
        assert [row[f"value{end}"] for end in ("", "_low", "_high")] == [number.value, number.low, number.high]
    with refuses("texts", "nowhere.jsonl"):
        audit(pair.base, pair.rl, rows=(), texts="nowhere.jsonl", **kwargs)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_every_row_on_given_texts_is_in_its_group(claim):
    assert claim.group == "texts"
    assert claim.name.startswith("texts/")
