"""Arguments of the chat template through the server: its own as defaults, a request's over them."""

import httpx
import pytest

pytest.importorskip("vllm", reason="vLLM is not installed")

from openai import BadRequestError, OpenAI

from rlvr_dir.checkpoints.chat_template import encode_prompt
from rlvr_dir.config import EngineSpec
from rlvr_dir.decode import open_engine
from tests.checkpoints.made import thinking
from tests.facts import states
from tests.serve.server import served

pytestmark = pytest.mark.vllm
TURN = [{"role": "user", "content": "1 + 1"}]


@pytest.fixture(scope="module")
def pair(peaked_pair, tmp_path_factory):
    return thinking(peaked_pair, tmp_path_factory.mktemp("thinking"))


@pytest.fixture(scope="module")
def client(pair, tmp_path_factory):
    """A server of a pair whose thinking is turned off where a request does not turn it on."""
    options = ("--pretrained", pair.rl, "--base", pair.base, "--name", "mine", "--dtype", "float32")
    folder = tmp_path_factory.mktemp("serve")
    with served(folder, *options, "--chat-template-kwargs", "enable_thinking=false") as running:
        yield OpenAI(base_url=running.url, api_key="none")


def prompt_ids(pair, **kwargs):
    """The prompt that the reference engine reads."""
    spec = EngineSpec(backend="transformers", chat_template_kwargs=kwargs)
    engine = open_engine(pair, spec, lazily=True)
    return list(encode_prompt(engine.tokenizer, engine.chat_prompt(TURN)))


@pytest.mark.parametrize(
    ("given", "held"),
    [
        (None, {"enable_thinking": False}),
        ({}, {"enable_thinking": False}),
        ({"enable_thinking": True}, {"enable_thinking": True}),
    ],
)
def test_a_prompt_is_written_as_the_engines_write_it(client, pair, given, held):
    own = {"return_token_ids": True, **({} if given is None else {"chat_template_kwargs": given})}
    answer = client.chat.completions.create(model="mine:rl", messages=TURN, max_tokens=2, extra_body=own)
    assert answer.prompt_token_ids == prompt_ids(pair, **held)
    assert prompt_ids(pair) == prompt_ids(pair, enable_thinking=True) != prompt_ids(pair, enable_thinking=False)
    assert answer.rlvr["chat_template_kwargs"] == held


def test_an_argument_that_the_template_does_not_read_is_refused(client):
    own = {"chat_template_kwargs": {"thinking": False}}
    with pytest.raises(BadRequestError, match=r"'thinking'.*enable_thinking"):
        client.chat.completions.create(model="mine", messages=TURN, extra_body=own)


def test_a_body_that_is_no_json_is_said_to_be_none(client):
    def post(kind):
        headers = {"Content-Type": kind}
        return httpx.post(f"{client.base_url}chat/completions", content='{"model": }', headers=headers)

    assert post("text/plain").json()["error"]["message"].count("Unsupported Media Type")
    answer = post("application/json")
    assert answer.status_code == 400
    states(answer.json()["error"]["message"], "JSON", "character 10")
