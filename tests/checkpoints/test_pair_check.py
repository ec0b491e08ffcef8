"""`rlvr-dir pair`: on configurations and tokenizers made here, without weights; and what loading says of the same."""

import json
import warnings
from pathlib import Path

import pytest

from rlvr_dir.bench.random_pair import tokenizer
from rlvr_dir.checkpoints.pair_check import examine
from rlvr_dir.config import EngineSpec, EvalSpec, Pair, Sampling, preset
from rlvr_dir.decode.single import single_engine
from rlvr_dir.errors import UserError
from rlvr_dir.evals import evaluate
from tests.checkpoints.made import copied, edit, swap_ids
from tests.commands import invoke, refused
from tests.facts import states

TRANSFORMERS = EngineSpec(backend="transformers")
SMALL = {
    "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "vocab_size": 320, "hidden_size": 64,
    "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 1,
}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 512}


@pytest.fixture(scope="module")
def made_tokenizer():
    return tokenizer(300)


@pytest.fixture
def write(tmp_path, made_tokenizer):
    """Makes a pair of folders with config.json and tokenizer files, and no weights."""

    def make(base=SMALL, rl=SMALL):
        for role, config in (("base", base), ("rl", rl)):
            made_tokenizer.save_pretrained(tmp_path / role)
            (tmp_path / role / "config.json").write_text(json.dumps(config))
        return Pair(base=str(tmp_path / "base"), rl=str(tmp_path / "rl"))

    return make


def test_a_pair_without_weights_runs_once_they_are_there(write):
    found = examine(write(), TRANSFORMERS)
    assert (found.verdict, found.why, found.context, found.dtype) == ("runs", None, (512, 512), "bfloat16")
    assert [each.split("=")[0] for each in found.warned] == ["base", "rl"]
    assert all("has no weights yet" in each for each in found.warned)
    swapped = examine(Pair(base=write().rl, rl=write().base), TRANSFORMERS)
    assert ["look swapped" in each for each in swapped.warned] == [True, False, False]


def test_what_will_be_warned_of(write):
    pair = write(rl=SMALL | {"max_position_embeddings": 2048})
    Path(pair.base, "chat_template.jinja").unlink()
    found = examine(pair, TRANSFORMERS.replace(max_model_len=1024))
    assert any("have different chat templates (sha256 None and " in each for each in found.warned)
    assert any(each.startswith("max_model_len=1024: base=") for each in found.warned)
    shorter = examine(pair, TRANSFORMERS)
    assert shorter.context == (512, 2048)
    states("\n".join(shorter.lines()), "up to 512 tokens", "2,048 for RL alone")


@pytest.mark.parametrize(
    "changed", [{"vocab_size": 352}, {"num_hidden_layers": 3}, {"rope_scaling": YARN}, {"hidden_size": 128}]
)
def test_two_sizes_are_a_warning_that_names_them(write, changed):
    found = examine(write(rl=SMALL | changed))
    key = next(iter(changed)).replace("rope_scaling", "rope_parameters")
    assert found.verdict == "runs"
    assert any(key in sentence for sentence in found.warned)


def test_a_context_that_no_model_can_be_read_at_is_refused(write):
    stretched = SMALL | {"rope_scaling": YARN, "max_position_embeddings": 1024}
    found = examine(write(stretched, stretched), TRANSFORMERS.replace(max_model_len=4096))
    states(found.why, "max_model_len=4096")


CHANGES = [
    {}, {"use_mrope": False}, {"attention_dropout": 0.1}, {"unsloth_version": "2026.1"}, {"use_cache": False},
    {"max_position_embeddings": 256}, {"rms_norm_eps": 1e-5}, {"rms_norm_eps": 1.0000001e-6}, {"hidden_act": "gelu"},
    {"vocab_size": 310}, {"head_dim": 16}, {"tie_word_embeddings": True}, {"eos_token_id": None}, {"logit_scale": 2.0},
    {"vocab_size": 299}, {"quantization_config": {"quant_method": "awq", "bits": 4}},
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_loading_says_the_same(peaked_pair, tmp_path, change):
    pair = copied(peaked_pair, tmp_path / "rl", change)
    found = examine(pair, TRANSFORMERS)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            single_engine(pair, TRANSFORMERS)
            said = None
        except UserError as error:
            said = str(error)
    assert found.why == said
    assert found.warned == tuple(str(each.message) for each in caught)
    assert found.verdict == ("runs" if said is None else "refused")


def test_it_is_decoded_in_the_narrower_type(write):
    pair = write(SMALL, SMALL | {"torch_dtype": "float32"})
    assert examine(pair).dtype == "bfloat16"
    assert examine(pair, EngineSpec(dtype="float32")).dtype == "float32"


@pytest.fixture
def nothing_here(tmp_path, monkeypatch):
    """Leaves no hub, and an empty cache."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


def test_without_a_network_it_says_so_and_what_the_zoo_knows(nothing_here):
    found = examine(preset("nouscoder-14b"), name="nouscoder-14b")
    assert found.verdict == "unknown"
    states(found.why, "rl=", "hub")


def test_the_command(write, nothing_here):
    pair = write()
    folder = str(Path(pair.rl).parent)
    shown = invoke("pair", "check", folder)
    assert shown.exit_code == 0
    states(shown.output, "Qwen", "parameters", "These two can be decoded together")
    two = invoke("pair", "check", pair.base, pair.rl, "--json", "--max-model-len", "256")
    assert (two.exit_code, json.loads(two.output)["context"]["all"]) == (0, 256)
    edit(pair.rl, swap_ids, "tokenizer.json")
    failed = invoke("pair", "check", pair.base, pair.rl)
    assert failed.exit_code == 1
    states(failed.output, "base=")
    unknown = invoke("pair", "check", "orz-7b@1eae6d1")
    assert unknown.exit_code == 2
    states(unknown.output, "rl='Open-Reasoner-Zero", "Open-Reasoner-Zero-7B at 1eae6d1")
    named = invoke("pair", "check", "--base", pair.base, "--pretrained", pair.rl)
    assert named.exit_code == failed.exit_code
    for words in (("--pair", "tiny"), ()):  # by default the pair that ships
        assert invoke("pair", "check", *words).output == invoke("pair", "check", "tiny").output
    absent = invoke("pair", "check", "base", "rl")
    assert absent.exit_code == 1
    assert "rl" in absent.output
    for words, said in [
        (["nobody"], "nobody"),
        (["a", "b", "c"], "3"),
        (["--pair", "orz-7b", "a"], "--pair orz-7b a"),
    ]:
        states(refused("pair", "check", *words), *said.split())


def of(file, **changes):
    """A change of a pair: entries of a file of RL's."""
    return lambda pair, place: copied(pair, place, changes, file)


def written(file, text):
    """A change of a pair: another text in a file of RL's."""

    def change(pair, place):
        changed = copied(pair, place, {})
        Path(changed.rl, file).write_text(text)
        return changed

    return change


CONFIG = "config.json"
BROKEN = {
    "a layer more": (
        of(CONFIG, num_hidden_layers=3, layer_types=None),
        "model.layers.2.input_layernorm",
    ),
    "a layer less": (
        of(CONFIG, num_hidden_layers=1, layer_types=None),
        "model.layers.1.input_layernorm",
    ),
    "unclosed": (
        written("chat_template.jinja", "{% for m in messages %}"),
        "Unexpected end of",
    ),
    "refusing": (written("chat_template.jinja", "{{ raise_exception('no') }}"), "template no"),
    "short": (of(CONFIG, max_position_embeddings=4), "4 max_position_embeddings"),
    "end": (of("generation_config.json", eos_token_id=[5000, 1]), "eos_token_id=5000"),
    "no end": (of(CONFIG, eos_token_id=-1), "eos_token_id=-1 320"),
    "classifier": (
        of(CONFIG, architectures=["Qwen3ForSequenceClassification"]),
        "config.json Qwen3ForSequenceClassification",
    ),
    "encoder": (of(CONFIG, architectures=["Qwen3Model"]), "Qwen3Model"),
    "integers": (of(CONFIG, dtype="int8"), "config.json int8 bfloat16 float16"),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_what_an_evaluation_refuses_before_its_first_token_is_refused_by_the_check(peaked_pair, tmp_path, broken):
    """It said `it runs`; vLLM ended in a traceback for some of them."""
    change, sentence = BROKEN[broken]
    pair = change(peaked_pair, tmp_path / "rl")
    found = examine(pair, TRANSFORMERS)
    assert found.verdict == "refused"
    states(found.why, *sentence.split())
    spec = EvalSpec(tasks=("tiny_easy",), pair=pair, limit=1, engine=TRANSFORMERS, sampling=Sampling(max_tokens=2))
    with pytest.raises(UserError) as caught:
        evaluate(spec, progress=False)
    assert str(caught.value) == found.why or broken == "short"  # which names the problem


def test_a_pair_of_a_model_without_a_named_architecture_runs_on_transformers_alone(peaked_pair, tmp_path):
    pair = copied(peaked_pair, tmp_path / "rl", lambda config: config.pop("architectures"))
    assert examine(pair, TRANSFORMERS).verdict == "runs"
    assert "architectures" in examine(pair, EngineSpec(backend="vllm")).why


def test_one_checkpoint_as_both_is_warned_of(write, tmp_path):
    """It ran without a word: 0 % replaced."""
    pair = write()
    (tmp_path / "again").symlink_to(tmp_path / "rl")
    for base in (pair.rl, str(tmp_path / "again")):
        said = " ".join(examine(Pair(base=base, rl=pair.rl), TRANSFORMERS).warned)
        assert f"base={base!r} and rl={pair.rl!r} are one checkpoint: Δ log p is 0" in said
    assert "one checkpoint" not in " ".join(examine(pair, TRANSFORMERS).warned)
