"""Wrong requests, without a key, left alone: each has a clear answer, and none does harm."""

import json

import httpx
import pytest

pytest.importorskip("vllm", reason="vLLM is not installed")

from openai import BadRequestError, NotFoundError, OpenAI
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

from rlvr_dir.errors import UserError
from rlvr_dir.serve.openai import given_fields
from rlvr_dir.serve.request_parser import FIELDS
from tests.cores import core_of
from tests.facts import states
from tests.serve.server import problems, served

KEY = "a-key-for-tests"
MESSAGES = [{"role": "user", "content": problems(1)[0][1]}]
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}
LONG = {"model": "tiny:base", "messages": MESSAGES, "temperature": 20.0, "top_p": 1.0, "max_tokens": 1500}

pytestmark = [pytest.mark.vllm, pytest.mark.whole(reason="a server of its own and a thousand bad requests")]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server with a key and narrow limits."""
    limits = ("--most-samples", "8", "--most-tokens", "1500")
    with served(
        tmp_path_factory.mktemp("serve"), "-d", "replace,tau=-0.2", "--top-p", "0.6", *limits, VLLM_API_KEY=KEY
    ) as running:
        yield running


@pytest.fixture(scope="module")
def client(server):
    """A client with the key."""
    return OpenAI(base_url=server.url, api_key=KEY, max_retries=20)


def test_a_field_that_is_not_known_is_answered_with_the_nearest_and_with_ours_alone():
    """Sixty-five were listed, vLLM's among them, many of which a pair refuses."""
    for field, hint in (("temprature", "'temperature'"), ("guided_json", "guided_json")):
        request = ChatCompletionRequest.model_validate({"model": "tiny", "messages": MESSAGES, field: 1})
        with pytest.raises(UserError) as refused:
            given_fields(request)
        states(refused.value, field, hint, ", ".join(FIELDS))


REFUSED = [
    ({"mode": "replace"}, "tau delta_logp"),
    ({"mode": "replacing"}, "mode replacing"),
    ({"tau": -0.1}, "tau -0.1"),
    ({"mode": "replace", "tau": "low"}, "tau low"),
    ({"mode": "extrapolate", "tau": -0.1}, "gamma"),
    ({"decoding": "replace,tau=-0.1,gama=2"}, "gama"),
    ({"taus": -0.1}, "taus"),
    ({"vllm_xargs": {"taus": 1}}, "taus"),
    ({"vllm_xargs": {"seed": 1}, "seed": 1}, "seed"),
    ({"seed": -1}, "seed -1"),
    ({"sample": -1}, "sample -1"),
    ({"problem": ""}, "problem"),
    ({"temperature": -1}, "temperature -1"),
    ({"top_p": 0}, "top_p 0"),
    ({"min_p": 0.1}, "min_p"),
    ({"n": 9}, "n 9"),
    ({"n": 2, "temperature": 0}, "n 2"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": 1501}, "max_tokens 1501"),
    ({"temperature": 0, "decoding": "replace,criterion=random,tau=0.5"}, "criterion random"),
    ({"presence_penalty": 0.5}, "presence_penalty 0.5"),
    ({"logit_bias": {"5": 1}}, "logit_bias "),
    ({"top_k": 5}, "top_k 5"),
    ({"echo": True}, "echo"),
    ({"prompt_logprobs": 1}, "prompt_logprobs"),
    ({"min_tokens": 5}, "min_tokens"),
    ({"decoding": 5}, "decoding 5"),
    ({"decoding": {"mode": "replace", "taus": 1}}, "taus tau"),
    ({"response_format": {"type": "json_object"}}, "response_format"),
    ({"structured_outputs": {"regex": "a"}}, "structured_outputs"),
    ({"tools": [TOOL]}, "tools"),
    ({"tools": []}, "tools"),
    ({"tool_choice": "auto"}, "tool_choice"),
    ({"tools": [TOOL], "tool_choice": "none"}, "tools"),
    ({"chat_template_kwargs": {"enable_thinking": False}}, "enable_thinking"),
    ({"stop": [""]}, "stop"),
    ({"logprobs": True, "top_logprobs": 11}, "top_logprobs 11"),
    ({"messages": [{"role": "user", "content": "1 + 1 = " * 1500}]}, "2048"),
    ({"messages": [{"role": "user", "content": "1 + 1 = " * 150}], "max_tokens": 1500}, "max_tokens 1500"),
    ({"n": "many"}, "n many"),
    ({"messages": []}, ""),
    ({"messages": "hello"}, "messages hello"),
]  # fmt: skip


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("fields", "facts"), REFUSED, ids=[json.dumps(each)[:60] for each, _ in REFUSED])
def test_a_bad_request_is_a_400_with_one_sentence(client, fields, facts, stream):
    own = {name: fields[name] for name in ("messages",) if name in fields}
    rest = {name: value for name, value in fields.items() if name not in own}
    with pytest.raises(BadRequestError) as caught:
        client.chat.completions.create(model="tiny", **({"messages": MESSAGES} | own), stream=stream, extra_body=rest)
    assert states(caught.value, *facts.split())


def test_fields_that_change_nothing_are_accepted(client):
    off = {"top_k": -1, "echo": False, "min_tokens": 0, "presence_penalty": 0}
    ignored = {"metadata": {"run": "1"}, "store": True, "service_tier": "auto", "user": "me"}
    for fields in (off, ignored):
        answer = client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=2, extra_body=fields)
        assert answer.choices[0].message.content


def test_a_rule_in_the_name_of_the_model_is_refused_as_one_in_fields(client):
    with pytest.raises(BadRequestError) as refused:
        client.chat.completions.create(model="tiny:replace,tao=-0.1", messages=MESSAGES)
    assert states(refused.value, "tao")
    with pytest.raises(NotFoundError) as missing:
        client.chat.completions.create(model="other", messages=MESSAGES)
    assert states(missing.value, "other")
    for name in ("tiny:replace,tau=-0.2", "tiny:replace;tau=-0.2"):  # for tools that cut their own lists at commas
        answer = client.chat.completions.create(model=name, messages=MESSAGES, max_tokens=2)
        assert (answer.model, answer.rlvr["decoding"]["tau"]) == (name, -0.2)


def test_what_a_request_says_of_sampling_takes_the_place_of_the_command_line(client):
    def drawn(**own):
        answer = client.chat.completions.create(
            model="tiny", messages=MESSAGES, max_tokens=2, extra_body={"decoding": "rl", **own}
        )
        return {name: answer.rlvr.get(name) for name in ("temperature", "top_p")}

    assert drawn() == {"temperature": 1, "top_p": 0.6}
    assert drawn(top_p=0.1) == {"temperature": 1, "top_p": 0.1}
    assert drawn(temperature=0) == {"temperature": 0, "top_p": None}


def test_without_the_key_nothing_is_decoded(server):
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": KEY}):
        for path in ("/chat/completions", "/completions"):
            body = {"model": "tiny", "messages": MESSAGES, "prompt": "1"}
            assert httpx.post(server.url + path, json=body, headers=headers).status_code == 401
        assert httpx.get(server.url + "/models", headers=headers).status_code == 401
    assert httpx.get(server.url.removesuffix("/v1") + "/health").status_code == 200


def test_other_paths_of_vllm_are_not_served(server):
    for path in ("/v1/responses", "/tokenize", "/v1/messages", "/invocations", "/v1/embeddings", "/docs"):
        answer = httpx.post(server.url.removesuffix("/v1") + path, json={}, headers={"Authorization": f"Bearer {KEY}"})
        assert answer.status_code == 404, path
        assert "/v1/chat/completions" in answer.json()["error"]["message"]
    metrics = httpx.get(server.url.removesuffix("/v1") + "/metrics", follow_redirects=True).text
    assert 'vllm:generation_tokens_total{engine="0",model_name="tiny' in metrics


def test_clients_that_leave_make_room_for_others(server, client):
    leaving = httpx.Client(headers={"Authorization": f"Bearer {KEY}"}, timeout=60)
    streams = []
    for _ in range(4):
        request = leaving.build_request("POST", server.url + "/chat/completions", json={**LONG, "stream": True, "n": 8})
        stream = leaving.send(request, stream=True)
        lines = stream.iter_lines()
        assert next(lines).startswith("data: ")
        streams.append((stream, lines))
    for stream, _ in streams:
        stream.close()
    leaving.close()
    assert client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=4).choices[0].message.content


def test_a_thousand_malformed_requests_leave_it_serving(server, client):
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    bodies = [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"model": 5}', b'{"messages": {}}', b'{"n": "many"}']
    bodies += [json.dumps({"model": "tiny", "messages": MESSAGES, **fields}).encode() for fields, _ in REFUSED[:-3]]
    bodies += [json.dumps({"prompt": [[10**9]], "max_tokens": 1}).encode(), b'{"prompt": [-1]}', b'{"prompt": []}']
    bodies += [b'{"model": "tiny", "prompt": "\\ud800", "messages": [{"role": "user", "content": "\\ud800"}]}']
    statuses = set()
    with httpx.Client(headers=headers, timeout=60) as asker:
        for i in range(1000):
            path = ("/chat/completions", "/completions")[i // len(bodies) % 2]
            statuses.add(asker.post(server.url + path, content=bodies[i % len(bodies)]).status_code)
    assert statuses == {400}
    assert client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=4).choices[0].message.content


def test_in_the_end_a_core_that_dies_ends_the_server_with_a_word(server):
    """The last one in this file: no other test wants this server any more."""
    core = core_of(server.process.pid)
    assert not core.children()  # it computes by itself: with a worker, each would spin while the other computes
    core.kill()
    assert server.process.wait(timeout=60) == 2
    assert any(line.startswith("error: vLLM") for line in server.said.read_text().splitlines())
