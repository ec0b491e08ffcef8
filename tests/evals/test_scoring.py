"""From responses to metrics: the filter, the numbers of a problem, the side channel."""

import json
import pickle

import pytest

from harness.evals.task import BoxedAnswers, Response, facts, process_results


def response(text, tokens=10, replaced=1, changed=1, finish="stop"):
    info = {"n_tokens": tokens, "n_replaced": replaced, "n_changed": changed, "finish_reason": finish}
    return Response(text, info)


def score(rows, golds):
    docs = [{"id": str(i), "answer": gold} for i, gold in enumerate(golds)]
    answers = BoxedAnswers().apply(rows, docs)
    return docs, answers, [process_results(doc, [row]) for doc, row in zip(docs, answers, strict=True)]


def test_a_problem_from_text_to_numbers():
    rows = [
        [
            response(r"\boxed{7}", tokens=10, replaced=1),
            response(r"\boxed{8}", tokens=30, replaced=9, changed=3),
            response("no idea", tokens=20, replaced=0, changed=0, finish="length"),
            response(r"\boxed{07} \boxed{", tokens=40, replaced=0, changed=0, finish="length"),
        ]
    ]
    docs, answers, [metrics] = score(rows, ["7"])
    assert answers == [["7", "8", "", "07"]]
    assert (metrics["avg@4"], metrics["pass@2"], metrics["pass@4"]) == (0.5, pytest.approx(5 / 6), 1.0)
    assert metrics["replacement_ratio"] == (10, 100)
    assert metrics["changed_ratio"] == (4, 100)
    assert metrics["replacement_ratio_per_response"] == (pytest.approx(0.4), 4)
    assert (metrics["mean_tokens"], metrics["truncated_share"], metrics["no_box_share"]) == (25, 0.5, 0.25)
    assert metrics["ungraded_share"] == 0
    assert [sample["verdict"] for sample in docs[0]["samples"]] == ["correct", "wrong", "truncated", "correct"]
    assert docs[0]["samples"][1] == {
        "verdict": "wrong", "answer": "8", "grader": "robust-3",
        "n_tokens": 30, "n_replaced": 9, "n_changed": 3, "finish_reason": "stop",
    }  # fmt: skip
    json.dumps(docs)


def test_of_several_answers_any_one_counts():
    docs = [{"id": "0", "answer": ["8", "9"]}]
    rows = [[response(r"\boxed{7}"), response(r"\boxed{9}"), response(r"\boxed{9.0}"), response("none")]]
    [answers] = BoxedAnswers().apply(rows, docs)
    assert process_results(dict(docs[0]), [answers])["avg@4"] == 0.5


def test_facts_survive_pickle_and_are_absent_after_string_work():
    text = response("abc ")
    assert facts(pickle.loads(pickle.dumps(text))) == facts(text)
    assert facts(text.strip()) == {}
    assert json.dumps(text) == '"abc "'
