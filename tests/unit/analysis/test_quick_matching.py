"""Short cuts of the matching give the answers of the long way."""

from __future__ import annotations

import numpy as np

from rankscope.analysis.matching.hypotheses import STEPS, Hypothesis, _overlap, _surely_overlap
from rankscope.analysis.matching.once import Once, distinct
from rankscope.analysis.matching.sequences import CallSequence

US = 1_000


def _sequence(start, end) -> CallSequence:
    count = len(start)
    same, yes, unsaid = np.zeros(count, np.int64), np.ones(count, np.bool_), np.full(count, -1, np.int64)
    step = np.arange(count) // 10
    return CallSequence(np.arange(count), start, end, same, same, yes, yes, step, unsaid, unsaid)


def _pair(seed: int) -> tuple[CallSequence, CallSequence]:
    """Sixty calls of 40 us on two ranks. Their clocks differ by an offset, a drift, and in one of three cases a jump;
    ends scatter; in every other case a call of one rank is moved, by up to 200 us."""
    random = np.random.default_rng(seed)
    end = np.arange(60) * 1000 * US
    start = end - (random.uniform(20, 60, 60) * US).astype(np.int64)
    apart = 5e6 + random.uniform(-1e-4, 1e-4) * end + random.normal(0, random.choice([1, 5, 30]) * US, 60)
    if seed % 3 == 0:
        apart[random.integers(20, 40) :] += random.uniform(0, 100) * US
    theirs = end + apart.astype(np.int64)
    if seed % 2:
        theirs[random.integers(60)] += int(random.uniform(-200, 200) * US)
    lasted = (random.uniform(20, 60, 60) * US).astype(np.int64)
    return _sequence(start, end), _sequence(theirs - lasted, theirs)


def test_calls_that_surely_overlap_do() -> None:
    """The quick test may not see that calls overlap, but never errs: 2 ranks whose calls end within 1 us pass it."""
    pairs = [_pair(seed) for seed in range(120)]
    every = np.arange(60)
    quick = [_surely_overlap(one, other) for one, other in pairs]
    slow = [_overlap(one, other, Hypothesis(STEPS, (every, every))) for one, other in pairs]
    assert not any(q and not s for q, s in zip(quick, slow, strict=True))
    assert 20 < sum(quick) < sum(slow) < 120


def test_work_on_a_column_that_ranks_share_is_done_once() -> None:
    once, done = Once(), []

    def length(texts: list[str]) -> int:
        done.append(texts)
        return len(texts)

    shared = ["send", "recv", "send"]
    assert [once(length, shared), once(length, shared), once(length, [*shared, "send"])] == [3, 3, 4]
    assert len(done) == 2
    found, index = once(distinct, shared)
    assert (found, index.tolist()) == (["recv", "send"], [1, 0, 1])
