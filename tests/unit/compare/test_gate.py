"""Conditions of ``rankscope check``: syntax, decisions, and undecided ones."""

from __future__ import annotations

import numpy as np
import pytest

from rankscope.compare.compare import compare
from rankscope.compare.gate import decide, parse
from rankscope.compare.show.github import workflow_commands
from rankscope.errors import ConfigError
from rankscope.records.rows import HealthRow, MemoryRow

NOISE = np.random.default_rng(3).normal(0, 0.2, 400)


@pytest.fixture
def pair(make_side):
    """20 -> 22 ms a step, 5 kernels more a step on rank 1."""
    before = make_side(step_ms=list(20 + NOISE[:200]))
    after = make_side({"norm": (25, 50.0)}, step_ms=list(22 + NOISE[200:]))
    return before, after


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("slower > 5 %", "holds"),
        ("step>5%", "holds"),
        ("slower > 15 %", None),
        ("step > 21 ms", "holds"),
        ("step > 23 ms", None),
        ("launches>0", "holds"),
        ("launches > 20 %", None),
        ("launches > 5", None),
        ("syncs > 0", None),
        ("bytes > 1 %", None),
        ("slow_rank", None),
        ("balanced", "holds"),
        ("memory > 5 %", "undecided"),
        ("memory > 60 GiB", "undecided"),
    ],
)
def test_each_condition(pair, text: str, state: str | None) -> None:
    before, after = pair
    failures = decide(parse(text), after.report, compare(before, after))
    assert [failure.state for failure in failures] == ([state] if state else [])


def test_times_are_not_decided_on_a_busy_machine_and_counts_are(pair) -> None:
    before, after = pair
    after.report.health.append(HealthRow(rank=0, pressure_cpu_pct=60.0))
    diff = compare(before, after)
    found = {f.condition: f.state for f in decide(parse("slower > 5 %, launches > 0"), after.report, diff)}
    assert found == {"slower > 5 %": "undecided", "launches > 0": "holds"}
    diff = compare(before, after, force=True)
    assert decide(parse("slower > 5 %"), after.report, diff, force=True)[0].state == "holds"


def test_a_difference_within_a_noise_above_the_limit_is_not_decided(make_side) -> None:
    before, after = make_side(step_ms=list(20 + NOISE[:200])), make_side(step_ms=list(20.6 + NOISE[200:]))
    (failure,) = decide(parse("slower > 1 %"), after.report, compare(before, after))
    assert failure.state == "undecided"
    assert "more runs in the baseline" in failure.text


def test_a_verdict_that_is_none_decides_nothing(make_side) -> None:
    side = make_side()
    side.report.verdict.kind = "insufficient_data"
    assert [f.state for f in decide(parse("slow_rank"), side.report, None)] == ["undecided"]
    assert [f.state for f in decide(parse("insufficient_data"), side.report, None)] == ["holds"]


def test_memory_in_gib(make_side) -> None:
    side = make_side()
    side.report.memory = [
        MemoryRow(
            attempt=0,
            window=0,
            rank=0,
            file=None,
            peak_allocated_bytes=61 << 30,
            peak_reserved_bytes=0,
            end_allocated_bytes=0,
            end_reserved_bytes=0,
            segment_allocs=None,
            segment_frees=None,
        )
    ]
    assert [f.text for f in decide(parse("memory > 60 GiB"), side.report, None)] == [
        "the peak of device memory is 61.0 GiB"
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("slowr > 5 %", "did you mean slower"),
        ("slower", "write slower > 5 %"),
        ("slower > 5", "write slower > 5 %"),
        ("launches > 5 ms", "write launches > 5"),
        ("slow_rank > 1", "has no number"),
        ("step < 3 ms", "no condition"),
        ("; rm", "no condition; words are"),
        ("slower >= 5 %", "write slower > 5 %"),
        ("launches > 0;slow_rank", "write launches > 5 or launches > 5 %; commas"),
        ("slow_rank!", "write slow_rank; commas"),
    ],
)
def test_other_words_are_refused_with_the_nearest(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(text)


def test_a_condition_that_needs_another_run_is_refused_without_one(make_side) -> None:
    with pytest.raises(ConfigError, match="--against"):
        decide(parse("launches > 0"), make_side().report, None)


def test_annotations_cannot_be_broken_by_names() -> None:
    from rankscope.compare.gate import Failure

    text = workflow_commands([Failure("slower > 5 %, x", "holds", "a\n::error::b 50 %")])
    assert text == "::error title=rankscope%3A slower > 5 %25%2C x::a%0A::error::b 50 %25\n"
