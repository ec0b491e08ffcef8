"""In verl's own environment: arguments, loss, trainer and reward are what we say. Skipped where there is none."""

import functools
import json
import math
import os
import subprocess
from pathlib import Path
from shutil import copytree

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from rlvr_dir.config import read_yaml
from rlvr_dir.errors import UserError
from rlvr_dir.grading import grade
from rlvr_dir.policy.reweighting import token_weights
from rlvr_dir.sweep import sweeps_dir
from rlvr_dir.sweep.points import listed_points
from rlvr_dir.sweep.specs import TrainingSweep
from rlvr_dir.sweep.specs import load as load_sweep
from rlvr_dir.tiny import tiny_pair
from rlvr_dir.tiny.problems import rl_problems
from rlvr_dir.train import load_train
from rlvr_dir.train.verl.log import translate
from rlvr_dir.train.verl.presets import PRESETS
from rlvr_dir.train.verl.run import arguments
from rlvr_dir.train.verl.spec import PYTHON
from rlvr_dir.train.verl.validate import check_versions
from tests.checkpoints.made import edit
from tests.grading.test_grade import CASES
from tests.train.verl.machine import CPU, vllm_of_the_tests

HOUSE = Path(__file__).parents[3]
ENVIRONMENT = HOUSE / PYTHON
pytestmark = [
    pytest.mark.skipif(not ENVIRONMENT.exists(), reason=f"no {PYTHON}: `make verl-env` makes it"),
    pytest.mark.whole(reason="verl's environment"),
]

POSITIONS = {"Qwen/Qwen2.5-Math-7B": 4096, "Qwen/Qwen3-8B-Base": 32768}  # of their configurations on the hub
METHODS = {
    "none": {},
    "low_prob": {"method": "low_prob", "alpha": 0.2},
    "low_prob current": {"method": "low_prob", "alpha": 0.2, "pi_source": "current"},
    "dominate": {"method": "dominate", "alpha": 0.1},
    "dominate current": {"method": "dominate", "alpha": 0.1, "pi_source": "current"},
    "alpha 0": {"method": "low_prob", "alpha": 0.0},
}
# What a user may add, and what verl says of it; nothing where it takes it.
ADDED = {
    "actor_rollout_ref.actor.fsdp_config.fsdp_size=32": None,
    "+actor_rollout_ref.rollout.engine_kwargs.vllm.kv_cache_dtype=fp8": None,
    "algorithm.norm_adv_by_std_in_grpo=False": None,
    "data.train_batch_sise=3": "Could not override 'data.train_batch_sise'",
    "+actor_rollout_ref.actor.alpha=1": "unexpected keyword argument 'alpha'",
}


def spec_of(preset="qwen25-math-7b", verl=(), **dapo):
    return load_train({"preset": preset, "dapo": dapo, "verl": {"overrides": list(verl)} if verl else {}})


def texts(spec, seed=0, base=None):
    return [line.text for line in arguments(spec, seed, Path("/runs/x"), base or spec.base)]


@functools.cache
def shipped():
    """Return every training through verl that is shipped: the presets', and each of the sweeps'."""
    specs = {preset: load_train({"preset": preset}) for preset in PRESETS}
    for file in sorted(sweeps_dir().glob("*.yaml")):
        sweep = load_sweep(read_yaml(file))
        if isinstance(sweep, TrainingSweep) and sweep.plain_dapo.backend == "verl":
            specs[f"{file.stem} plain"] = sweep.plain_dapo
            specs |= {f"{file.stem} {point}": sweep.training(point) for point in listed_points(sweep)}
    return specs


def engines(folder):
    """Return the arguments of all these, with a tiny base that has as many positions as the hub's says it has."""
    bases = {name: str(folder / name) for name in POSITIONS}
    for name, positions in POSITIONS.items():
        copytree(tiny_pair().base, bases[name])
        edit(bases[name], {"max_position_embeddings": positions})
    found = {name: texts(spec, base=bases[spec.base]) for name, spec in shipped().items()}
    asked = {engine_of(lines): lines for lines in found.values()}  # each once: methods differ, engines rarely
    same = {name: list(asked).index(engine_of(lines)) for name, lines in found.items()}
    return same, {"overrides": dict(enumerate(asked.values())), "also": vllm_of_the_tests(folder)}


def engine_of(lines):
    """Return those of a training's arguments that its model and its rollouts have."""
    sections = ("actor_rollout_ref.rollout.", "actor_rollout_ref.model.")
    return tuple(text for text in lines if text.lstrip("+").startswith(sections))


def numbers():
    draw = torch.Generator().manual_seed(1)
    old = -torch.rand(6, 9, generator=draw, dtype=torch.float64) * 4
    new = old + torch.randn(6, 9, generator=draw, dtype=torch.float64) * 0.5
    new[0, 0] = old[0, 0] + 3.0  # beyond the dual clip, where the advantage is negative
    advantages = torch.randn(6, 1, generator=draw, dtype=torch.float64).expand(6, 9).clone()
    advantages[0] = -1.5
    mask = torch.rand(6, 9, generator=draw) < 0.8
    return old, new, advantages, mask


def rows():
    """Three groups of four in mixed order, of different lengths, and a row of padding."""
    draw = torch.Generator().manual_seed(2)
    order = torch.randperm(12, generator=draw).tolist()
    found = {}
    for place in order:
        length = 3 + place % 4
        verdict = {"acc": float(place % 3 == 0), "ungraded": float(place == 5)}
        found[f"u{place // 4}_{place % 4}_0"] = {
            "uid": f"u{place // 4}",
            "response_mask": [1] * (length - 1) + [place % 2],
            "old_log_probs": (-torch.rand(length, generator=draw) * 3).tolist(),
            "advantages": [float(torch.randn(1, generator=draw))] * length,
            "verdict": verdict,
        }
    found["pad"] = {
        "uid": "u0", "response_mask": [0], "old_log_probs": [0.0], "advantages": [0.0], "verdict": {"acc": 1.0},
        "padding": True,
    }  # fmt: skip
    return found


UPDATE = {
    "steps": 1, "prompts": 4, "samples": 2, "minibatches": 2, "method": "low_prob", "alpha": 0.5, "learning_rate": 1e-3,
    "weight_decay": 0.1, "max_response_tokens": 24,
}  # fmt: skip
ADVANTAGES = [1.0, -1.0, 0.5, -2.0, 1.5, -0.5, 1.0, -1.0]


@functools.cache
def responses():
    """Prompts of the tiny task and responses that the base draws to them, of different lengths, as tokens."""
    base = tiny_pair().base
    tokenizer, draw = AutoTokenizer.from_pretrained(base), torch.Generator().manual_seed(3)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    prompts, written = [], []
    for row in rl_problems(0, UPDATE["prompts"]):
        prompt = tokenizer.apply_chat_template(row["prompt"], add_generation_prompt=True, return_dict=False)
        for _ in range(UPDATE["samples"]):
            tokens = list(prompt)
            for _ in range(4 + 2 * len(written)):
                with torch.no_grad():
                    last = model(torch.tensor([tokens])).logits[0, -1] / 2  # some likely, some not
                tokens.append(int(torch.multinomial(last.softmax(-1), 1, generator=draw)))
            prompts.append(prompt)
            written.append(tokens[len(prompt) :])
    return prompts, written


def real_update(folder):
    base = tiny_pair().base
    spec = load_train({"backend": "verl", "base": base, "data": "x", "dapo": UPDATE, "verl": {"gpus_per_node": 1}})
    prompts, written = responses()
    return {
        "overrides": [*texts(spec), *CPU], "folder": str(folder), "prompts": prompts, "responses": written,
        "advantages": ADVANTAGES,
    }  # fmt: skip


PAIRS = [
    ("1/2", r"so \boxed{0.5}"), ("204", r"\boxed{204}"), ("204", r"\boxed{205}"), ("204", "204"),
    ("7", r"\boxed{9^{9^{9^9}}}"),
]  # fmt: skip


# Two problems of two samples of one benchmark, one of another, of which a sample came back without a verdict.
VALIDATION = {
    "samples": 2,
    "sources": ["aime24"] * 4 + ["amc"] * 2,
    "uids": ["x", "x", "y", "y", "z", "z"],
    "problem": [7.0, 7.0, 0.0, 0.0, 0.0, None],
    "acc": [1.0, 0.0, 1.0, 1.0, 1.0, None],
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    actor = tmp_path_factory.mktemp("checkpoint") / "actor"
    old, new, advantages, mask = numbers()
    case = {"old": old.tolist(), "new": new.tolist(), "advantages": advantages.tolist(), "mask": mask.tolist()}
    ppl = {"method": "ppl", "alpha": 0.3}
    asked = {
        "losses": {name: {**case, "overrides": texts(spec_of(**dapo))} for name, dapo in METHODS.items()},
        "hooks": {
            "batch": {"rows": rows(), "settings": {**ppl, "scope": "batch"}},
            "group": {"rows": rows(), "settings": {**ppl, "scope": "group"}},
            "none": {"rows": rows(), "settings": None},
            "low_prob": {"rows": rows(), "settings": {"method": "low_prob", "alpha": 0.5}},
        },
        "validation": VALIDATION,
        "reward": {"overrides": texts(spec_of()), "pairs": PAIRS},
        "math_dapo": [(gold, response) for gold, response, _ in CASES],
        "shards": {"base": tiny_pair().base, "actor": str(actor)},
        "compositions": {
            "odd names": texts(spec_of(), base="/a b/it's ${x}, [1]=2\\"),
            **{f"{preset} {name}": texts(spec_of(preset, **dapo))
               for preset in PRESETS
               for name, dapo in {**METHODS, "ppl": {"method": "ppl"}, "kl": {"beta": 0.001}}.items()},
            **{added: texts(spec_of("qwen3-8b-base", [added])) for added in ADDED},
        },
    }  # fmt: skip
    return {**inside(asked), "actor": actor}


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """verl's own actor and the launch of its own server, on a CPU that is one of its platforms."""
    folder = tmp_path_factory.mktemp("real")
    modules = "tests.train.verl.cpu,rlvr_dir.train.verl.plugin"
    same, launched = engines(folder)
    asked = {"update": real_update(folder), "engines": launched}  # in this order: the second widens the path
    found = inside(
        asked, VERL_USE_EXTERNAL_MODULES=modules, VERL_ENGINE_DEVICE="cuda", VERL_ENGINE_VENDOR="nvidia"
    )  # FSDP is registered by the names of a GPU
    engine = {name: found["engines"][str(number)] for name, number in same.items()}
    return {**found, "engines": engine, "folder": folder}


def inside(asked, **environment):
    """Ask verl's environment once for all of these; what comes back is named as what is asked for."""
    done = subprocess.run(
        [ENVIRONMENT, Path(__file__).with_name("inside.py")],
        input=json.dumps(asked), capture_output=True, text=True,
        env=os.environ | {"RLVR_DIR_NO_AUTOLOAD": "1"} | environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", METHODS)
def test_loss_and_gradient_are_ours(answers, name):
    """Our weights in TRL's formula: min(min(r, delta) A, clip(r) A), mean over the tokens."""
    old, new, advantages, mask = numbers()
    spec = spec_of(**METHODS[name]).dapo
    new.requires_grad_()
    source = old if spec.pi_source == "old" else new
    weighed = advantages * token_weights(spec.reweighting, source, mask)
    ratio = (new - old).exp()
    clipped = ratio.clamp(1 - spec.clip_low, 1 + spec.clip_high)
    loss = -(torch.minimum(ratio.clamp(max=spec.delta) * weighed, clipped * weighed) * mask).sum() / mask.sum()
    loss.backward()
    theirs = answers["losses"][name]
    assert theirs["loss"] == pytest.approx(loss.item(), rel=1e-12)
    torch.testing.assert_close(torch.tensor(theirs["gradient"], dtype=torch.float64), new.grad, rtol=1e-6, atol=1e-12)
    assert torch.count_nonzero(new.grad) > 10
    if spec.method != "none":
        weight = (weighed / advantages)[mask].mean().item()
        assert theirs["metrics"]["actor/advantage_weight"] == pytest.approx(weight, rel=1e-6)


def test_a_real_update_of_verls_actor_is_ours(real):
    """verl's worker, FSDP (one process, gloo) and optimizer against the same two updates in plain torch."""
    model = AutoModelForCausalLM.from_pretrained(tiny_pair().base, dtype=torch.float32)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    optimizer = torch.optim.AdamW(model.parameters(), lr=UPDATE["learning_rate"], weight_decay=UPDATE["weight_decay"])
    prompts, written = responses()

    def logp(row):
        ids = torch.tensor([prompts[row] + written[row]])
        start = len(prompts[row])
        every = torch.log_softmax(model(ids).logits[0, start - 1 : -1], dim=-1)
        return every.gather(1, ids[0, start:, None])[:, 0]

    with torch.no_grad():
        old = [logp(row) for row in range(len(written))]
    for row, theirs in zip(old, real["update"]["old"], strict=True):
        torch.testing.assert_close(torch.tensor(theirs), row, rtol=0, atol=2e-5)
    losses, norms = [], []
    for rows in (range(4), range(4, 8)):
        pieces, tokens = [], sum(len(written[row]) for row in rows)
        for row in rows:
            ratio = (logp(row) - old[row]).exp()
            advantage = ADVANTAGES[row] * (1 + UPDATE["alpha"] * (1 - old[row].exp()))
            clipped = ratio.clamp(1 - 0.2, 1 + 0.28)
            pieces.append(torch.minimum(ratio.clamp(max=10) * advantage, clipped * advantage).sum())
        loss = -torch.stack(pieces).sum() / tokens
        optimizer.zero_grad()
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)))
        optimizer.step()
        losses.append(loss.item())
    metrics = real["update"]["metrics"]
    assert metrics["actor/pg_loss"] == pytest.approx(losses, abs=2e-5)
    assert metrics["grad_norm"] == pytest.approx(norms, rel=1e-3)
    theirs = torch.load(real["folder"] / "weights.pt")
    for name, value in model.state_dict().items():
        if name in theirs:  # the tied output layer is not listed again
            assert (value - before[name]).abs().max() > 5e-4
            # Where a gradient is about zero Adam divides noise by noise: its step is anything up to the learning rate.
            apart = (theirs[name] - value).abs()
            assert (apart.max() < UPDATE["learning_rate"], (apart > 1e-4).float().mean() < 1e-3) == (True, True), name
    assert len(theirs) >= len(before) - 1


def test_vllm_inside_verl_takes_what_every_shipped_training_asks(real):
    assert len(shipped()) >= 15
    for name, spec in shipped().items():
        assert real["engines"][name] == [2048 + spec.dapo.max_response_tokens, 32768, 4], name


@pytest.mark.parametrize("part", ["loss", "gradient"])
def test_alpha_0_is_verls_own_loss_to_the_bit(answers, part):
    assert answers["losses"]["alpha 0"][part] == answers["losses"]["none"][part]


@pytest.mark.parametrize("scope", ["batch", "group"])
def test_the_trainer_weighs_by_perplexity(answers, scope):
    given = rows()
    real = {key: row for key, row in given.items() if not row.get("padding")}
    found = answers["hooks"][scope]["advantages"]
    sets = [real] if scope == "batch" else [
        {key: row for key, row in real.items() if row["uid"] == uid} for uid in ("u0", "u1", "u2")
    ]  # fmt: skip
    for members in sets:
        # The oracle, in float64: log PPL, then over the set (x - mean) / (std + 1e-6), the population's std.
        perplexity = np.array([
            -np.mean([logp for logp, inside in zip(row["old_log_probs"], row["response_mask"], strict=True) if inside])
            for row in members.values()
        ])  # fmt: skip
        z = (perplexity - perplexity.mean()) / (perplexity.std() + 1e-6)
        for (key, row), its_z in zip(members.items(), z.tolist(), strict=True):
            for value, before, inside in zip(found[key], row["advantages"], row["response_mask"], strict=True):
                assert value == pytest.approx(before * (1 - 0.3 * its_z) if inside else before, rel=1e-5)
    assert found["pad"] == [0.0]


def test_the_trainer_counts_verdicts_and_leaves_other_advantages_alone(answers):
    hook = answers["hooks"]["none"]
    counted = {name: value for name, value in hook["metrics"].items() if "share" not in name}
    assert counted == {"rlvr_dir/responses": 12, "rlvr_dir/ungraded": 1, "rlvr_dir/accuracy": 4 / 11}
    for key, row in rows().items():
        assert hook["advantages"][key] == pytest.approx(row["advantages"])


@pytest.mark.parametrize(("name", "alpha"), [("none", 0.0), ("low_prob", 0.5)])
def test_the_trainer_shares_the_gradient_out_by_probability(answers, name, alpha):
    """Lemma 1 token by token: 2 |A| (1 - pi), A weighed by 1 + alpha (1 - pi); padding and masked tokens have none."""
    mass, tokens = [0.0] * 10, [0] * 10
    for row in rows().values():
        for logp, advantage, inside in zip(row["old_log_probs"], row["advantages"], row["response_mask"], strict=True):
            if inside and not row.get("padding"):
                p = math.exp(logp)
                mass[int(10 * p)] += 2 * abs(advantage) * (1 + alpha * (1 - p)) * (1 - p)
                tokens[int(10 * p)] += 1
    metrics = answers["hooks"][name]["metrics"]
    for i in range(10):
        assert metrics[f"rlvr_dir/gradient_share/{i}"] == pytest.approx(mass[i] / sum(mass), abs=1e-6)
        assert metrics[f"rlvr_dir/token_share/{i}"] == pytest.approx(tokens[i] / sum(tokens))


def test_the_trainer_counts_validations_by_problem(answers):
    """What verl's own log lacks for an interval; our line of the log has its score from them."""
    found = answers["validation"]
    counts = {"aime24/0": 2, "aime24/7": 1, "amc/0": 1}
    assert {name: value for name, value in found.items() if name.startswith("rlvr_dir/")} == {
        f"rlvr_dir/right/2/{name}": count for name, count in counts.items()
    }
    assert not [name for name in found if "/problem/" in name]
    [record] = translate({"step": 5, "data": found}, load_train({"preset": "qwen25-math-7b"}).dapo)
    scores = record["validation"]
    assert scores["aime24"]["avg"] == found["val-core/aime24/acc/mean@2"] == 0.75
    assert (scores["aime24"]["right"], scores["aime24"]["pass"]) == ({"0": 2, "7": 1}, 0.75)
    assert scores["amc"]["avg"] == 0.5  # without a verdict is wrong
    assert not [name for name in record["verl"] if name.startswith("rlvr_dir/")]


def test_the_reward_is_the_graders(answers):
    for index, ((gold, response), reward) in enumerate(zip(PAIRS, answers["reward"], strict=True)):
        verdict = grade(gold, response)
        scored = {"score": 2.0 * verdict.correct - 1, "acc": verdict.correct, "ungraded": not verdict.graded}
        assert reward == {**scored, "problem": index}


def test_the_authors_grader_is_verls(answers):
    mine = [grade(gold, response, grader="math_dapo").correct for gold, response, _ in CASES]
    assert mine == answers["math_dapo"]


TAKEN = [f"{preset} {name}" for preset in PRESETS for name in (*METHODS, "ppl", "kl")]


@pytest.mark.parametrize("name", ["odd names", *TAKEN, *ADDED])
def test_verl_takes_our_arguments_and_says_what_is_wrong_with_others(answers, name):
    error, words = answers["compositions"][name], ADDED.get(name)
    assert (error is None) if words is None else (words in error)


def test_verls_merger_makes_a_model_that_loads(answers, tmp_path):
    command = ["-m", "verl.model_merger", "merge", "--backend", "fsdp", "--local_dir", answers["actor"]]
    done = subprocess.run(
        [ENVIRONMENT, *command, "--target_dir", tmp_path / "rl"], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr[-2000:]
    state = AutoModelForCausalLM.from_pretrained(tmp_path / "rl").state_dict()
    for name, total in answers["shards"].items():
        assert float(state[name].double().sum()) == pytest.approx(total, abs=0.5)  # bfloat16


def test_versions_are_those_of_the_environment(monkeypatch):
    monkeypatch.chdir(HOUSE)
    with pytest.raises(UserError, match="No package metadata was found for vllm"):  # it can check, and not train
        check_versions(PYTHON)


@pytest.mark.parametrize(
    ("added", "words"),
    [
        ([], " arguments"),
        (
            ["--set", "verl.overrides=[data.shufle=False]"],
            "Could not override 'data.shufle'",
        ),
    ],
)
def test_a_dry_run_has_verl_compose_its_configuration(typed, tmp_path, added, words):
    asked = ["train", "--preset", "qwen3-8b-base", "--method", "ppl", "--dry-run", "--out", tmp_path / "x"]
    done = typed(*asked, "--set", f"verl.python={ENVIRONMENT}", *added)
    assert (done.returncode, words in done.stderr) == (2 if added else 0, True), done.stderr
    lacking = "importlib.metadata.PackageNotFoundError: No package metadata was found for vllm" in done.stderr
    assert lacking == (not added), "what the training itself would be refused for is said, too"
    assert not (tmp_path / "x").exists()
