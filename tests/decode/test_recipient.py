"""A pair whose change is carried over to a third model; `test_loading.py` holds both engines together on one."""

import pytest
from pydantic import ValidationError

from rlvr_dir.checkpoints.compat import check_pair
from rlvr_dir.config import Decoding, EngineSpec, EvalSpec, Pair, Sampling
from rlvr_dir.decode import Request, open_engine
from rlvr_dir.errors import UserError
from rlvr_dir.evals.loop import evaluate
from rlvr_dir.records import RecordStore
from rlvr_dir.results.from_records import result_of_record
from rlvr_dir.tiny import tiny_pair
from tests.checkpoints.made import copied

TRANSFORMERS = EngineSpec(backend="transformers")


def on(pair, recipient):
    return pair.replace(recipient=recipient)


def test_carried_over_to_rl_it_is_extrapolation_without_a_gate(peaked_pair, transformers_engine):
    """pi_RL (pi_RL / pi_base)^1: what `always` with gamma = 1 draws."""
    sampling = Sampling(max_tokens=32, seed=3, top_p=0.9)

    def asked(decoding):
        return [Request(f"What is {i}?", f"test/{i}", 0, decoding, sampling) for i in range(12)]

    plain = list(transformers_engine.generate(asked(Decoding(mode="extrapolate", criterion="always", gamma=1.0))))
    with open_engine(on(peaked_pair, peaked_pair.rl), TRANSFORMERS) as engine:
        carried = list(engine.generate(asked(Decoding(mode="extrapolate", criterion="always", gamma=0.0))))
    texts = [{r.request.problem: r.token_ids for r in rollouts} for rollouts in (plain, carried)]
    assert texts[0] == texts[1]


def test_what_cannot_be_is_refused_in_one_sentence(peaked_pair, tmp_path):
    for pair, recipient, words in (
        (peaked_pair, tiny_pair().rl, "^recipient=.* and rl=.* have different tokenizers"),
        (peaked_pair, "nowhere/here/it is", "^recipient='nowhere/here/it is'"),
    ):
        with pytest.raises(UserError, match=words):
            check_pair(on(pair, recipient))
    for fields in ({"rl": "a/b", "recipient": "a/c"}, {"rl": "a/c", "recipient_revision": "main"}):
        with pytest.raises((ValidationError, UserError), match="recipient"):
            Pair(base="a/b", **fields)


def test_a_folder_names_a_recipient_and_all_contexts_count(peaked_pair, tmp_path):
    short = copied(peaked_pair, tmp_path / "short", {"max_position_embeddings": 256}).rl
    (tmp_path / "pair.json").write_text(
        f'{{"base": "{peaked_pair.base}", "rl": "{peaked_pair.rl}", "recipient": "short"}}'
    )
    pair = Pair.of_folder(tmp_path)
    assert pair.recipient == short
    context = check_pair(pair).context
    assert (context.length, context.rl_alone) == (256, 256)


def test_a_result_and_its_record_are_of_the_three(tmp_path):
    pair = on(tiny_pair(), tiny_pair().base)
    spec = EvalSpec(
        tasks=("tiny_easy",), decodings=(Decoding(mode="rl"),), pair=pair, limit=2, engine=TRANSFORMERS,
        sampling=Sampling(samples=1, max_tokens=16),
    )  # fmt: skip
    [result] = evaluate(spec, records=tmp_path)
    store = RecordStore(tmp_path)
    [name] = store.names()
    record = store.read(*name)
    assert record.metadata.recipient == pair.recipient
    assert result_of_record(record).pair == result.pair
