"""Whether two sympy expressions have the same values: the check on math-verify's word, inside a worker.

math-verify rounds to six decimals, so 2.88e-19 "equals" 1.0e-27, and it does not see that (exp(at) - exp(-at))/2a is
sinh(at)/a. Two formulas that differ, differ at almost every point: a few fixed points decide.
"""

from typing import Any

POINTS = 3
SAME = 1e-12  # relative, of values computed to 30 digits
ROUNDED = 5e-6  # six significant digits: how far a decimal may be from the irrational number it stands for


def same_values(gold: Any, answer: Any) -> bool | None:
    """True where two formulas agree at every point, False where they clearly do not, None where this cannot tell.

    None leaves the word to math-verify: for what is no formula (sets, relations, unknown functions), and for values
    that differ by a rounding, which it accepts at six decimals (3.141593 for pi) and not below.
    """
    from sympy import Expr

    if not (isinstance(gold, Expr) and isinstance(answer, Expr)):
        return None
    try:
        worst = _difference(gold, answer)
    except Exception:  # sympy raises whatever it likes where it cannot compute a value; then this has no opinion
        return None
    if worst is None:
        return None
    if worst <= SAME:
        return True
    return None if worst <= ROUNDED else False


def _difference(gold: Any, answer: Any) -> float | None:
    """The largest relative difference over the points; None where one side has no finite value."""
    from sympy import E, Float, I, Integral, Limit, Product, Sum, Symbol

    if gold.has(Integral, Limit, Product, Sum) or answer.has(Integral, Limit, Product, Sum):
        return None
    symbols = gold.free_symbols | answer.free_symbols
    names = sorted({symbol.name for symbol in symbols if isinstance(symbol, Symbol)})
    worst = 0.0
    for point in range(POINTS if names else 1):
        at = {name: Float(0.4 + 0.61803398875 * (i + 1) + 0.1414 * point * (i % 3 + 1)) for i, name in enumerate(names)}
        at |= {name: constant for name, constant in (("i", I), ("e", E)) if name in at}
        values = []
        for form in (gold, answer):
            value = form.subs({symbol: at[symbol.name] for symbol in form.free_symbols}).evalf(30)
            if not (value.is_number and value.is_finite):
                return None
            values.append(value)
        size = abs(values[0]) + abs(values[1])
        if size != 0:
            worst = max(worst, float((abs(values[0] - values[1]) / size).evalf(15)))
    return worst
