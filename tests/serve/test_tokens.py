"""What the server gives is what the engine gives offline: the same tokens, texts and facts for the same key."""

import asyncio
import random
from typing import Any

import httpx
import numpy as np
import pytest

pytest.importorskip("vllm", reason="vLLM is not installed")

from openai import AsyncOpenAI, BadRequestError, OpenAI

from rlvr_dir.config import EngineSpec, Sampling
from rlvr_dir.decode import Request, open_engine
from rlvr_dir.tiny import tiny_pair
from tests.serve.server import RULES, problems, rule_fields

PROBLEMS, SAMPLES = 10, 5
SAMPLING = Sampling(max_tokens=48, seed=7)

pytestmark = pytest.mark.vllm


@pytest.fixture(scope="module")
def offline():
    """{(rule, problem, sample): rollout} of 250 rollouts, with every token's facts."""
    with open_engine(tiny_pair(), EngineSpec(backend="vllm", enforce_eager=True, kv_cache_gib=0.25)) as engine:
        requests = [
            Request(
                prompt=engine.chat_prompt([{"role": "user", "content": text}]),
                problem=name,
                sample=sample,
                decoding=rule,
                sampling=SAMPLING,
                trace=10,
                tag=(rule, name, sample),
            )
            for rule in RULES
            for name, text in problems(PROBLEMS)
            for sample in range(SAMPLES)
        ]
        return {rollout.request.tag: rollout for rollout in engine.generate(requests)}


@pytest.fixture
def client(server):
    return OpenAI(base_url=server.url, api_key="none")


def asked(rule, problem, sample):
    """The fields of a request beside OpenAI's own."""
    return {**rule_fields(rule), "problem": problem, "sample": sample, "return_token_ids": True}


async def ask(client, kind, rule, problem, text, prompt, sample):
    """Ask for one response as a chat or a completion, whole or streamed; return (token ids, text, reason)."""
    own = {"max_tokens": SAMPLING.max_tokens, "seed": SAMPLING.seed, "extra_body": asked(rule, problem, sample)}
    messages = [{"role": "user", "content": text}]
    if kind == "chat":
        answer = await client.chat.completions.create(model="tiny", messages=messages, **own)
        choice = answer.choices[0]
        return choice.token_ids, choice.message.content, choice.finish_reason
    if kind == "streamed chat":
        ids, words, reason = [], [], None
        async for chunk in await client.chat.completions.create(model="tiny", messages=messages, stream=True, **own):
            for choice in chunk.choices:
                ids += getattr(choice, "token_ids", None) or []
                words.append(choice.delta.content or "")
                reason = choice.finish_reason or reason
        return ids, "".join(words), reason
    answer = await client.completions.create(model="tiny", prompt=prompt, **own)
    choice = answer.choices[0]
    return choice.token_ids, choice.text, choice.finish_reason


def test_shuffled_concurrent_clients_get_the_tokens_of_offline_decoding(server, offline):
    texts, prompts = dict(problems(PROBLEMS)), {name: each.request.prompt for (_, name, _), each in offline.items()}
    keys = list(offline)
    random.Random(0).shuffle(keys)
    kinds = ("chat", "streamed chat", "completion")

    async def everything():
        clients = [AsyncOpenAI(base_url=f"{server.url}", api_key="none") for _ in range(8)]
        found = await asyncio.gather(
            *(ask(clients[i % 8], kinds[i % 3], rule, name, texts[name], prompts[name], sample)
              for i, (rule, name, sample) in enumerate(keys))
        )  # fmt: skip
        for client in clients:
            await client.close()
        return found

    found = dict(zip(keys, asyncio.run(everything()), strict=True))
    assert len(found) == 250
    for key, (ids, text, reason) in found.items():
        rollout = offline[key]
        assert tuple(ids) == rollout.token_ids, key
        assert (text, reason) == (rollout.text, rollout.finish_reason), key


@pytest.mark.parametrize("stream", [False, True])
def test_n_counts_samples_on_from_the_one_asked_for(client, offline, stream):
    rule, (name, text) = RULES[2], problems(1)[0]
    answer = client.chat.completions.create(
        model="tiny:replace,tau=-0.1",
        messages=[{"role": "user", "content": text}],
        n=4,
        seed=SAMPLING.seed,
        max_tokens=SAMPLING.max_tokens,
        stream=stream,
        extra_body={"problem": name, "sample": 1},
    )
    texts = [""] * 4
    if stream:
        for chunk in answer:
            assert chunk.model == "tiny:replace,tau=-0.1"
            for choice in chunk.choices:
                texts[choice.index] += choice.delta.content or ""
    else:
        assert answer.model == "tiny:replace,tau=-0.1"
        assert answer.usage.completion_tokens == sum(offline[rule, name, each].n_tokens for each in range(1, 5))
        texts = [choice.message.content for choice in sorted(answer.choices, key=lambda each: each.index)]
    assert texts == [offline[rule, name, sample].text for sample in range(1, 5)]


def test_a_response_that_has_begun_goes_on_as_it_did(client, offline):
    for (rule, name, sample), rollout in list(offline.items())[::7]:
        at = rollout.n_tokens // 2
        prompt = [*rollout.prompt_token_ids, *rollout.token_ids[:at]]
        own = {**asked(rule, name, sample), "begun": at}
        drawn = {"max_tokens": SAMPLING.max_tokens, "seed": SAMPLING.seed, "extra_body": own}
        answer = client.completions.create(model="tiny", prompt=prompt, **drawn)
        assert tuple(answer.choices[0].token_ids) == rollout.token_ids[at:]
        assert answer.rlvr.get("begun", 0) == at
    with pytest.raises(BadRequestError, match="begun=2 "):
        client.completions.create(model="tiny", prompt=[5, 6], extra_body={"begun": 2})
    with pytest.raises(BadRequestError, match=r"begun=1 .*chat"):
        client.chat.completions.create(
            model="tiny", messages=[{"role": "user", "content": "1"}], extra_body={"begun": 1}
        )


@pytest.mark.parametrize("kind", ["chat", "completion"])
def test_logprobs_are_those_of_rl_with_base_and_the_decision_beside_them(client, offline, kind):
    texts, changed = dict(problems(PROBLEMS)), 0
    for rule, name, sample in [key for key in offline if key[0].gated and key[2] == 0]:
        prompt = offline[rule, name, sample].request.prompt
        own = {"max_tokens": 48, "seed": SAMPLING.seed, "extra_body": asked(rule, name, sample)}
        if kind == "chat":
            answer = client.chat.completions.create(
                model="tiny", messages=[{"role": "user", "content": texts[name]}], logprobs=True, top_logprobs=2, **own
            )
            entries = answer.choices[0].logprobs.content
            logprobs, facts = [each.logprob for each in entries], [each.rlvr for each in entries]
            assert all(len(each.top_logprobs) == 2 for each in entries)
            assert all(each.top_logprobs[0].logprob >= each.logprob for each in entries)
            for model in ("base", "rl"):
                ids = np.array([[token for token, *_ in each["most_likely"][model]] for each in facts])
                assert (ids == offline[rule, name, sample].trace.likeliest(model)[0][:, :2]).all()
        else:
            answer = client.completions.create(model="tiny", prompt=prompt, logprobs=0, **own)
            found = answer.choices[0].logprobs
            logprobs = found.token_logprobs
            facts = [dict(zip(found.rlvr, row, strict=True)) for row in zip(*found.rlvr.values(), strict=True)]
        rollout = offline[rule, name, sample]
        assert [each["replaced"] for each in facts] == rollout.replaced.tolist()
        assert [each["changed"] for each in facts] == rollout.changed.tolist()
        np.testing.assert_allclose([each["delta_logp"] for each in facts], rollout.delta_logp, atol=1e-3)
        assert [each["proposed_id"] for each in facts] == rollout.proposed.tolist()
        written = [each["delta_logp_written"] for each in facts]
        np.testing.assert_allclose(written, rollout.delta_logp_written, atol=1e-3)
        kept = ~rollout.changed
        np.testing.assert_allclose(np.array(logprobs)[kept], rollout.trace.fact("logp_rl")[kept], atol=1e-3)
        base = np.array([np.nan if each["base_logprob"] is None else each["base_logprob"] for each in facts])
        np.testing.assert_allclose(base[kept], rollout.trace.fact("logp_base")[kept], atol=1e-3)
        changed += int(rollout.changed.sum())
    assert changed  # some tokens were redrawn to others, and have RL's log p where it lists them


def test_what_an_answer_says_of_itself_gives_the_same_answer_again(client):
    messages = [{"role": "user", "content": problems(1)[0][1]}]
    hot = {"model": "tiny:base", "messages": messages, "temperature": 3.0, "top_p": 1.0, "max_tokens": 24}
    first, other = (client.chat.completions.create(**hot) for _ in range(2))
    assert first.rlvr["seed"] != other.rlvr["seed"]  # where nobody names one
    again = client.chat.completions.create(model="tiny", messages=messages, extra_body=first.rlvr)
    assert again.choices[0].message.content == first.choices[0].message.content
    assert other.choices[0].message.content != first.choices[0].message.content


def test_the_extension_of_any_response_can_be_sent_as_fields(client):
    messages = [{"role": "user", "content": problems(1)[0][1]}]
    for model in ("tiny:rl", "tiny:replace,tau=-0.1", "tiny:extrapolate,tau=-0.1,gamma=0.5"):
        for fields in ({}, {"n": 2}, {"stop": ["boxed"]}, {"temperature": 0}):
            first = client.chat.completions.create(model=model, messages=messages, **fields)
            again = client.chat.completions.create(model="tiny", messages=messages, extra_body=first.rlvr)
            texts = [[choice.message.content for choice in answer.choices] for answer in (first, again)]
            assert texts[0] == texts[1]
    begun = client.completions.create(model="tiny:rl", prompt=messages[0]["content"], max_tokens=9)
    again = client.completions.create(model="tiny", prompt=messages[0]["content"], extra_body=begun.rlvr)
    assert again.choices[0].text == begun.choices[0].text


def test_stop_strings_and_limits_end_a_response(client):

    def choice(**own: Any):
        messages: Any = [{"role": "user", "content": problems(1)[0][1]}]
        return client.chat.completions.create(model="tiny:rl", messages=messages, temperature=0, **own).choices[0]

    whole, cut = choice(), choice(stop=["boxed"])
    assert "boxed" in whole.message.content
    assert cut.message.content == whole.message.content.partition("boxed")[0]
    assert (whole.finish_reason, cut.finish_reason, choice(max_tokens=2).finish_reason) == ("stop", "stop", "length")


def test_a_prompt_that_stands_twice_in_a_request_has_other_samples_the_second_time(client):
    """A client that asked for two samples so was given one text twice, and counted it as two."""
    text = problems(1)[0][1]
    asked: dict[str, Any] = {"model": "tiny:base", "temperature": 3, "top_p": 1, "max_tokens": 24, "n": 2, "seed": 3}
    together = client.completions.create(prompt=[text, text], **asked)
    counted = client.completions.create(prompt=text, **{**asked, "n": 4})
    assert [each.text for each in together.choices] == [each.text for each in counted.choices]
    assert len({each.text for each in together.choices}) == 4


def test_without_a_key_only_this_machine_by_its_own_name_is_answered(server):
    for host, status in {
        "localhost:8000": 200,
        "127.0.0.1": 200,
        "elsewhere.example": 403,
        "127.0.0.1.x.io": 403,
    }.items():
        answer = httpx.get(f"{server.url}/models", headers={"Host": host, "Origin": "http://elsewhere.example"})
        assert answer.status_code == status
        assert "access-control-allow-origin" not in answer.headers
