r"""Remainders of whole numbers, however large: `2003^{2002^{2001}} \bmod 1000`.

    reduced(r"3^{2^{100}} \bmod 10 = 1")               # "1=1"
    reduced(r"N \equiv 1204 \equiv 204 \pmod{1000}")   # "204"

No large number is computed. A large exponent is reduced by Euler's theorem: for every e ≥ φ(m),
a^e ≡ a^(e mod φ(m) + φ(m)) (mod m).
"""

import re
from functools import lru_cache
from math import prod
from typing import Any

MODULUS = re.compile(
    r"\s*(?:\\text\s*\{\s*)?\(?\s*(\\(?:pmod|bmod|mod)|\\text\s*\{\s*mod\s*\}|mod(?:ulo)?(?![a-z]))\s*\{?\s*(\d{1,9})[\s{})]*$"
)
MOST = 10**9  # a modulus
MOST_FACTORIAL = 10_000
_SIDES = re.compile(r"\s*(?:=|\\equiv(?![A-Za-z]))\s*")
_COEFFICIENT = re.compile(r"\d\s*[A-Za-z]")  # 2x \equiv 4 does not state x
_SYMBOL = re.compile(r"\s*(\d+|\\(?:cdot|times|frac)(?![A-Za-z])|[-+^!(){}])")


def reduced(text: str) -> str:
    r"""Replace `a \bmod m` by its remainder, and a congruence by its last side.

    If the sides of a congruence contradict each other, their remainders are left as a chain that does not hold, `2=7`.

    A text without a modulus, or with one that applies to letters, is returned as it is.
    """
    sides = _SIDES.split(text) if "mod" in text else []
    last = MODULUS.search(sides[-1]) if sides else None
    if last and len(sides) > 1 and ("\\equiv" in text or last[1] not in (r"\bmod", r"\mod")):
        sides[-1] = sides[-1][: last.start()]
        known = [value for side in sides if (value := residue(side, int(last[2]))) is not None]
        if len(set(known)) > 1:
            return "=".join(map(str, known))  # a chain that does not hold
        if any(map(_COEFFICIENT.search, sides[:-1])):
            return text
        proven = known[1:] and sides[-1].strip() != f"{known[-1]}"  # 10 \equiv 7 \pmod 3 holds, and states 7
        return sides[-1] if proven else sides[-1] + last[0]
    for at, side in enumerate(sides):
        match = MODULUS.search(side)
        if match and (at + 1 < len(sides) or match[1] in (r"\bmod", r"\mod")):
            value = residue(side[: match.start()], int(match[2]))
            if value is not None:
                text = text.replace(side, f"{value}" + match[0] * (at + 1 == len(sides)), 1)
    return text


def residue(text: str, modulus: int) -> int | None:
    """Return the remainder of a whole number written with digits, `+ - ! ^`, products and fractions; else None."""
    symbols, end = [], 0
    text = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text).rstrip()
    while match := _SYMBOL.match(text, end):
        symbols.append(match[1])
        end = match.end()
    if end < len(text) or not symbols or not modulus:
        return None
    symbols.reverse()
    try:
        whole = _sum(symbols)
        return None if symbols else _residue(whole, modulus)
    except (ValueError, IndexError, RecursionError):
        return None


def _sum(symbols: list[str]) -> Any:
    """Read a sum off the end of `symbols`, which are in reverse, up to a closing bracket."""
    terms = []
    while not terms or symbols[-1:] in (["+"], ["-"]):
        sign = 1
        while symbols[-1] in "+-":
            sign *= -1 if symbols.pop() == "-" else 1
        factors = [_power(symbols)]
        while symbols[-1:] in ([r"\cdot"], [r"\times"], ["("]):
            if symbols[-1] != "(":
                symbols.pop()
            factors.append(_power(symbols))
        terms.append((sign, ("*", factors)))
    return ("+", terms)


def _power(symbols: list[str]) -> Any:
    node = _atom(symbols)
    while symbols[-1:] in (["^"], ["!"]):
        node = ("!", node) if symbols.pop() == "!" else ("^", (node, _atom(symbols)))
    return node


def _atom(symbols: list[str]) -> Any:
    symbol = symbols.pop()
    if symbol == r"\frac":
        return "/", (_atom(symbols), _atom(symbols))
    if symbol in "({":
        node = _sum(symbols)
        if symbols.pop() != {"(": ")", "{": "}"}[symbol]:
            raise ValueError
        return node
    return int(symbol)  # ValueError for an operator


def _residue(node: Any, modulus: int) -> int:
    """Return the remainder of an expression that `_sum` has read.

    Raises:
        ValueError: it is no whole number, or its exponents cannot be bounded.
    """
    if isinstance(node, int):
        return node % modulus
    kind, parts = node
    if kind == "+":
        return sum(sign * _residue(part, modulus) for sign, part in parts) % modulus
    if kind == "*":
        return prod(_residue(part, modulus) for part in parts) % modulus
    if kind == "^":
        return pow(_residue(parts[0], modulus), _capped(parts[1], _totient(modulus)), modulus)
    if kind == "!":
        return _capped(node, modulus) % modulus
    below = _capped(parts[1], MOST)
    if not 0 < below * modulus <= MOST:
        raise ValueError
    value, rest = divmod(_residue(parts[0], below * modulus), below)
    if rest:
        raise ValueError
    return value % modulus


def _capped(node: Any, modulus: int) -> int:
    """Return a natural number itself if it is below `modulus`, else a congruent one that is not below it."""

    def cap(value: int) -> int:
        return value if value < modulus else value % modulus + modulus

    if isinstance(node, int):
        return cap(node)
    kind, parts = node
    if kind == "+":
        values = [(sign, _capped(part, modulus)) for sign, part in parts]
        total = sum(sign * value for sign, value in values)
        if any(sign < 0 for sign, _ in values) and (total < 0 or any(value >= modulus for _, value in values)):
            raise ValueError
        return cap(total)
    result = 1
    if kind == "^":
        base, exponent = _capped(parts[0], modulus), _capped(parts[1], _totient(modulus))
        while exponent:
            result = cap(result * base) if exponent % 2 else result
            base, exponent = cap(base * base), exponent // 2
        return result
    if kind == "/":
        raise ValueError
    if kind == "!":
        last = _capped(parts, MOST)
        if last > MOST_FACTORIAL:
            raise ValueError
        factors = range(1, last + 1)
    else:
        factors = [_capped(part, modulus) for part in parts]
    for factor in factors:
        result = cap(result * factor)
    return result


@lru_cache(maxsize=1024)
def _totient(modulus: int) -> int:
    """Return Euler's φ."""
    result, factor = modulus, 2
    while factor * factor <= modulus:
        if modulus % factor == 0:
            result -= result // factor
            while modulus % factor == 0:
                modulus //= factor
        factor += 1
    return result - result // modulus if modulus > 1 else result
