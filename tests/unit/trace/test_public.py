"""Traces recorded by others: 8 ranks of a DLRM on V100 (facebookresearch/param, et_replay/tests/inputs, MIT)."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from rankscope.trace.files.load import LoadResult, load_traces
from support.archives import unpack

pytestmark = pytest.mark.data


@pytest.fixture(scope="module")
def dlrm(tmp_path_factory: pytest.TempPathFactory) -> LoadResult:
    packed = Path(__file__).parents[2] / "data" / "param_dlrm_8ranks.tar.gz"
    return load_traces([unpack(packed, tmp_path_factory.mktemp("dlrm"))], workers=1)


def test_all_ranks_are_found(dlrm: LoadResult) -> None:
    assert [t.rank for t in dlrm.traces] == list(range(8))
    assert {t.window for t in dlrm.traces} == {0}
    assert all(t.meta.device == "Tesla V100-SXM2-32GB" and t.meta.world_size == 8 for t in dlrm.traces)
    assert not any(t.repairs for t in dlrm.traces)


def test_arrivals_are_those_published(dlrm: LoadResult) -> None:
    starts = np.array([t.events.start[t.collectives.event] for t in dlrm.traces])
    ends = np.array([t.events.end[t.collectives.event] for t in dlrm.traces])
    assert starts.argmax(axis=0).tolist() == [7, 7, 7, 7, 7, 5, 5, 4]
    spread = (starts.max(axis=0) - starts.min(axis=0)) // 1000
    assert spread.tolist() == [7624, 1101, 168, 125, 223, 534, 584, 885]
    assert (ends.max(axis=0) - ends.min(axis=0)).max() <= 7000


def test_accounts_are_those_published(dlrm: LoadResult, accounts: Callable[..., dict[str, float]]) -> None:
    mine = accounts(dlrm.traces[0])
    assert (mine["compute_us"], mine["comm_us"], mine["overlap_us"]) == (1034, 5798, 261)


def test_kernels_know_their_launch(dlrm: LoadResult) -> None:
    for trace in dlrm.traces:
        events = trace.events
        gpu = np.flatnonzero(events.launch >= 0)
        assert len(gpu) > 0.5 * (events.stream >= 0).sum()  # the others were launched before the window
        assert (events.correlation[events.launch[gpu]] == events.correlation[gpu]).all()
        assert (events.start[events.launch[gpu]] <= events.start[gpu]).all()
        assert (np.diff(events.start) >= 0).all()


def test_columns_equal_a_plain_reading(dlrm: LoadResult) -> None:
    trace = dlrm.traces[3]
    document = json.loads(Path(trace.source).read_bytes(), parse_float=Decimal)
    wanted = [
        (i, e)
        for i, e in enumerate(document["traceEvents"])
        if e["ph"] == "X" and e.get("cat") not in {"Trace", "python_function"}
    ]
    events = trace.events
    assert len(events) == len(wanted)
    for row, (position, event) in zip(np.argsort(events.position).tolist(), wanted, strict=True):
        args = event.get("args", {})
        on_device = event["cat"] in {"kernel", "gpu_memcpy", "gpu_memset"}
        assert events.position[row] == position
        assert events.start[row] == event["ts"] * 1000 + trace.meta.base_ns
        assert events.duration[row] == event["dur"] * 1000
        assert trace.strings[events.name[row]] == event["name"]
        assert events.stream[row] == (args["stream"] if on_device else -1)
        assert events.correlation[row] == args.get("correlation", -1)
        assert events.external_id[row] == args.get("External id", -1)
        if event["cat"] == "cpu_op" and "Input Dims" in args:
            assert json.loads(trace.strings[events.shape[row]]) == args["Input Dims"]
