"""Specs: what is accepted, what is refused and how, and hashes that mean the same everywhere."""

import warnings

import pytest

from rlvr_dir.config import Decoding, EngineSpec, EvalSpec, Pair, Sampling, parse
from rlvr_dir.config.decoding import check_together, parse_decoding
from rlvr_dir.decode.plan import rule_of
from rlvr_dir.errors import UserError
from rlvr_dir.policy.gates.position import DeltaLogp
from tests.facts import refuses, states, warns_of


@pytest.mark.parametrize(
    ("spec", "data", "message"),
    [
        (
            Decoding,
            {"mode": "replcae", "tau": -1},
            "mode replcae replace",
        ),
        (
            Decoding,
            {"mode": "replace", "tau": -1, "criterion": "entropy"},
            "criterion entropy entropy_rl",
        ),
        (Decoding, {"mode": "replace"}, "tau mode replace"),
        (Decoding, {"mode": "replace", "tau": -0.3, "gamma": 0.1}, "gamma 0.1"),
        (Decoding, {"mode": "rl", "tau": -0.3}, "tau -0.3"),
        (
            Decoding,
            {"mode": "base", "primary": "rl"},
            "primary rl mode base",
        ),
        (Decoding, {"mode": "base", "gate": DeltaLogp(tau=-1)}, "gate mode base replace"),
        (Decoding, {"tao": -1}, "tao tau"),
        (Decoding, {"mode": "extrapolate", "tau": -1, "gamma": -1.1}, "gamma -1.1"),
        (Decoding, {"mode": "replace", "tau": float("nan")}, "tau nan"),
        (Decoding, {"mode": "replace", "criterion": "always", "tau": 1}, "tau 1"),
        (Decoding, {"mode": "rl", "side": "above"}, "side above"),
        (Decoding, {"mode": "replace", "tau": 0.1, "side": "over"}, "side over"),
        (Decoding, {"mode": "replace", "tao": -1}, "tao tau"),
        (Sampling, {"top_p": 0}, "top_p 0"),
        (Sampling, {"top_p": 1.5}, "top_p 1.5"),
        (Sampling, {"min_p": 0.1}, "min_p"),
        (Sampling, {"temperature": 1e-5}, "temperature 1e-05"),
        (Sampling, {"temperature": 0, "samples": 8}, "samples 8"),
        (Sampling, {"samples": 0}, "samples 0"),
        (EngineSpec, {"backend": "sglang"}, "backend sglang"),
        (Pair, {"base": "x"}, "rl"),
    ],
)
def test_mistakes_are_refused_in_one_sentence(spec, data, message):
    with refuses(*message.split()):
        parse(spec, data)


@pytest.mark.parametrize(
    ("criterion", "tau", "words"),
    [("delta_logp", 0.3, "positive"), ("kl", -0.1, "negative"), ("random", 1.5, "[0 1")],
)
def test_a_threshold_of_the_wrong_sign_is_warned_of(criterion, tau, words):
    with warns_of(*words.split()):
        Decoding(mode="replace", criterion=criterion, tau=tau)


@pytest.mark.parametrize(
    ("criterion", "tau"), [("delta_logp", -0.3), ("delta_logp", 0.0), ("kl", 0.1), ("random", 0.1)]
)
def test_a_threshold_of_the_right_sign_is_not(criterion, tau):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Decoding(mode="replace", criterion=criterion, tau=tau)


def test_one_meaning_has_one_hash():
    assert Decoding(mode="base").hash() == Decoding(mode="base", primary="base").hash()
    assert Decoding(mode="replace", tau=-1).hash() == Decoding(tau=-1.0, primary="base", mode="replace").hash()
    different = [
        Decoding(mode="replace", tau=-1),
        Decoding(mode="replace", tau=-1, primary="rl"),
        Decoding(mode="extrapolate", tau=-1, gamma=0.1),
        Decoding(mode="replace", tau=-1.5),
        Decoding(mode="rl"),
    ]
    assert len({d.hash() for d in different}) == len(different)


def test_the_hash_is_the_same_in_another_process_and_version():
    assert Decoding(mode="extrapolate", tau=-0.3, gamma=0.05).hash() == "a517e5a338e7bf81"


def test_a_side_that_is_the_criterions_own_is_none():
    plain = Decoding(mode="replace", tau=-0.3)
    assert Decoding(mode="replace", tau=-0.3, side="below") == plain
    above = Decoding(mode="replace", tau=0.3, side="above")
    assert (above.gate.holds_below, plain.gate.holds_below, above.criterion) == (False, True, "delta_logp above")
    assert parse(Decoding, above.model_dump()) == above
    assert above.hash() != Decoding(mode="replace", tau=0.3).hash()


def test_each_target_has_one_name():
    """RL is replace and base is resample, whatever was written; a veto has a strength only where it is not base's."""
    written = {
        "extrapolate,tau=-0.3,gamma=0": "replace τ-0.3",
        "extrapolate,tau=-0.3,gamma=-1": "resample τ-0.3",
        "resample,tau=-0.3,gamma=-1": "resample τ-0.3",
        "resample,tau=0.1,criterion=kl,primary=rl": "resample τ0.1 kl on rl",
        "veto,tau=-0.3": "veto τ-0.3",
        "veto,tau=-0.3,gamma=0": "veto τ-0.3 by RL",
        "veto,tau=-0.3,primary=rl": "veto τ-0.3 by base on rl",
        "veto,tau=-0.3,primary=rl,gamma=0": "veto τ-0.3 on rl",
        "reject,tau=-0.3": "reject τ-0.3",
        "reject,tau=-0.3,gamma=-1": "reject τ-0.3",
        "reject,tau=0.1,criterion=kl,primary=rl,sign=positive": "reject τ0.1 kl positive on rl",
        "veto,tau=-0.3,gamma=0.1,window=:16": "veto τ-0.3 γ0.1 delta_logp @0:16",
    }
    for text, label in written.items():
        found = parse_decoding(text)
        assert found.label() == label
        assert parse(Decoding, found.model_dump()) == found
    assert parse_decoding("extrapolate,tau=-0.3,gamma=-1").hash() == parse_decoding("resample,tau=-0.3").hash()
    with refuses("gamma", "0.0", "mode", "resample"):
        parse_decoding("resample,tau=-0.3,gamma=0")
    for mode in ("veto", "reject"):
        with refuses("mode", mode, "coupling"):
            parse_decoding(f"{mode},criterion=coupling")
    for text, writes in (("reject,tau=-0.3,gamma=0", "base"), ("reject,tau=-0.3,gamma=0.5,primary=rl", "rl")):
        with refuses("gamma", "reject", "veto", writes):
            parse_decoding(text)
    with refuses("tau", "reject"):
        parse_decoding("reject")


@pytest.mark.parametrize(
    ("text", "chain"),
    [
        ("replace,tau=-0.3", ["reject τ-0.3", "veto τ-0.3"]),
        ("extrapolate,tau=-0.3,gamma=0.1", ["replace τ-0.3", "reject τ-0.3", "veto τ-0.3"]),
        ("resample,tau=-0.3", []),
        ("veto,tau=-0.3,gamma=0", []),
        ("replace,criterion=coupling", []),
        ("replace,criterion=always", []),
        # where RL proposes the mirror: base's token, base's decision; RL drawn again against RL without the token
        ("resample,tau=-0.3,primary=rl", ["reject τ-0.3 on rl", "veto τ-0.3 on rl"]),
        ("extrapolate,tau=-0.3,gamma=0.1,primary=rl", ["replace τ-0.3 on rl", "veto τ-0.3 on rl"]),
    ],
)
def test_each_control_differs_in_one_thing(text, chain):
    decoding, found = parse_decoding(text), []
    while (control := decoding.control()) != decoding:
        rules = [rule_of(each, Sampling()) for each in (decoding, control)]
        moves = {
            "token": rules[1].decider in ("base", "rl"),
            "decision": rules[0].decider in ("base", "rl") and rules[1].decider == "gate",
            "beyond": rules[0].gamma > 0 == rules[1].gamma,
            "again": rules[0].gamma == rules[1].gamma and (rules[0].decider, rules[1].decider) == (None, "gate"),
        }
        assert sum(moves.values()) == 1, (text, control.label())
        found.append(control.label())
        decoding = control
    assert found == chain
    assert [each.label() for each in parse_decoding(text).controls()] == chain[::-1]


@pytest.mark.parametrize(
    ("text", "same", "label"),
    [
        ("resample,decider=gate", "veto", "veto τ-0.3"),
        ("replace,decider=gate", "veto,gamma=0", "veto τ-0.3 by RL"),
        ("extrapolate,gamma=0.5,decider=gate", "veto,gamma=0.5", "veto τ-0.3 γ0.5"),
        ("resample,decider=1", "veto", "veto τ-0.3"),
        ("resample,decider=rl", "reject", "reject τ-0.3"),
        ("extrapolate,gamma=-1,decider=rl", "reject", "reject τ-0.3"),
        ("replace,decider=base,primary=rl", "reject,primary=rl", "reject τ-0.3 on rl"),
        ("extrapolate,gamma=0,decider=rl", "replace,decider=rl", "replace τ-0.3 rl decides"),
        ("resample,decider=0.910", "resample,decider=.91", "resample τ-0.3 coin 0.91"),
    ],
)
def test_decider_and_writer_have_one_form_and_short_names_are_written_as_before(text, same, label):
    decoding = parse_decoding(f"{text},tau=-0.3")
    assert decoding == parse_decoding(f"{same},tau=-0.3")
    assert decoding.label() == label
    written = decoding.model_dump(mode="json")
    assert Decoding(**written) == decoding
    assert ("decider" in written) == (decoding.mode not in ("veto", "reject"))
    assert decoding.replace(tau=-0.5).decider == decoding.decider
    assert decoding.replace(mode="replace", gamma=0.0).decider is None


def test_the_records_of_decodings_without_a_decider_keep_their_hash():
    names = {"base": "base", "replace": "replace,tau=-0.3", "veto": "veto,tau=-0.3", "reject": "reject,tau=-0.3"}
    for mode, text in names.items():
        written = parse_decoding(text).model_dump(mode="json")
        gated = {"gamma": {"replace": 0.0}.get(mode, -1.0), "window": None, "criterion": "delta_logp", "tau": -0.3}
        expected = {"mode": mode, "primary": "base", **({} if mode == "base" else {**gated, "side": None})}
        assert written == expected


@pytest.mark.parametrize(("primary", "other"), [("base", "rl"), ("rl", "base")])
def test_named_contrasts_differ_in_one_thing_and_five_of_them_add_up(primary, other):
    def cell(decider, writer):
        return Decoding(primary=primary, mode="replace", tau=-0.3).cell(decider, writer)

    steps = [("cut of other", cell(None, other)), ("token", cell(other, other)), ("decision", cell(other, primary)),
             ("cut of own", cell(primary, primary))]  # fmt: skip
    for (name, decoding), (_, after) in zip(steps, [*steps[1:], ("", cell(None, primary))], strict=True):
        assert decoding.contrasts[name] == after
    assert cell(other, other).contrasts["decision last"] == cell(primary, other)
    assert cell(primary, other).contrasts["token first"] == cell(primary, primary)
    assert cell(0.4, primary).contrasts == {"rate": cell(primary, primary)}
    for decoding in (cell(0.4, other), cell("gate", other), Decoding(mode="extrapolate", gamma=0.1, tau=-0.3)):
        assert decoding.contrasts == {}


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("veto,decider=rl,tau=-0.3", "decider"), ("reject,primary=rl,decider=rl,tau=-0.3", "decider"),
        ("resample,decider=1.2,tau=-0.3", "decider"), ("replace,decider=coin,tau=-0.3", "decider"),
        ("rl,decider=rl", "decider"), ("extrapolate,criterion=coupling,gamma=0.1,decider=rl", "decider"),
    ],
)  # fmt: skip
def test_a_decider_that_is_none_is_refused(text, fact):
    with pytest.raises(UserError) as error:
        parse_decoding(text)
    assert states(error.value, fact)


def test_a_coin_is_refused_where_nothing_is_left_to_chance():
    with pytest.raises(UserError) as error:
        check_together(parse_decoding("resample,decider=0.5,tau=-0.3"), Sampling(temperature=0))
    assert error.value.argument == "decider"


@pytest.mark.parametrize(
    ("text", "other"),
    [("reject,tau=-0.3", "resample τ-0.3"), ("reject,tau=-0.3,primary=rl", "replace τ-0.3 on rl"),
     ("resample,tau=-0.3", "base"), ("replace,tau=-0.3", "replace τ-0.3"),
     ("replace,tau=-0.3,primary=rl", "replace τ-0.3 on rl"),
     ("resample,tau=-0.3,primary=rl", "resample τ-0.3 on rl"), ("veto,tau=-0.3", "veto τ-0.3"), ("rl", "rl")],
)  # fmt: skip
def test_against_its_own_draw_reject_differs_in_who_decides(text, other):
    decoding, own = parse_decoding(text), parse_decoding(text).own_draw()
    assert own.label() == other
    if decoding.mode == "reject":
        rules = [rule_of(each, Sampling()) for each in (decoding, own)]
        assert (rules[0].decider, rules[1].decider) == ({"base": "rl", "rl": "base"}[decoding.primary], None)
        assert rules[0].gamma == rules[1].gamma


def test_a_sign_is_part_of_a_gate_and_only_where_it_is_asked_for():
    plain, signed = (parse_decoding(f"replace,criterion=kl,tau=0.1{more}") for more in ("", ",sign=negative"))
    assert "sign" not in plain.model_dump()
    assert signed.model_dump()["sign"] == "negative"
    assert signed.criterion == "kl negative"
    assert parse_decoding("replace,criterion=kl above negative,tau=0.1") == signed
    assert parse_decoding("replace,criterion=kl below positive,tau=0.1").criterion == "kl below positive"
    with refuses("sign", "minus"):
        parse_decoding("replace,criterion=kl,tau=0.1,sign=minus")


def test_no_gate_needs_no_threshold():
    everywhere = Decoding(mode="extrapolate", criterion="always", gamma=-0.5)
    assert (everywhere.label(), everywhere.control().label()) == ("extrapolate γ-0.5 always", "replace always")
    assert parse_decoding("extrapolate,criterion=always,gamma=-0.5") == everywhere


@pytest.mark.parametrize(
    ("written", "window", "tokens"),
    [
        ("0:", None, (0, None)), (":", None, (0, None)), ("016:", "16:", (16, None)), (":16", "0:16", (0, 16)),
        ("0%:", None, (0, None)), (":100%", None, (0, None)), ("0:100%", None, (0, None)),
        (":025%", "0:25%", (0, 64)), ("25%:100%", "25%:", (64, None)), ("25%:50%", "25%:50%", (64, 128)),
    ],
)  # fmt: skip
def test_a_window_is_a_slice_of_tokens_or_of_max_tokens(written, window, tokens):
    plain, found = Decoding(mode="replace", tau=-0.3), parse_decoding(f"replace,tau=-0.3,window={written}")
    assert (found.window, found.tokens(256)) == (window, tokens)
    assert parse_decoding("replace,tau=-0.3,window=:25%").tokens(10) == (0, 3)
    assert parse_decoding("replace,tau=-0.3,window=25%:").tokens(10) == (3, None), "each token is in one of the two"
    assert (found == plain) == (found.hash() == plain.hash()) == (window is None)
    assert window is None or found.label() == f"replace τ-0.3 delta_logp @{window}"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        *((f"replace,tau=-0.3,window={window}", f"window {window}") for window in (
            "16", "5:5", "-1:4", "a:b", "::", "25%:16", "16:25%", "100%:", "0:0%", "50%:25%", "0:101%", "0:2.5%", "%:",
        )),
        ("rl,window=0:16", "window 0:16"),
    ],
)  # fmt: skip
def test_a_window_that_is_none_is_refused(text, words):
    with refuses(*words.split()):
        parse_decoding(text)


def test_a_pair_in_a_folder(tmp_path):
    with refuses("pair", "pair.json"):
        Pair.of_folder(tmp_path)
    (tmp_path / "rl").mkdir()
    (tmp_path / "rl/config.json").write_text("{}")
    with refuses("pair"):
        Pair.of_folder(tmp_path / "rl")
    (tmp_path / "base").mkdir()
    pair = Pair.of_folder(tmp_path)
    assert (pair.base, pair.rl) == (str(tmp_path / "base"), str(tmp_path / "rl"))
    (tmp_path / "pair.json").write_text('{"base": "org/base", "rl": "rl", "base_revision": "abc"}')
    pair = Pair.of_folder(tmp_path)
    assert (pair.base, pair.rl, pair.base_revision) == ("org/base", str(tmp_path / "rl"), "abc")
    for text, words in (('{"bsae_revision": "abc"}', "bsae_revision pair.json base_revision"), ("[", "pair")):
        (tmp_path / "pair.json").write_text(text)
        with refuses(*words.split()):
            Pair.of_folder(tmp_path)


def test_a_sampling_is_written_flat_and_read_again():
    sampling = Sampling(top_p=0.9, samples=4)
    assert parse(Sampling, sampling.model_dump()) == sampling
    assert "samples" not in sampling.per_response.model_dump()
    assert (sampling.nucleus, Sampling(temperature=0).nucleus) == ("top-p 0.9", "greedy")


def test_greedy_sampling_has_one_sample_and_neither_top_p_nor_seed():
    greedy = parse(Sampling, {"temperature": "0"})
    assert (greedy.temperature, greedy.top_p, greedy.samples, greedy.seed, greedy.greedy) == (0.0, 1.0, 1, 0, True)
    assert parse(Sampling, {"temperature": -0.0, "top_p": 0.3, "seed": 5, "samples": 1}).hash() == greedy.hash()
    with refuses("top_p", "7"):
        parse(Sampling, {"temperature": 0, "top_p": 7})


def test_greedy_decoding_tosses_no_coin():
    greedy = {"tasks": "tiny_easy", "sampling": {"temperature": 0}}
    for way in ("base", "rl", "replace,tau=-0.1", "extrapolate,tau=0.1,gamma=0.1,criterion=kl"):
        parse(EvalSpec, {**greedy, "decodings": way})
    with refuses("criterion", "random", "temperature", "0"):
        parse(EvalSpec, {**greedy, "decodings": "replace,tau=0.1,criterion=random"})
