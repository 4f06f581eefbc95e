"""Pauses of the real garbage collector."""

from __future__ import annotations

import gc

import pytest

from rankscope.agent.steps.gc_pauses import GcPauses


@pytest.fixture
def pauses():
    """A listener, with collections only where the test asks for them."""
    gc.disable()
    found = GcPauses()
    found.start()
    yield found
    found.stop()
    gc.enable()


def test_collections_are_counted_by_generation(pauses) -> None:
    gc.collect(0)
    gc.collect(2)
    gc.collect(2)
    found = pauses.take()
    assert found.collections == (1, 0, 2)
    assert [ns > 0 for ns in found.ns] == [True, False, True]


def test_taking_begins_anew(pauses) -> None:
    gc.collect()
    first = pauses.take()
    second = pauses.take()
    assert first.collections == (0, 0, 1)
    assert (second.collections, second.ns) == ((0, 0, 0), (0, 0, 0))


def test_after_the_end_nothing_is_left_behind() -> None:
    before = list(gc.callbacks)
    pauses = GcPauses()
    pauses.start()
    pauses.start()
    assert len(gc.callbacks) == len(before) + 1
    pauses.stop()
    pauses.stop()
    assert gc.callbacks == before
    gc.collect()
    assert pauses.take().collections == (0, 0, 0)


def test_a_collection_that_began_unheard_is_left_out() -> None:
    pauses = GcPauses()
    pauses._called("stop", {"generation": 2})
    assert pauses.take().collections == (0, 0, 0)
