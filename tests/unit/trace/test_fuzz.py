"""Mutated traces: each ends in columns or in a TraceError with a reason; no other exception, no hang.

200 cases in a normal run; ``RANKSCOPE_FUZZ=2000`` for more.
"""

from __future__ import annotations

import gzip
import os
import random
import re
import time
from pathlib import Path

import pytest

from rankscope.errors import TraceError
from rankscope.trace.columns import RankTrace
from rankscope.trace.files.cache import load_cached, store_cached
from rankscope.trace.kineto.build import read_trace

pytestmark = pytest.mark.data
CASES = int(os.environ.get("RANKSCOPE_FUZZ", "200"))
PARTS = 10
VALUES = [
    b"null", b"true", b"-1", b"1e999", b"NaN", b"-Infinity", b'""', b'"x"', b"[]", b"{}", b"[[[[]]]]", b"1.5", b"-0",
    b"18446744073709551616", b"-9223372036854775809", b'"1e400"', b'"\\ud800"', b'"\xff"', b"4e18",
    b"9223372036854775807",
    b'"[0, 1, 2, ...]"', b"0" * 50, b'"' + b"9" * 50 + b'"',
]  # fmt: skip
_VALUE = re.compile(rb'(?<=: )("(?:[^"\\]|\\.)*"|-?[\d.]+|\[[^\[\]]*\])')


def mutate(text: bytes, dice: random.Random) -> bytes:
    for _ in range(dice.randint(1, 4)):
        if not text:
            break
        kind = dice.randrange(8)
        place = dice.randrange(len(text))
        if kind == 0:
            text = text[:place]
        elif kind == 1:  # flip a bit
            text = text[:place] + bytes([text[place] ^ 1 << dice.randrange(8)]) + text[place + 1 :]
        elif kind == 2:  # lose a piece
            text = text[:place] + text[place + dice.randint(1, 400) :]
        elif kind == 3:  # the same piece twice
            text = text[:place] + text[place : place + dice.randint(1, 400)] * 2 + text[place:]
        elif kind == 4:
            text = text[:place] + dice.randbytes(dice.randint(1, 20)) + text[place:]
        elif kind == 5:  # nest without end
            text = text[:place] + dice.choice([b"[", b"{", b'{"a":', b'"']) * dice.choice([1, 5, 20_000]) + text[place:]
        else:  # another type or size, once or everywhere
            found = list(_VALUE.finditer(text))
            if found:
                one = dice.choice(found)
                value = dice.choice(VALUES)
                if kind == 6:
                    text = text[: one.start()] + value + text[one.end() :]
                else:
                    key = text[text.rfind(b"\n", 0, one.start()) + 1 : one.start()].lstrip()
                    text = text.replace(key + one.group(), key + value) if key else text
    return text


def check(trace: RankTrace) -> None:
    events = trace.events
    rows = len(events)
    for column in ("duration", "name", "launch", "step", "stream", "shape", "position", "category", "correlation"):
        assert len(getattr(events, column)) == rows
    assert rows > 0
    assert (events.duration >= 0).all()
    assert (events.end >= events.start).all()
    assert (events.start[1:] >= events.start[:-1]).all()
    assert events.name.max() < len(trace.strings)
    assert events.shape.max() < len(trace.strings)
    assert events.launch.max() < rows
    assert events.step.max() < max(len(trace.steps), 1)
    assert len(trace.collectives.group) == len(trace.collectives.kind) == len(trace.collectives)
    assert all(isinstance(s, str) for s in trace.strings)


@pytest.mark.parametrize("part", range(PARTS))
def test_mutated_traces(part: int, data: Path, tmp_path: Path) -> None:
    sources = sorted((data / "cases").glob("*/traces/*.json"))
    for number in range(part, CASES, PARTS):
        dice = random.Random(number)
        text = mutate(dice.choice(sources).read_bytes(), dice)
        if dice.random() < 0.3:
            text = gzip.compress(text, 1)
            if dice.random() < 0.7:
                text = mutate(text, dice)
        path = tmp_path / f"rank_{number}.json"
        path.write_bytes(text)
        begun = time.process_time()
        try:
            trace = read_trace(path)
        except TraceError as error:
            assert str(path) in str(error), number  # noqa: PT017  the other way, columns, is as good
        else:
            check(trace)
            if store_cached(path, trace):
                assert load_cached(path) is not None, number
        assert time.process_time() - begun < 20, number  # CPU time, which other load does not stretch


def test_the_mutator_reaches_both_ends(data: Path, tmp_path: Path) -> None:
    """Should every mutation be refused, or none be noticed, the test above would prove little."""
    sources = sorted((data / "cases").glob("*/traces/*.json"))
    refused = repaired = clean = 0
    for number in range(60):
        dice = random.Random(10_000 + number)
        path = tmp_path / "rank_0.json"
        path.write_bytes(mutate(dice.choice(sources).read_bytes(), dice))
        try:
            trace = read_trace(path)
        except TraceError:
            refused += 1
        else:
            repaired += bool(trace.repairs)
            clean += not trace.repairs
    assert min(refused, repaired, clean) >= 5
