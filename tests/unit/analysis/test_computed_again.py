"""Kernels of the forward that the backward runs again. Expected numbers are worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rankscope.analysis.gains.computed_again import again, again_ms
from rankscope.analysis.operators.work import operator_of_kernels
from rankscope.analysis.windows.analyse import analyse_window
from rankscope.trace.kineto.build import read_trace

from .test_operators import event

NODE = "autograd::engine::evaluate_function: AddmmBackward0"


def trace(tmp_path: Path, again: str) -> Any:
    """A forward; a node of the backward that first runs ``again`` and an addition, then its own product; another node.

    Kernels take 100 us each, one after the other from 100 us on.
    """
    rows = [event("ProfilerStep#1", "user_annotation", 0.0, 2000.0), event(NODE, "cpu_op", 40.0, 30.0)]
    rows.append(event(NODE, "cpu_op", 75.0, 10.0))
    calls = (("aten::linear", 10.0), (again, 45.0), ("aten::add", 50.0), ("aten::linear", 55.0), ("aten::mm", 62.0))
    for number, (operator, at) in enumerate((*calls, ("aten::mm", 78.0)), 1):
        key = {"External id": number}
        rows += [
            event(operator, "cpu_op", at, 3.0, **key),
            event("cudaLaunchKernel", "cuda_runtime", at + 1, 1.0, correlation=number, **key),
            event(f"kernel_{number}", "kernel", 100.0 * number, 100.0, 7, stream=7, correlation=number, **key),
        ]
    path = tmp_path / "rank_0.json"
    path.write_text(json.dumps({"baseTimeNanoseconds": 0, "traceEvents": rows}))
    return read_trace(path)


def test_the_forward_in_a_node_of_the_backward_is_run_again(tmp_path: Path) -> None:
    """Kernels 2 to 4 come before the end of the last operator of the forward in the node; each takes 100 us."""
    window = analyse_window([trace(tmp_path, "aten::gelu")])
    (view,) = window.views
    kernels, _ = operator_of_kernels(view)
    names = [view.trace.strings[code] for code in view.trace.events.name[kernels].tolist()]
    found = dict(zip(names, again(view, kernels).tolist(), strict=True))
    assert found == {f"kernel_{n}": n in (2, 3, 4) for n in range(1, 7)}
    assert again_ms([window]) == pytest.approx(0.3, abs=0.02)


def test_a_backward_without_a_forward(tmp_path: Path) -> None:
    window = analyse_window([trace(tmp_path, "aten::mul")])
    kernels, _ = operator_of_kernels(window.views[0])
    assert again(window.views[0], kernels).sum() == 3, "the second linear is still of the forward"
    bare = trace(tmp_path, "aten::mul")
    bare.strings[bare.strings.index("aten::linear")] = "aten::matmul"
    window = analyse_window([bare])
    assert not again(window.views[0], kernels).any()
    assert again_ms([window]) == 0.0
