"""Device memory with a real allocator: the history of a window, and an out-of-memory error."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from rankscope.analysis.memory.rows import memory_rows
from rankscope.analysis.memory.snapshot import BEFORE

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

MIB = 1 << 20
SCRIPT = """
import sys
from pathlib import Path
import torch
from rankscope.agent.backends.memory_history import MemoryHistory, watch_out_of_memory

folder = Path(sys.argv[1])
watch_out_of_memory(folder / "rank_00000.memory_oom.pickle", rank=0, attempt=0)
assert not torch.cuda.is_initialized()
older = torch.zeros(4 << 20, dtype=torch.uint8, device="cuda")
history = MemoryHistory()
history.install()
assert history.start(), history.reason
large = torch.empty(8 << 20, dtype=torch.uint8, device="cuda")
small = torch.empty(2 << 20, dtype=torch.uint8, device="cuda")
del large
assert history.dump(folder / "rank_00000.memory.pickle", rank=0, attempt=0, window=0), history.reason
history.stop()
for _ in range(2):
    try:
        torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
    except torch.cuda.OutOfMemoryError:
        pass
"""


def test_a_window_and_an_error(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    subprocess.run([sys.executable, script, tmp_path], check=True, timeout=300)
    (error, window), faults = memory_rows([], sorted(tmp_path.glob("*.pickle")))
    assert faults == []
    assert (window.window, window.peak_allocated_bytes, window.end_allocated_bytes) == (0, 14 * MIB, 6 * MIB)
    assert window.complete
    assert [(f.bytes, f.count) for f in window.top] == [(8 * MIB, 1), (4 * MIB, 1), (2 * MIB, 1)]
    assert [f.frame.split(":")[0] for f in window.top] == [
        f"{tmp_path.name}/train.py",
        BEFORE,
        f"{tmp_path.name}/train.py",
    ]
    assert (error.window, error.requested_bytes, error.end_allocated_bytes) == (None, 1 << 50, 6 * MIB)
