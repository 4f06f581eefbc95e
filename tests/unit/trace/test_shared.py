"""Values that the ranks of a job have in common are in memory once."""

from __future__ import annotations

import json
from pathlib import Path

from rankscope.trace.files.load import load_traces

GROUP = {"pg_name": "0", "pg_desc": "default_pg", "ranks": [0, 1, 2]}


def test_lists_of_ranks_and_names_are_one_object_for_all_ranks(tmp_path: Path) -> None:
    for rank in range(3):
        events = [
            {"ph": "X", "cat": "kernel", "name": "a long name of a kernel", "ts": 1.0 + rank, "dur": 2, "pid": 0,
             "tid": 7, "args": {"stream": 7, "correlation": 1}},
            {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum", "ts": 5.0 + rank, "dur": 2, "pid": 0,
             "tid": 7, "args": {"stream": 7, "correlation": 2, "Collective name": "allreduce", "dtype": "Float",
                                "In msg nelems": 4, "Out msg nelems": 4, "Group size": 3, "Process Group Name": "0",
                                "Process Group Ranks": "[0, 1, 2]"}},
        ]  # fmt: skip
        info = {"rank": rank, "world_size": 3, "pg_config": [GROUP]}
        text = json.dumps({"distributedInfo": info, "traceEvents": events})
        (tmp_path / f"rank_{rank}.json").write_text(text)
    for source in ("files", "cache"):
        first, *others = load_traces([tmp_path], workers=1, cache=tmp_path / "cache").traces
        groups = [group for group in first.groups if group.ranks == (0, 1, 2)]
        assert groups, source
        assert "pg_config" not in first.meta.raw["distributedInfo"]
        kernel = next(text for text in first.strings if text.startswith("a long"))
        for other in others:
            assert any(group.ranks is groups[0].ranks for group in other.groups), source
            assert any(text is kernel for text in other.strings), source
