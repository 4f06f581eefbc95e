"""Ranks to node helper, and node helper to report: the binary layout of the log of all steps.

A log is a header and entries of one size. The ring that a rank writes has as many entries as :data:`STEP_LOG_CAPACITY`;
what the helper takes out of it, and the gzipped file in the run directory, have no limit. A file without the header is
of version 1: entries of :data:`STEP_LOG_ENTRY_V1` from its first byte on (its first step, whose beginning nobody saw,
lasts 0, so that no such file begins like a header).
"""

from __future__ import annotations

import struct

__all__ = [
    "AFTER_CALLS",
    "CHECKPOINT",
    "DEVICE",
    "EVALUATION",
    "FORWARD_CALLS",
    "RECORDED",
    "STEP_LOG_CAPACITY",
    "STEP_LOG_COLUMNS",
    "STEP_LOG_ENTRY",
    "STEP_LOG_ENTRY_V1",
    "STEP_LOG_HEADER",
    "STEP_LOG_MAGIC",
    "STEP_LOG_VERSION",
    "WRAPPED",
    "begins_with_header",
]

STEP_LOG_MAGIC = b"RSsl"
STEP_LOG_VERSION = 2
STEP_LOG_HEADER = struct.Struct("<4sHHQ")
"""Magic, version, bytes of an entry, and, in a ring, the steps noted so far (elsewhere 0)."""

STEP_LOG_COLUMNS = (
    "step",
    "input",
    "gc",
    "before",
    "forward",
    "backward",
    "after",
    "cpu",
    "held",
    "cpu_backward",
    "held_backward",
    "device_before",
    "device_forward",
    "device_backward",
    "device_after",
    "issued",
)
"""Microseconds, in the order of an entry.

``step`` is the time between two ends of a step on the host. ``before``, ``forward``, ``backward`` and ``after`` are its
parts and add up to it: until the forward of the root model begins (the data loader is in it), from there to the
backward, the backward, and what follows it until the step ends. ``input`` is time in ``DataLoader.__next__``, ``gc`` in
Python's garbage collector. ``cpu`` is the CPU time of the training thread, ``held`` the time in which it could run and
was not let, both from the end of one backward to that of the next, or of one step to the next where there is no
backward; what of them lay in the backward follows. ``device_*`` are the four parts on the device's own clock, where
:data:`DEVICE` is set. ``issued`` is the time from the beginning of the backward to the last communication
call issued in it, 0 where it was not looked up.
"""
STEP_LOG_ENTRY = struct.Struct(f"<{len(STEP_LOG_COLUMNS)}IHHHHQ")
"""The columns; then how many steps the entry stands for (with more than one, columns are means), flags, communication
calls of the step, 0; and the end of the (last) step on CLOCK_REALTIME in ns. All zero: a step that was lost."""
STEP_LOG_ENTRY_V1 = struct.Struct("<IIII")
"""``step``, ``input``, ``gc``, and 1 inside a window, else 0."""
STEP_LOG_CAPACITY = 1 << 16
"""Entries of a rank's ring; entry ``n`` lies at ``n % STEP_LOG_CAPACITY``."""

RECORDED = 1
"""Flag: inside a window, warm-up included."""
CHECKPOINT = 2
"""Flag: something was saved with ``torch.save`` or ``safetensors``."""
EVALUATION = 4
"""Flag: a model was set to evaluate, or its root ran without gradients."""
FORWARD_CALLS = 8
"""Flag: the forward communicates by its nature (FSDP; DDP with buffers), so that a late peer is waited for in it."""
DEVICE = 16
"""Flag: the device's own times are there."""
WRAPPED = 32
"""Flag: the forward of a model that is wrapped for data parallelism was seen: the parts are those of the job."""
AFTER_CALLS = 64
"""Flag: communication was seen between the backward and the end of the step."""


def begins_with_header(head: bytes) -> bool:
    """Whether a log that begins like this has a header, which is that of version 2 or later."""
    return head[: len(STEP_LOG_MAGIC)] == STEP_LOG_MAGIC
