"""The command line as a person meets it: help that lists what there is; mistakes are one line and exit status 2."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.main import get_command

from rlvr_dir import cli
from rlvr_dir.config import EngineSpec
from rlvr_dir.errors import UserError, mention
from tests.commands import refused
from tests.facts import states
from tests.records.made import read, stored_count

RLVR_DIR = Path(sys.executable).with_name("rlvr-dir")


def run(*arguments):
    """Run the command in a process of its own."""
    return subprocess.run(
        [RLVR_DIR, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "NO_COLOR": "1"},
    )


def option_names(*words):
    """Return arguments as options of `eval`, as they were typed in these words."""
    root = get_command(cli.app)
    return root.get_command(root.context_class(root), "eval").option_names(words)


@pytest.mark.parametrize(
    ("words", "arguments", "as_typed"),
    [
        (["--pretrained", "x"], {"pretrained": "x", "base": "y"}, "--pretrained x, --base y"),
        (["--rl=x"], {"pretrained": "x", "rl": "x"}, "--rl x, --rl x"),
        (["-d", "replace,tau=9"], {"tau": 9}, "tau=9"),
        (["-dreplace"], {"tau": 9}, "tau=9"),
        (["spec.yaml"], {"tau": 9}, "tau=9"),
        (["spec.yaml", "--tau", "9"], {"tau": 9, "mode": "rl"}, "--tau 9, mode=rl"),
        (["--tau", "9"], {"max_tokens": 9, "tau": 8, "nothing": 1}, "--max-tokens 9, --tau 8, nothing=1"),
        (["x", "y", "-d", "rl"], {"base": "x", "pretrained": "y", "tau": 9}, "BASE x, RL y, tau=9"),
        (["-d", "rl", "--limit", "3"], {"base": "x"}, "--base x"),
        ([], {"decodings.1.tau": 9, "sampling.seed": 1}, "decodings.1.tau=9, sampling.seed=1"),
    ],
)
def test_errors_name_options_as_they_were_typed(words, arguments, as_typed):
    error = UserError(", ".join(mention(name, value) for name, value in arguments.items()))
    assert error.sentence(option_names(*words)) == as_typed
    assert str(error) == ", ".join(f"{name}={value}" for name, value in arguments.items())


def test_a_value_that_reads_like_an_option_stays_as_it_is():
    prompt = UserError(argument="prompt", value="a tau=3 b").sentence(option_names("--prompt", "a tau=3 b"))
    assert prompt.startswith("--prompt 'a tau=3 b' ")


def test_half_a_pair_is_refused_with_options_that_exist():
    """The sentence said `--pretrained RL,--base BASE`."""
    sentence = refused("eval", "--tasks", "tiny_easy", "--no-track", "--revision", "x")
    states(sentence, "--revision x", "--base BASE", "--pair NAME")


@pytest.mark.parametrize("typed", [["--pretrained", "./nope"], ["--rl", "./nope"], ["--rl=./nope"]])
def test_an_option_of_two_names_is_called_as_it_was_typed(typed):
    name = typed[0].partition("=")[0]
    sentence = refused("eval", "--tasks", "tiny_easy", "--no-track", *typed, "--base", "./none")
    assert sentence.startswith(f"{name} './nope' ")


def test_help_has_the_usual_options_and_help_all_every_one():
    """Of 53 options a newcomer needs a dozen and a half."""
    root = get_command(cli.app)
    params = root.get_command(root.context_class(root), "eval").params
    every = {name for param in params if param.param_type_name == "option" for name in param.opts if name[:2] == "--"}
    usual, whole = (run("eval", option).stdout for option in ("--help", "--help-all"))
    shown = {text: set(re.findall(r"^ +(?:-d, )?(--[a-z-]+)", text, re.M)) for text in (usual, whole)}
    assert {"--tasks", "--tau", "--samples", "--out"} <= shown[usual] < shown[whole]
    assert {param.opts[0] for param in params if param.opts[0][:2] == "--"} <= shown[whole] <= every | {"--help"}
    assert "--help-all shows" not in whole
    assert int(re.search(r"--help-all shows (\d+) more", usual)[1]) == len(shown[whole]) - len(shown[usual])
    assert "--help-all" not in run("compare", "--help").stdout, "where nothing is left out"


def test_the_commands_are_in_three_groups():
    text = run("--help").stdout
    assert re.findall(r"^([A-Z]\w+):$", text, re.M) == ["Options", "Use", "Results", "Upkeep"]
    assert re.findall(r"^  ([a-z]+)  ", text.partition("Use:")[2], re.M) == list(cli.COMMANDS)


def test_help_says_what_an_option_is_where_it_is_not_given():
    """A default that its description happened to have the letters of, as `rl`, or that is 0, was not said."""
    root = get_command(cli.app)
    helps = {each.opts[0]: each.help for each in root.get_command(root.context_class(root), "eval").params}
    for option, default in {"--criterion": "delta_logp", "--seed": "0", "--backend": "auto"}.items():
        assert helps[option].endswith(f" Default: {default}."), option
    assert "replace" in helps["--mode"].rpartition("Default:")[2]  # which --tau asks for
    assert not [option for option, words in helps.items() if words and words.count("efault") > 1]


def test_keys_of_a_file_are_no_options():
    """`--decodings rl` was accepted and ignored."""
    root = get_command(cli.app)
    for name in ("eval", "view"):
        command = root.get_command(root.context_class(root), name)
        assert not {"--decodings", "--sampling"} & {option for each in command.params for option in each.opts}, name


def test_every_command_that_decodes_takes_every_engine_option_of_eval():
    root = get_command(cli.app)
    found = {name: root.get_command(root.context_class(root), name) for name in ("eval", "view", "score", "analyse")}
    found |= found.pop("analyse").commands
    taken = {name: {option for each in command.params for option in each.opts} for name, command in found.items()}
    engine = {f"--{name.replace('_', '-')}" for name in EngineSpec.model_fields if name != "vllm_args"}
    for name in ("eval", "view", "gated", "score"):
        assert engine <= taken[name], name


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["eval", "--tasks", "aime99"], "task aime99"),
        (["eval", "--tasks", "tiny_easy", "--mode", "nope"], "--mode nope"),
        (["eval", "--tasks", "tiny_easy", "--mode", "replace"], "--mode tau -0.3"),
        (["eval", "--tasks", "tiny_easy", "--pair", "dapo"], "--pair dapo"),
        (["eval", "--tasks", "tiny_easy", "--base", "x"], "--base pretrained --pair"),
        (["eval", "--tasks", "tiny_easy", "--rl", "x"], "--rl base --pair"),
        (["eval", "--tasks", "tiny_easy", "-d", "replace,tua=1"], "tua tau"),
        (["eval", "--tasks", "tiny_easy", "-d", "rl", "--tau", "-1"], "--tau -1 decoding"),
        (["eval", "--tasks", "tiny_easy", "-d", "rl", "-d", "rl"], "decodings rl"),
        (["eval", "--tasks", "tiny_easy", "--grader", "exact"], "--grader exact"),
        (["eval", "--tasks", "tiny_easy", "--tracking", "ftp://x"], "--tracking ftp://x"),
        (["compare", "/nonexistent"], "results /nonexistent"),
        (["eval", "--tasks", "tiny_easy", "--top-p", "0"], "--top-p 0.0"),
        (["eval", "/nonexistent.yaml"], "file /nonexistent.yaml"),
        (["ui", "--store", "/nonexistent"], "--store /nonexistent mlflow.db"),
        (["ui", "--port", "99999"], "--port 99999 65535"),
        (["eval", "--tasks", "tiny_easy", "--tau", "abc"], "--tau abc"),
        (
            ["eval", "--tasks", "tiny_easy", "--tasks=tiny_hard"],
            "2 tiny_easy tiny_hard",
        ),
        (
            ["eval", "--tasks", "tiny_easy", "--records", __file__],
            __file__,
        ),
        (["train", "--against", "/nonexistent"], "against /nonexistent summary.json"),
        (["score", "/dev/null"], "texts /dev/null"),
        (["score", "/dev/null", "--writer", "x"], "--writer x"),
        (["analyse", "texts", "/dev/null"], "analyse score"),
        (["records", "grade", "--grader", "foo"], "--grader foo math_dapo"),
        (["serve", "--name", "a:b"], "--name a:b"),
        (
            ["records", "export", "x", "--out", "y", "--form", "csv"],
            "form csv jsonl",
        ),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)
def test_a_mistake_is_one_line_and_exit_status_2(typed, arguments, words):
    done = typed(*arguments)
    assert done.returncode == 2
    states(done.stderr, *words.split())
    assert [line for line in done.stderr.splitlines() if line.startswith("error: ")] == done.stderr.splitlines()[-1:]


def test_eval_end_to_end_on_the_reference_engine(typed, tmp_path):
    """Five decodings of two tasks in one call; again from the records, graded anew, and compared from them."""
    from rlvr_dir.results import EvalResult

    command = [
        "eval", "--tasks", "tiny_easy,tiny_medium", "-d", "extrapolate,tau=-0.3,gamma=0.1", "--controls",
        "--samples", "2", "--limit", "3", "--backend", "transformers", "--max-tokens", "60", "--out", str(tmp_path),
    ]  # fmt: skip
    done = typed(*command)
    assert done.returncode == 0, done.stderr
    labels = ("base", "rl", "veto τ-0.3", "reject τ-0.3", "replace τ-0.3", "extrapolate τ-0.3 γ0.1")
    shown = [
        line.strip().split("  ")[0] for line in done.stdout.splitlines() if line.startswith("  ") and " % " in line
    ]
    shown = [label for label in shown if not label.startswith("correct")]  # the head of the table
    assert [*dict.fromkeys(shown)][:2] == ["base", "rl"]
    assert set(shown) == set(labels)
    assert len(re.findall(r" − .*[+-][0-9.]+ points ", done.stdout)) == 16  # comparisons
    results = [EvalResult.from_json(path.read_text()) for path in tmp_path.glob("tiny_*.json")]
    assert len(results) == 12
    assert {r.decoding.label() for r in results} == set(labels)
    assert all(r.correct.shape == (3, 2) for r in results)
    again = typed(*command)
    assert again.stdout == done.stdout
    assert "decode:" not in again.stderr
    assert len(list(tmp_path.glob("tiny_*.json"))) == 12
    regraded = typed(*command, "--grader", "plain", "--no-track")
    assert regraded.stdout == done.stdout  # integers: both graders agree
    assert "decode:" not in regraded.stderr
    details = typed(*command, "--details", "--no-track").stdout
    assert details.startswith(done.stdout.rstrip())
    from_records = typed("compare", str(tmp_path / "records"))
    assert sorted(from_records.stdout.split()) == sorted(details[details.rindex("\n| benchmark") :].split())


@pytest.mark.whole(reason="three commands as a user runs them")
def test_ctrl_c_keeps_what_was_decoded_and_the_same_command_goes_on(tmp_path):
    def command(out):
        return [
            RLVR_DIR, "eval", "--tasks", "tiny_medium", "--mode", "replace", "--tau", "-0.1", "--samples", "6",
            "--limit", "10", "--backend", "transformers", "--max-num-seqs", "4", "--max-tokens", "200", "--no-track",
            "--out", str(tmp_path / out),
        ]  # fmt: skip

    whole = run(*command("whole")[1:])
    with subprocess.Popen(command("cut"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while process.poll() is None and stored_count(tmp_path / "cut" / "records") < 8:
            time.sleep(0.01)  # not to take half of a busy machine
        process.send_signal(signal.SIGINT)
        _, said = process.communicate()
    assert process.returncode == 130, said
    states(said, tmp_path / "cut" / "records")
    held = stored_count(tmp_path / "cut" / "records")
    assert 0 < held < 60
    rest = run(*command("cut")[1:])
    assert rest.returncode == 0
    assert rest.stdout == whole.stdout
    assert read(tmp_path / "cut/records").digest() == read(tmp_path / "whole/records").digest()


@pytest.mark.parametrize(
    ("words", "start", "near"),
    [(["evall"], "command evall", "eval"), (["records", "lst"], "records lst", "list"), (["x"], "command x", "")],
)
def test_a_command_that_is_not_known_gets_its_near_name(words, start, near):
    sentence = refused(*words)
    states(sentence, *start.split(), f"'{near}'" if near else "")


def test_the_list_of_sweeps_is_a_table_that_fits():
    lines = run("sweep", "list").stdout.splitlines()
    assert lines[0].split() == ["sweep", "pair", "about"]
    assert any(line.startswith("dapo32b_tau_gamma ") and " dapo-32b " in line for line in lines)
    assert max(map(len, lines)) <= 120
    assert "The tau x gamma grid on the tiny pair: runs to the end" in run("sweep", "list", "--long").stdout


def test_a_training_without_validation_cannot_be_compared():
    sentence = refused("train", "--steps", "1", "--validate", "none", "--against", "runs/train/DAPO")
    assert "compares validations, and this training has none" in sentence
