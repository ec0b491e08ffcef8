"""Compute counter-based noise: a uniform number for each (seed, problem, sample, position, stream), without state.

A token's noise depends only on its own coordinates. So batch order, preemption, restarts and the number of workers
cannot change a response, and two decodings that are compared share their noise.
"""

import hashlib

import torch

# Streams: the primary's draw; the draw of a flagged token's replacement; the random criterion's rho; with a decider
# that draws, the draw of the replacement (REDRAW is then the decider's).
PROPOSE, REDRAW, GATE, REWRITE = 0, 1, 2, 3

_MASK = (1 << 64) - 1
STEP, MULTIPLY_1, MULTIPLY_2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB  # splitmix64


def _signed(value: int) -> int:
    """Read the same 64 bits as a signed integer, as torch.int64 holds them."""
    return value - (1 << 64) if value >= 1 << 63 else value


def _mix_int(value: int) -> int:
    """Apply splitmix64's finaliser: a bijection of 64-bit integers, each input bit moving every output bit."""
    value = (value + STEP) & _MASK
    value = ((value ^ (value >> 30)) * MULTIPLY_1) & _MASK
    value = ((value ^ (value >> 27)) * MULTIPLY_2) & _MASK
    return value ^ (value >> 31)


def _shift_right(value: torch.Tensor, bits: int) -> torch.Tensor:
    """Shift the bits without their sign; torch's `>>` on int64 copies the sign bit."""
    return (value >> bits) & ((1 << (64 - bits)) - 1)


def _mix(value: torch.Tensor) -> torch.Tensor:
    """Apply `_mix_int` to int64 tensors, whose products wrap around."""
    value = value + _signed(STEP)
    value = (value ^ _shift_right(value, 30)) * _signed(MULTIPLY_1)
    value = (value ^ _shift_right(value, 27)) * _signed(MULTIPLY_2)
    return value ^ _shift_right(value, 31)


def request_key(seed: int, problem: str, sample: int) -> int:
    """Return the 64-bit key of one response, as a signed integer for torch.int64.

    The coordinates are mixed in one after the other, each through a bijection. XOR of separately mixed coordinates is
    symmetric and collided in a test. `problem` enters as the first 8 bytes of its BLAKE2b digest.
    """
    named = int.from_bytes(hashlib.blake2b(problem.encode(), digest_size=8).digest(), "little")
    key = _mix_int(seed & _MASK)
    key = _mix_int((key + named) & _MASK)
    return _signed(_mix_int((key + sample) & _MASK))


def uniform(keys: torch.Tensor, positions: torch.Tensor, stream: int) -> torch.Tensor:
    """Return uniform numbers in [0, 1) with 53 random bits.

    Args:
        keys: (n,) int64, from `request_key`.
        positions: (n,) int64, absolute positions in prompt + response of the tokens to be drawn.
        stream: PROPOSE, REDRAW, GATE or REWRITE.

    Returns:
        (n,) float64.
    """
    bits = _mix(_mix(keys + positions) + stream)
    return _shift_right(bits, 11).double() * 2.0**-53
