"""Properties: a right number in any supported form stays right; a changed number never becomes right."""

from decimal import Decimal
from fractions import Fraction

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rlvr_dir.grading.bounds import too_large
from rlvr_dir.grading.normalise import normalise, squeeze
from rlvr_dir.grading.numbers import read_number
from rlvr_dir.grading.robust import judge
from rlvr_dir.grading.structure import named, parts

bounded = settings(
    max_examples=300, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)


def kind(gold, answer):
    """The verdict in this process: what is tried here is quick, and a worker would only cost time."""
    return "correct" if judge(gold, answer) else "wrong"


def plain(value):
    return format(value, "f")


def scientific(value):
    sign, digits, exponent = value.as_tuple()
    text = "".join(map(str, digits))
    mantissa = text[0] + ("." + text[1:] if len(text) > 1 else "")
    return "-" * sign + mantissa, exponent + len(text) - 1


def grouped(value, mark):
    head, _, tail = plain(abs(value)).partition(".")
    groups = f"{int(head):,}".replace(",", mark)
    return ("-" if value < 0 else "") + groups + ("." + tail if tail else "")


FORMS = {
    "plain": plain,
    "sign": lambda v: ("+" if v >= 0 else "") + plain(v),
    "minus": lambda v: plain(v).replace("-", "−"),
    "leading zeros": lambda v: ("-" if v < 0 else "") + "00" + plain(abs(v)),
    "trailing zeros": lambda v: plain(v) + ("000" if "." in plain(v) else ".000"),
    "commas": lambda v: grouped(v, ","),
    "latex commas": lambda v: grouped(v, "{,}"),
    "kerned commas": lambda v: grouped(v, r",\!"),
    "thin spaces": lambda v: grouped(v, r"\,"),
    "full width": lambda v: plain(v).translate({ord(c): ord(c) + 0xFEE0 for c in "0123456789"}),
    "times": lambda v: r"{}\times 10^{{{}}}".format(*scientific(v)),
    "cdot": lambda v: r"{} \cdot 10^{{{}}}".format(*scientific(v)),
    "e": lambda v: "{}e{}".format(*scientific(v)),
    "E+": lambda v: "{}E{:+d}".format(*scientific(v)),
    "fraction": lambda v: r"\frac{{{}}}{{{}}}".format(*Fraction(v).as_integer_ratio()),
    "dfrac": lambda v: (r"-" if v < 0 else "") + r"\dfrac{{{}}}{{{}}}".format(*abs(Fraction(v)).as_integer_ratio()),
    "slash": lambda v: "{}/{}".format(*Fraction(v).as_integer_ratio()),
    "percent": lambda v: plain(v * 100) + r"\%",
    "percent, same digits": lambda v: plain(v) + r"\%",
}
DRESSES = {
    "none": "{}",
    "full stop": "{}.",
    "breaks": "{}\\\\",
    "tilde": "{}~",
    "dollars": "${}$",
    "braces": "{{{}}}",
    "parentheses": r"\left({}\right)",
    "nested box": r"\boxed{{{}}}",
    "font": r"\mathbf{{{}}}",
    "label": r"\textbf{{(B)}}\ {}",
    "sentence": r"\text{{The answer is }} {}",
    "equation": "x = {}",
    "chain": "a + b = {}",
    "about": r"\approx {}",
    "set": r"\{{{}\}}",
    "unit": r"{}\text{{ cm}}",
    "roman unit": r"{}\,\mathrm{{~kg}}",
    "bare unit": "{} Hz",
    "degrees": r"{}^\circ",
}
UNIT_DRESSES = {"unit", "roman unit", "bare unit", "degrees"}
forms = st.sampled_from(sorted(FORMS))
dresses = st.sampled_from(sorted(DRESSES))
numbers = st.one_of(
    st.integers(-(10**12), 10**12).map(Decimal),
    st.integers(-(10**6), 10**6).map(Decimal),
    st.builds(lambda digits, point: Decimal(digits).scaleb(-point), st.integers(-(10**9), 10**9), st.integers(0, 12)),
    st.builds(lambda digits, point: Decimal(digits).scaleb(point), st.integers(1, 9999), st.integers(-30, 40)),
)


def write(value, form, dress):
    if dress in UNIT_DRESSES and form.startswith("percent"):
        dress = "none"  # 35 % cm is no answer
    if dress == "set" and form == "commas":
        form = "latex commas"  # inside brackets a bare comma separates
    return DRESSES[dress].format(FORMS[form](value))


@bounded
@given(numbers, forms, forms, dresses)
def test_a_right_number_in_any_form_stays_right(value, gold_form, form, dress):
    if gold_form.startswith("percent") != form.startswith("percent"):
        gold_form = "plain"  # one side in percent: both readings count
    elif gold_form != form and gold_form.startswith("percent"):
        gold_form = form
    if gold_form == "commas" and dress == "set":
        gold_form = "plain"  # beside a set, 1,000 is a list
    assert kind(FORMS[gold_form](value), write(value, form, dress)) == "correct"


@bounded
@given(numbers, numbers, forms, dresses, st.sampled_from([1, -1, 10, 2, 3]), st.booleans())
def test_a_changed_number_never_becomes_right(value, other, form, dress, factor, near):
    """Another number, a near one (a unit in the ninth digit) or a multiple, in any form."""
    changed = value + Decimal(1).scaleb(value.adjusted() - 7) if near else other * factor
    ratios = {Decimal(1)} | ({Decimal(100), Decimal("0.01")} if form.startswith("percent") else set())
    if any(abs(changed - value * ratio) <= abs(value * ratio) * Decimal("2e-9") for ratio in ratios):
        return
    assert kind(plain(value), write(changed, form, dress)) == "wrong"


@bounded
@given(st.integers(-(10**14), 10**14), st.integers(1, 5), forms)
def test_whole_numbers_are_exact(value, step, form):
    if form not in ("trailing zeros", "times", "cdot", "e", "E+") and not form.startswith("percent"):
        assert kind(str(value), FORMS[form](Decimal(value + step))) == "wrong"


@bounded
@given(st.integers(-999, 999), st.integers(2, 999), st.integers(7, 12))
def test_a_fraction_and_its_rounding(top, bottom, digits):
    gold = f"\\frac{{{top}}}{{{bottom}}}"
    rounded = round(Decimal(top) / Decimal(bottom), digits)
    exact = Fraction(rounded) == Fraction(top, bottom)
    endless = 10**12 % Fraction(top, bottom).denominator != 0
    if exact or (endless and len(rounded.normalize().as_tuple().digits) >= 7):
        assert kind(gold, plain(rounded)) == "correct"
    if rounded:
        assert kind(gold, plain(rounded + Decimal(3).scaleb(-6))) == "wrong"


@bounded
@given(st.integers(0, 999), st.integers(2, 999), st.integers(1, 3))
def test_a_repeating_decimal_is_its_fraction(top, bottom, step):
    whole, rest = divmod(top, bottom)
    seen, digits = {}, ""
    while rest and rest not in seen:
        seen[rest] = len(digits)
        digits += str(rest * 10 // bottom)
        rest = rest * 10 % bottom
    if rest and len(digits) <= 30:
        once, again = digits[: seen[rest]], digits[seen[rest] :]
        text = rf"{whole}.{once}\overline{{{again}}}"
        assert kind(f"\\frac{{{top}}}{{{bottom}}}", text) == kind(text, f"{top}/{bottom}") == "correct"
        assert kind(f"\\frac{{{top + step}}}{{{bottom}}}", text) == "wrong"


@bounded
@given(
    st.integers(0, 10**6), st.integers(1, 10**6), st.sampled_from([r"\pmod{%d}", r" \bmod %d", r"\ (\text{mod } %d)"])
)
def test_a_residue_is_its_number_only_where_it_is_the_smallest(value, modulus, form):
    counts = judge(str(value), str(value) + form % modulus)
    assert counts == (value < modulus)


UNITS = [
    r"\text{m}",
    r"\mathrm{~kg}",
    r"\mathrm{J\,mol^{-1}}",
    r"\frac{\text{m}}{\text{s}^2}",
    r"\text{erg}/(\text{s}\cdot\text{cm})",
]


@bounded
@given(numbers, forms, st.sampled_from(UNITS), st.sampled_from(UNITS))
def test_a_unit_may_be_left_out_and_not_be_changed(value, form, unit, other):
    if form.startswith("percent"):
        form = "plain"
    assert kind(plain(value), FORMS[form](value) + r"\," + unit) == "correct"
    assert kind(plain(value) + unit, FORMS[form](value) + r"\ " + other) == ("correct" if unit == other else "wrong")


@bounded
@given(st.lists(st.integers(0, 999), min_size=2, max_size=6), st.randoms(use_true_random=False), forms)
def test_lists_and_sets_have_no_order_and_tuples_have(values, random, form):
    if form in ("commas", "percent", "percent, same digits"):
        form = "plain"
    shuffled = random.sample(values, len(values))
    gold, items = ", ".join(map(str, values)), [FORMS[form](Decimal(v)) for v in shuffled]
    assert kind(gold, ", ".join(items)) == "correct"
    assert kind(gold, r"\{" + ", ".join(items) + r"\}") == "correct"
    assert kind(f"({gold})", "(" + ", ".join(items) + ")") == ("correct" if shuffled == values else "wrong")
    assert kind(gold, ", ".join(items[1:])) == "wrong"
    assert kind(gold, ", ".join([*items[1:], str(1000 + shuffled[0])])) == "wrong"


_PIECES = r"""\frac \sqrt { } ( ) [ ] ^ _ , ; = \{ \} \left \right \text{ \text{cm} \% $ . 1 10 204 e x \times e-3 !
\cup \in - + ² ½ ２ ° \\ \, ~ \boxed{ \approx or \begin{pmatrix} & \circ"""
PIECES = st.sampled_from(_PIECES.split())


@bounded
@given(st.one_of(st.text(max_size=400), st.lists(PIECES, max_size=80).map("".join), st.lists(PIECES).map(" ".join)))
@example("\\{" * 200)
@example("1," * 200)
@example("^" * 400)
@example("1 " * 200)
@example("\\text{" * 60)
@example("1e9999999999999999999")
@example("10^{" * 100)
def test_any_text_is_read_without_a_crash(text):
    clean = normalise(text)
    squeeze(clean), read_number(clean), parts(clean), named(clean)
    if not too_large(clean):
        assert judge(text, text) or not clean


@bounded
@given(st.one_of(numbers.map(plain), st.sampled_from([r"\frac{x}{2}", "x+1", "(1,2)", r"\sqrt{3}", r"\text{east}"])))
def test_normalising_twice_is_normalising_once(text):
    assert normalise(normalise(text)) == normalise(text)
