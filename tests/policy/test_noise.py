"""The counter-based noise: reproducible, uniform, independent, and never repeated."""

import itertools

import torch
from scipy import stats

from rlvr_dir.policy.noise import GATE, PROPOSE, REDRAW, request_key, uniform


def test_no_number_repeats_in_a_million_coordinates():
    keys = [
        request_key(seed, f"aime24/{problem}", sample)
        for seed, problem, sample in itertools.product(range(4), range(25), range(32))
    ]
    assert len(set(keys)) == len(keys)
    keys = torch.tensor(keys)  # 3200 responses
    positions = torch.arange(105)
    grid_keys, grid_positions = (x.reshape(-1) for x in torch.meshgrid(keys, positions, indexing="ij"))
    numbers = torch.cat([uniform(grid_keys, grid_positions, stream) for stream in (PROPOSE, REDRAW, GATE)])
    assert len(numbers) > 1_000_000
    assert len(numbers.unique()) == len(numbers)


def test_numbers_are_uniform_and_streams_positions_and_samples_are_independent():
    n = 50_000
    key = request_key(0, "p", 0)
    along = {stream: uniform(torch.full((n,), key), torch.arange(n), stream) for stream in (PROPOSE, REDRAW, GATE)}
    samples = uniform(torch.tensor([request_key(0, "p", i) for i in range(n)]), torch.zeros(n, dtype=torch.long), 0)
    for numbers in (*along.values(), samples):
        assert numbers.min() >= 0
        assert numbers.max() < 1
        assert stats.kstest(numbers.numpy(), "uniform").pvalue > 1e-3
    table = torch.stack([*along.values(), samples, along[PROPOSE].roll(1)])
    off_diagonal = torch.corrcoef(table) - torch.eye(len(table))
    assert off_diagonal.abs().max() < 5 / n**0.5


def splitmix(value):
    value = (value + 0x9E3779B97F4A7C15) % 2**64
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) % 2**64
    return value ^ (value >> 31)


def test_the_numbers_never_change():
    """Pinned: a response recorded today must be reproducible by every later version."""
    key = request_key(7, "aime24/aime24-I-08", 3)
    assert key == 2276464089570820211
    for k in (key, -key):  # tensor arithmetic against Python's integers
        for position, stream in itertools.product((0, 12_345), (PROPOSE, REDRAW, GATE)):
            expected = (splitmix((splitmix((k + position) % 2**64) + stream) % 2**64) >> 11) / 2**53
            assert uniform(torch.tensor([k]), torch.tensor([position]), stream).item() == expected
