"""Cost of closing a window for the training thread, part by part, for windows of several sizes.

    python benchmarks/closing.py

Processor time of the thread, which a busy machine changes little. A second thread counts meanwhile: where it does not
come on, the part holds Python's lock (GIL), and nothing else in the process runs.
"""

from __future__ import annotations

import gc
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from rankscope.agent.backends.inline import InlineCapture
from rankscope.agent.process.cupti_teardown import CuptiTeardown
from rankscope.config import ToolConfig, to_agent_spec

SIZES = ((8, 6), (32, 6), (64, 6), (64, 20))
"""(number of layers of the model, number of steps of the window)."""


def measure(layers: int, steps: int, folder: Path) -> tuple[int, dict[str, float], dict[str, int]]:
    """Return the number of events, ms of each part, and the progress of the second thread during each part."""
    model = nn.Sequential(*[nn.Linear(16, 16) for _ in range(layers)])
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, foreach=False)

    def step() -> None:
        optimizer.zero_grad()
        model(torch.randn(4, 16)).square().mean().backward()
        optimizer.step()

    spec = to_agent_spec(ToolConfig(), run_id="closing", spool=folder).capture
    capture = InlineCapture(spec, CuptiTeardown())
    took: dict[str, float] = {}
    came: dict[str, int] = {}

    def timed(name: str, part: Callable[[], object]) -> None:
        before, begun = count[0], time.thread_time()
        part()
        took[name] = (time.thread_time() - begun) * 1e3
        came[name] = count[0] - before

    step()
    count, over = [0], threading.Event()

    def counting() -> None:
        while not over.wait(0.0005):
            count[0] += 1

    timed("prepare", capture.prepare)
    timed("start", lambda: capture.start(0, {}))
    for number in range(steps):
        step()
        capture.mark(number + 1)
    capture.drained()
    thread = threading.Thread(target=counting)
    thread.start()
    trace = folder / "trace.json"
    gc.disable()
    timed("stop", capture._stop)  # noqa: SLF001 - its parts, one by one
    timed("write", lambda: capture._profile.export_chrome_trace(str(trace)))  # noqa: SLF001 - as above
    timed("free", capture.__dict__.clear)
    gc.enable()
    over.set()
    thread.join()
    return len(json.loads(trace.read_text())["traceEvents"]), took, came


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    sys.setswitchinterval(0.0005)
    parts = ("prepare", "start", "stop", "write", "free")
    print(f"torch {torch.__version__}; ms of the processor (times that a second thread ran within it)")
    print("| layers | steps | events | " + " | ".join(parts) + " | us per event |")
    print("| --- " * (len(parts) + 4) + "|")
    with tempfile.TemporaryDirectory() as folder:
        for layers, steps in SIZES:
            events, took, came = measure(layers, steps, Path(folder))
            cells = [f"{took[part]:.1f} ({came[part]})" for part in parts]
            closing = sum(took[part] for part in ("stop", "write", "free")) * 1e3 / events
            print(f"| {layers} | {steps} | {events} | " + " | ".join(cells) + f" | {closing:.1f} |")


if __name__ == "__main__":
    main()
