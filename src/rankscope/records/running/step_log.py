"""Ranks to node helper, and node helper to report: the binary layout of the log of all steps.

A log is a header followed by entries of one size. The ring that a rank writes has :data:`STEP_LOG_CAPACITY` entries;
the copy that the helper reads from it, and the gzipped file in the run directory, have no limit. A file without the
header is of version 1: entries of :data:`STEP_LOG_ENTRY_V1` from its first byte on. Its first step, whose begin was not
seen, has duration 0, so that no such file begins like a header.
"""

from __future__ import annotations

import struct

__all__ = [
    "AFTER_CALLS",
    "ASKED",
    "CALL_TIMES_ENTRY",
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
"""Magic, version, bytes per entry, and, in a ring, the number of steps logged so far (elsewhere 0)."""

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
parts and add up to it: until the forward of the root model begins (including the data loader), from there to the
backward, the backward, and from its end to the end of the step. ``input`` is time in ``DataLoader.__next__``, ``gc`` in
Python's garbage collector. ``cpu`` is the CPU time of the training thread, ``held`` the time in which it was runnable
but not running, both from the end of one backward to that of the next, or of one step to the next if there is no
backward; their parts within the backward follow. In steps in which the counters were not read they are shared out, see
:mod:`rankscope.agent.steps.counts`. ``device_*`` are the four parts on the device's own clock, if
:data:`DEVICE` is set. ``issued`` is the time from the begin of the backward to the last communication call issued in
it, the rank's own time there; 0 if it was not determined, see :mod:`rankscope.agent.steps.call_times`.
"""
STEP_LOG_ENTRY = struct.Struct(f"<{len(STEP_LOG_COLUMNS)}IHHHHQ")
"""The columns; then the number of steps that the entry stands for (with more than one, columns are means), flags,
number of communication calls of the step and their time on the device in 0.1 ms, where they were determined; and the
end of the (last) step on CLOCK_REALTIME in ns. All zero: a lost
step."""
STEP_LOG_ENTRY_V1 = struct.Struct("<IIII")
"""``step``, ``input``, ``gc``, and 1 inside a window, else 0."""
STEP_LOG_CAPACITY = 1 << 16
"""Entries of a rank's ring; entry ``n`` is at index ``n % STEP_LOG_CAPACITY``."""

RECORDED = 1
"""Flag: inside a window, warm-up included."""
CHECKPOINT = 2
"""Flag: something was saved with ``torch.save`` or ``safetensors``."""
EVALUATION = 4
"""Flag: a model was set to evaluation mode, or its root ran without gradients."""
FORWARD_CALLS = 8
"""Flag: the forward contains collectives (FSDP; DDP with buffers), so that it waits for a late peer."""
DEVICE = 16
"""Flag: the entry has device times."""
WRAPPED = 32
"""Flag: the forward of a model that is wrapped for data parallelism was seen, so the parts are those of the job's
step."""
AFTER_CALLS = 64
"""Flag: communication was seen between the backward and the end of the step."""
ASKED = 128
"""Flag: torch's flight recorder was read in the step, which made it some milliseconds longer."""

CALL_TIMES_ENTRY = struct.Struct("<IIHH")
"""From a rank to its helper, which adds it to the log: number of a step (from 0), ``issued``, number of calls, their
time on the device in 0.1 ms."""


def begins_with_header(head: bytes) -> bool:
    """Return whether a log that begins like this has a header, that is, is of version 2 or later."""
    return head[: len(STEP_LOG_MAGIC)] == STEP_LOG_MAGIC
