"""The time left, against simulated streams: the product's own `Progress`, told what an engine would tell it."""

import heapq
from types import SimpleNamespace

import numpy as np
import pytest

from rlvr_dir.config import Sampling
from rlvr_dir.decode import progress
from rlvr_dir.decode.progress import Progress
from rlvr_dir.decode.time_left import fit_lengths, work_left
from rlvr_dir.decode.types import Request, Rollout

MOST = 20_000
REQUEST = Request("", "p", sampling=Sampling(max_tokens=MOST))
LOOKS = 200  # an engine looks so often in all


def rollout(length):
    none = np.zeros(0)
    end = "length" if length == MOST else "stop"
    return Rollout(REQUEST, (), (0,) * length, "", end, none, none, none, none, none)


def stream(rng, total, slots, median, spread):
    """When each response of a stream begins and ends, in steps; a free slot takes the next one."""
    lengths = np.clip(rng.lognormal(np.log(median), spread, total), 1, MOST).astype(int)
    begins, taken = np.zeros(total, int), []
    for i, length in enumerate(lengths):
        begins[i] = heapq.heappop(taken) if len(taken) == slots else 0
        heapq.heappush(taken, begins[i] + length)
    return begins, begins + lengths


def ratios(monkeypatch, seed, fixed, total=960, slots=256, median=5_000, spread=0.82):
    """{share of the time that has passed: time left as it is said, over what it is}.

    `fixed` of a full step's time is always there, the rest in proportion to the running responses.
    """
    begins, ends = stream(np.random.default_rng(seed), total, slots, median, spread)
    steps = ends.max()
    running = np.cumsum(np.bincount(begins, minlength=steps + 1) - np.bincount(ends, minlength=steps + 1))[:steps]
    clock = np.concatenate([[0.0], np.cumsum(0.05 * (fixed + (1 - fixed) * running / slots))])
    now = SimpleNamespace(at=0.0)
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now.at))
    bar, waiting, found = Progress(total, enabled=False), [*np.argsort(ends)], {}
    bar.most = MOST
    for look in range(1, LOOKS):
        now.at = clock[-1] * look / LOOKS
        step = int(np.searchsorted(clock, now.at))
        while waiting and ends[waiting[0]] <= step:
            i = waiting.pop(0)
            bar.finished(rollout(int(ends[i] - begins[i])))
        bar.show(step - begins[i] for i in waiting if begins[i] < step)
        if (seconds := bar.seconds_left()) is not None:
            found[look / LOOKS] = seconds / (clock[-1] - now.at)
    return found


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("fixed", [0.2, 0.5, 1.0])
@pytest.mark.parametrize("lengths", [{"median": 5_000, "spread": 0.82}, {"median": 8_000, "spread": 0.54}])
def test_of_one_job_it_is_within_a_factor_of_two_from_a_fifth_of_the_time_on(monkeypatch, seed, fixed, lengths):
    """It was 2.4 times too long at a tenth of the time, and an eighth of what was left at nine tenths."""
    found = ratios(monkeypatch, seed, fixed, **lengths)
    late = {share: ratio for share, ratio in found.items() if share >= 0.2}
    assert len(late) == LOOKS - LOOKS // 5
    assert all(0.5 < ratio < 2 for ratio in late.values()), late


@pytest.mark.parametrize(("total", "slots", "since"), [(960, 1024, 0.3), (300, 256, 0.3), (4800, 256, 0.05)])
def test_of_fewer_and_of_many_waves_too(monkeypatch, total, slots, since):
    found = ratios(monkeypatch, 0, 0.5, total, slots)
    assert all(0.6 < ratio < 1.6 for share, ratio in found.items() if since <= share <= 0.95), found


def test_lengths_are_fitted_with_what_is_still_running_as_longer():
    rng = np.random.default_rng(0)
    every = rng.lognormal(8.0, 0.7, 4_000)
    seen = rng.uniform(500, 8_000, 4_000)  # so far each was watched
    mean, deviation = fit_lengths(every[every <= seen], seen[every > seen])
    assert (mean, deviation) == pytest.approx((8.0, 0.7), abs=0.06)


def test_what_is_left_is_bounded_by_the_longest_response_that_may_be():
    ended, running = [30, 40, 50, 35, 45], [99, 60, 10]
    tokens, steps = work_left(ended, [100], running, 0, 100)
    assert 0 < tokens <= sum(100 - age for age in running)
    assert 0 < steps <= 90
    assert work_left([], [100] * 5, [98, 97], 0, 100) == pytest.approx((5, 3), abs=0.5)  # all were cut so far
    more, later = work_left(ended, [100], running, 300, 100)
    assert more > 300 * 30
    assert later >= 100 * 30


def test_it_is_not_said_before_enough_is_known():
    bar = Progress(960, enabled=False)
    bar.show([5, 7, 0])
    assert bar.seconds_left() is None


def test_nothing_is_left_when_all_is_done():
    bar = Progress(1, enabled=True)
    bar.show([5])
    bar.finished(rollout(7))
    assert bar.seconds_left() == 0
    assert "00:00 left" in bar.tail()
    bar.close()
