"""Whether two sympy expressions have the same values: the check on math-verify's word, inside a worker.

math-verify rounds to six decimals, so 2.88e-19 "equals" 1.0e-27, and it does not see that (exp(at) - exp(-at))/2a is
sinh(at)/a. Two formulas that differ, differ at almost every point: a few fixed points decide.
"""

from typing import Any

POINTS = 3
SAME = 1e-12  # relative, of values computed to 30 digits
SAME_DECIMAL = 1e-9  # where a decimal point is involved, as for numbers
ROUNDED = 5e-6  # six significant digits: how far a decimal may be from the irrational number it stands for


def same_values(gold: Any, answer: Any) -> bool | None:
    """Tell whether two formulas agree at every point: False where they clearly do not, None where this cannot tell.

    None leaves the word to math-verify: for what is no formula (sets, inequalities, integrals), and for values
    that differ by a rounding, which it accepts at six decimals (3.141593 for pi) and not below.
    """
    from sympy import Eq, Expr, Float

    def all_on_one_side(equation: Eq) -> Expr | None:
        left, right = equation.lhs, equation.rhs
        return left - right if isinstance(left, Expr) and isinstance(right, Expr) else None

    ratio = isinstance(gold, Eq) and isinstance(answer, Eq)
    if ratio:  # the same equation: what is left of one is a multiple of what is left of the other
        gold, answer = all_on_one_side(gold), all_on_one_side(answer)
    if not (isinstance(gold, Expr) and isinstance(answer, Expr)):
        return None
    try:
        worst = _difference(gold, answer, ratio)
    except Exception:  # sympy raises whatever it likes where it cannot compute a value; then this has no opinion
        return None
    if worst is None:
        return None
    if worst <= (SAME_DECIMAL if gold.has(Float) or answer.has(Float) else SAME):
        return True
    return None if worst <= ROUNDED else False


def _difference(gold: Any, answer: Any, ratio: bool) -> float | None:
    """Return the largest relative difference over the points; None where one side has no finite value.

    `ratio`: of the quotients gold / answer, from point to point.
    """
    from sympy import Derivative, E, Float, I, Integral, Limit, Product, Sum, Symbol
    from sympy.core.function import AppliedUndef

    if gold.has(Derivative, Integral, Limit, Product, Sum) or answer.has(Derivative, Integral, Limit, Product, Sum):
        return None
    unknown = {function: Symbol(str(function)) for function in gold.atoms(AppliedUndef) | answer.atoms(AppliedUndef)}
    gold, answer = gold.xreplace(unknown), answer.xreplace(unknown)  # u(t) has a value like any other name
    symbols = gold.free_symbols | answer.free_symbols
    names = sorted({symbol.name for symbol in symbols if isinstance(symbol, Symbol)})
    worst, first = 0.0, None
    for point in range(POINTS if names else 1):
        at = {name: Float(0.4 + 0.61803398875 * (i + 1) + 0.1414 * point * (i % 3 + 1)) for i, name in enumerate(names)}
        at |= {name: constant for name, constant in (("i", I), ("e", E)) if name in at}
        values = []
        for form in (gold, answer):
            value = form.subs({symbol: at[symbol.name] for symbol in form.free_symbols}).evalf(30)
            if not (value.is_number and value.is_finite):
                return None
            values.append(value)
        if ratio:
            if values[0] == 0 or values[1] == 0:
                return None
            quotient = values[0] / values[1]
            first = first or quotient
            values = [first, quotient]
        size = abs(values[0]) + abs(values[1])
        if size != 0:
            worst = max(worst, float((abs(values[0] - values[1]) / size).evalf(15)))
    return worst
