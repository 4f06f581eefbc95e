"""Metadata of a trace, outside its events."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from rankscope.limits import MAX_RANKS
from rankscope.records.codec import decoded_bytes
from rankscope.trace.columns import REDACTED, Group, TraceMeta
from rankscope.trace.kineto import repair

__all__ = ["device_name", "groups_of", "parse_head", "rank_list", "repairs_before", "typed", "without_groups"]

_VERSION_KEYS = {
    "cuda_driver_version": "cuda_driver",
    "cuda_runtime_version": "cuda_runtime",
    "hip_driver_version": "hip_driver",
    "hip_runtime_version": "hip_runtime",
    "cupti_version": "cupti",
    "rocm_version": "rocm",
    "torch_version": "torch",
    "pytorch_version": "torch",
    "nccl_version": "nccl",
}
_FLAG_KEYS = ("record_shapes", "with_stack", "profile_memory", "with_flops", "with_modules")
_MOST_DECODED_BYTES = 256 << 20
"""The groups of a hundred thousand ranks and their ranks take a tenth of it."""
_HOST_KEYS = ("hostname", "host", "host_name")


def parse_head(head: bytes, tail: bytes) -> tuple[dict[str, Any], list[str]]:
    """Return the top-level keys other than the events, from the text before and after them.

    The second result names repairs; text that cannot be repaired gives no keys and the words ``metadata unreadable``.
    """
    if not head.strip():  # a bare list of events
        return {}, []
    whole = _tidy(head) + b'"traceEvents":[]' + tail
    without_tail = _tidy(head) + b'"traceEvents":[]}', ["metadata after the events unreadable"]
    if decoded_bytes(whole) > _MOST_DECODED_BYTES:
        return {}, ["metadata of more lists and objects than any trace has"]
    for text, kinds in (*repair.attempts(whole), without_tail):
        try:
            raw = msgspec.json.decode(text.lstrip(b"\xef\xbb\xbf"))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        if isinstance(raw, dict):
            raw.pop("traceEvents", None)
            return raw, kinds
    return {}, ["metadata unreadable"]


def _tidy(head: bytes) -> bytes:
    return head if head.rstrip().endswith((b",", b"{")) else head + b","


def typed(raw: dict[str, Any]) -> tuple[TraceMeta, list[str]]:
    """Return typed metadata; the second result is remarks for the reader of the report."""
    notes: list[str] = []
    info = raw.get("distributedInfo")
    info = info if isinstance(info, dict) else {}
    base = raw.get("baseTimeNanoseconds", 0)
    base = int(base) if isinstance(base, str) and base.isdigit() and len(base) < 20 else base
    if isinstance(base, bool) or not isinstance(base, int) or not 0 <= base <= 4 * 10**18:
        notes.append("baseTimeNanoseconds is no usable time; the trace keeps its own zero")
        base = 0
    ours = raw.get("rankscope")  # added by the agent; distributedInfo exists only with an initialised process group
    info = {**ours, **info} if isinstance(ours, dict) else info
    rank, world = _natural(info.get("rank")), _natural(info.get("world_size"))
    for name, value in (("rank", rank), ("world_size", world)):
        if value is not None and value > MAX_RANKS:
            notes.append(f"distributedInfo says {name} {value}, which is not believed: the limit is {MAX_RANKS}")
    rank = rank if rank is None or rank < MAX_RANKS else None
    world = world if world is None or world <= MAX_RANKS else None
    if rank is not None and world is not None and rank >= world > 0:
        notes.append(f"distributedInfo names rank {rank} of {world}")
    versions = {name: str(raw[key]) for key, name in _VERSION_KEYS.items() if isinstance(raw.get(key), (str, int))}
    if isinstance(info.get("torch"), str):
        versions["torch"] = info["torch"]
    if isinstance(info.get("nccl_version"), (str, int)):
        versions["nccl"] = str(info["nccl_version"])
    host = next((raw[k] for k in _HOST_KEYS if isinstance(raw.get(k), str)), info.get("host"))
    backend = info.get("backend")
    meta = TraceMeta(
        rank=rank,
        world_size=world,
        backend=backend if isinstance(backend, str) else None,
        host=host if isinstance(host, str) else None,
        base_ns=base,
        versions=versions,
        flags={k: bool(raw[k]) for k in _FLAG_KEYS if isinstance(raw.get(k), (bool, int))},
        raw=raw,
    )
    return meta, notes


def repairs_before(raw: dict[str, Any]) -> dict[str, int]:
    """Return the repairs of the original of a redacted copy: kind -> count; empty for any other file."""
    copy = raw.get(REDACTED)
    repairs = copy.get("repairs") if isinstance(copy, dict) else None
    if not isinstance(repairs, dict):
        return {}
    return {str(kind)[:100]: count for kind, count in repairs.items() if type(count) is int and 0 < count < 1 << 40}


def device_name(raw: dict[str, Any], device: int | None) -> str | None:
    """Return the name of the device with this number, or of all devices if they have one name."""
    listed = raw.get("deviceProperties")
    devices = [d for d in listed if isinstance(d, dict)] if isinstance(listed, list) else []
    for properties in devices:
        if properties.get("id") == device and isinstance(properties.get("name"), str):
            return str(properties["name"])
    names = {str(d["name"]) for d in devices if isinstance(d.get("name"), str)}
    return names.pop() if len(names) == 1 else None


def groups_of(raw: dict[str, Any]) -> dict[str, Group]:
    """Return the process groups of ``pg_config``, by their name on this rank."""
    info = raw.get("distributedInfo")
    listed = info.get("pg_config") if isinstance(info, dict) else None
    groups: dict[str, Group] = {}
    for entry in listed if isinstance(listed, list) else []:
        if isinstance(entry, dict) and isinstance(entry.get("pg_name"), (str, int)):
            name = str(entry["pg_name"])
            groups[name] = Group(name, str(entry.get("pg_desc", "")), rank_list(entry.get("ranks")))
    return groups


def without_groups(raw: dict[str, Any]) -> dict[str, Any]:
    """Return ``raw`` without the groups that :func:`groups_of` returned: with thousands of ranks each has all of
    them."""
    info = raw.get("distributedInfo")
    if not isinstance(info, dict) or "pg_config" not in info:
        return raw
    return {**raw, "distributedInfo": {key: value for key, value in info.items() if key != "pg_config"}}


def rank_list(value: Any) -> tuple[int, ...]:
    """Return the ranks of a group; empty if absent, truncated by dots, or not a list of ranks."""
    if isinstance(value, str):
        if "..." in value or not re.fullmatch(r"\s*\[[\d\s,]*\]\s*", value):
            return ()
        value = [int(n) for n in re.findall(r"\d{1,9}", value)]
    if not isinstance(value, list) or not all(isinstance(v, int) and 0 <= v < 1 << 31 for v in value):
        return ()
    return tuple(value)


def _natural(value: Any) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31 else None
