"""Ranks to node helper: the binary layout of the log of all steps."""

from __future__ import annotations

import struct

__all__ = ["STEP_LOG_CAPACITY", "STEP_LOG_ENTRY", "STEP_LOG_HEADER"]


STEP_LOG_HEADER = struct.Struct("<Q")
"""Steps noted so far."""
STEP_LOG_ENTRY = struct.Struct("<IIII")
"""Of one step, in microseconds: duration, data loader, garbage collection; then 1 inside a window, else 0."""
STEP_LOG_CAPACITY = 1 << 16
"""Entries of a rank's ring; entry ``n`` lies at ``n % STEP_LOG_CAPACITY``."""
