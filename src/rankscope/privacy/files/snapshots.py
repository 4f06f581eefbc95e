"""Redaction of a memory snapshot: sizes, times and order are kept; stacks become tokens, addresses are shifted."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

from rankscope.privacy.naming.policy import Policy
from rankscope.privacy.naming.tokens import Tokens
from rankscope.privacy.naming.words import Words
from rankscope.rundir.files import temporary_beside

__all__ = ["redact_snapshot"]

_PROTOCOL = 4
"""The newest pickle protocol that PyTorch's memory viewer reads."""
_ACTIONS = frozenset(
    {
        *("alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map", "segment_unmap"),
        *("snapshot", "oom", "user_defined", "free"),
    }
)
_STATES = frozenset({"active_allocated", "active_awaiting_free", "active_pending_free", "inactive"})
_PUBLIC_FILE = re.compile(r"/(?:torch|rankscope)/(?:[\w.\-]{1,80}/){0,12}[\w.\-]{1,80}\Z", re.ASCII)
_SEGMENT_NUMBERS = ("device", "total_size", "allocated_size", "active_size", "requested_size")
_OURS = ("rank", "attempt", "window", "requested_bytes")


def redact_snapshot(source: Path, target: Path, secret: bytes, policy: Policy) -> dict[str, str]:
    """Write the copy. To be run in a process of its own, since its memory and time depend on the content of the file.

    Returns:
        The tokens that were made.

    Raises:
        TraceError, ForeignFileError: it is not a snapshot.
        OSError: the copy cannot be written.
    """
    from rankscope.analysis.memory.process import load_limited

    snapshot = load_limited(source)
    scrubber = _Scrubber(Words(Tokens(secret), policy))
    clean = scrubber.snapshot(snapshot)
    with temporary_beside(target) as temporary:
        with temporary.open("wb") as stream:
            pickle.dump(clean, stream, protocol=_PROTOCOL)
        temporary.replace(target)
    return scrubber.words.tokens.made


class _Scrubber:
    def __init__(self, words: Words) -> None:
        self.words = words
        self._moved = words.tokens.number("addresses", "", 1 << 40) << 9
        self._frames: dict[tuple[Any, ...], dict[str, Any]] = {}

    def snapshot(self, original: dict[str, Any]) -> dict[str, Any]:
        about = original.get("rankscope")
        clean: dict[str, Any] = {
            "segments": [self._segment(s) for s in original["segments"] if isinstance(s, dict)],
            "device_traces": [
                [self._event(e) for e in events if isinstance(e, dict) and e.get("action") in _ACTIONS]
                for events in original["device_traces"]
            ],
        }
        if isinstance(about, dict):
            clean["rankscope"] = {key: about[key] for key in _OURS if type(about.get(key)) is int}
            clean["rankscope"] |= {"complete": about["complete"]} if isinstance(about.get("complete"), bool) else {}
        return clean

    def _address(self, value: Any) -> Any:
        """Shift all addresses by the same distance, so that positions within a segment are kept."""
        return value + self._moved if type(value) is int and value else 0

    def _stream(self, value: Any) -> int:
        return self.words.tokens.number("streams", str(value), 1 << 30) if type(value) is int and value else 0

    def _segment(self, original: dict[str, Any]) -> dict[str, Any]:
        clean: dict[str, Any] = {key: original[key] for key in _SEGMENT_NUMBERS if type(original.get(key)) is int}
        clean["address"] = self._address(original.get("address"))
        clean["stream"] = self._stream(original.get("stream"))
        clean["segment_type"] = (
            original["segment_type"] if original.get("segment_type") in ("small", "large") else "large"
        )
        clean["is_expandable"] = original.get("is_expandable") is True
        clean["frames"] = self._stack(original.get("frames"))
        clean["blocks"] = [self._block(b) for b in original["blocks"] if isinstance(b, dict)]
        return clean

    def _block(self, original: dict[str, Any]) -> dict[str, Any]:
        clean: dict[str, Any] = {
            key: original[key] for key in ("size", "requested_size") if type(original.get(key)) is int
        }
        clean["state"] = original["state"] if original.get("state") in _STATES else "inactive"
        if "address" in original:
            clean["address"] = self._address(original["address"])
        clean["frames"] = self._stack(original.get("frames"))
        return clean

    def _event(self, original: dict[str, Any]) -> dict[str, Any]:
        clean: dict[str, Any] = {"action": original["action"], "addr": self._address(original.get("addr"))}
        clean["size"] = original["size"] if type(original.get("size")) is int else 0
        clean["stream"] = self._stream(original.get("stream"))
        if type(original.get("time_us")) is int:
            clean["time_us"] = self.words.time_ns(original["time_us"] * 1000) // 1000
        if type(original.get("device_free")) is int:
            clean["device_free"] = original["device_free"]
        clean["frames"] = self._stack(original.get("frames"))
        return clean

    def _stack(self, frames: Any) -> list[dict[str, Any]]:
        return [self._frame(f) for f in frames if isinstance(f, dict)] if isinstance(frames, (list, tuple)) else []

    def _frame(self, frame: dict[str, Any]) -> dict[str, Any]:
        file, line, name = (str(frame.get(key, ""))[:4096] for key in ("filename", "line", "name"))
        known = self._frames.get((file, line, name))
        if known is None:
            token = self.words.tokens.token
            public = _PUBLIC_FILE.search(file)
            number = self.words.tokens.number("line", f"{file}:{line}", 10**6)
            if public is not None:  # the line in PyTorch, like the name, shows which part of it was used
                known = {"filename": public[0], "line": number, "name": token("stack", name)}
            else:
                known = {"filename": f"{token('path', file)}.py", "line": number, "name": token("stack", name)}
            self._frames[file, line, name] = known
        return known
