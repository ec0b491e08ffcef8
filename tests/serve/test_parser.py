"""What a request asks for, as the parser reads it and as a response repeats it; no server is needed."""

import json

import pytest

from rlvr_dir.config import Decoding
from rlvr_dir.config.serving import Limits
from rlvr_dir.serve.request_parser import RequestParser
from tests.facts import refuses
from tests.serve.server import RULES

SAMPLINGS = ({}, {"seed": 3}, {"temperature": 0}, {"temperature": 0.5, "top_p": 0.9, "max_tokens": 20, "seed": 1})


def parser(**sampling):
    return RequestParser("tiny", Decoding(mode="rl"), sampling, Limits())


@pytest.mark.parametrize("server", [{}, {"max_tokens": 64, "seed": 5}])
@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("rule", RULES)
def test_what_a_response_repeats_asks_for_it_again(rule, sampling, server):
    first = parser(**server).read("tiny", {"decoding": rule.model_dump(mode="json"), **sampling, "sample": 2}, n=1)
    assert first.decoding == rule
    sent = json.loads(json.dumps(first.describe()))
    again = parser(**server).read("tiny:base", {k: v for k, v in sent.items() if k != "n" and v is not None}, n=1)
    assert (again.decoding, again.sampling, again.problem, again.sample) == (
        first.decoding, first.sampling, first.problem, first.sample,
    )  # fmt: skip
    assert again.describe() == first.describe()
    assert again.most_tokens == first.most_tokens  # the server's own bound need not fit


def test_stop_strings_are_repeated():
    assert parser().read("tiny", {}, stop=("\n",)).describe()["stop"] == ["\n"]


@pytest.mark.parametrize(
    ("body", "facts"),
    [
        ({"decoding": 5}, ("decoding", 5)),
        ({"decoding": {"mode": "replace", "taus": -0.1}}, ("taus", "tau")),
        ({"decoding": {"mode": "replacing"}}, ("mode", "replacing")),
    ],
)
def test_another_decoding_is_refused(body, facts):
    with refuses(*facts):
        parser().read("tiny", body)


@pytest.mark.parametrize(
    ("fields", "facts"),
    [({"n": 65}, ("n", 65, 64)), ({"n": 2, "temperature": 0}, ("n", 2, "temperature"))],
)
def test_how_many_samples_are_refused(fields, facts):
    with refuses(*facts):
        parser().read("tiny", {k: v for k, v in fields.items() if k != "n"}, n=fields["n"])
