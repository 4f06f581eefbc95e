"""Which events of a rank have certain codes and names."""

from __future__ import annotations

import numpy as np
import pytest

from rankscope.analysis.rank.select import distinct, one_of
from rankscope.analysis.rank.view import make_view, name_mask


@pytest.mark.parametrize("different", [0, 1, 3, 16, 17, 400])
def test_distinct_values_are_in_order_however_many_there_are(different: int) -> None:
    values = np.tile(np.arange(different)[::-1] * 7 - 5, 3).astype(np.int32)
    found = distinct(values)
    assert found.tolist() == [n * 7 - 5 for n in range(different)]
    assert found.dtype == np.int32


def test_one_of_a_few_codes() -> None:
    assert one_of(np.array([3, -1, 0, 3, 2], np.int8), (3, -1)).tolist() == [True, True, False, True, False]
    assert not one_of(np.array([3, 0]), ()).any()


def test_names_of_events_are_tested_and_no_others(make_trace) -> None:
    trace = make_trace(0, [("gemm", 100, 50), ("softmax", 160, 20), ("gemm", 200, 50)], ranks=(0, 1))
    trace.strings.append("gemm of no event")
    view, tested = make_view(trace, 0), list[str]()

    def test(name: str) -> bool:
        tested.append(name)
        return "gemm" in name

    names = [trace.strings[code] for code in trace.events.name.tolist()]
    expected = [name == "gemm" for name in names]
    assert sum(expected) == 2
    assert view.named(test).tolist() == name_mask(trace, test).tolist() == expected
    assert sorted(tested) == sorted(2 * list(set(names)))
    assert view.has_name("softmax".__eq__)
    assert not view.has_name("gemm of no event".__eq__)
    assert not view.named("gemm of no event".__eq__).any()
