"""Metadata of a trace for a copy: rebuilt from the few keys that the analysis reads."""

from __future__ import annotations

from typing import Any

from rankscope.privacy.naming.words import Words
from rankscope.trace.columns import REDACTED
from rankscope.trace.kineto import repair
from rankscope.trace.kineto.call_notes import KEY as NOTES
from rankscope.trace.kineto.call_notes import notes_of
from rankscope.trace.kineto.meta import rank_list

__all__ = ["head_of"]

_VERSIONS = (
    *("cuda_driver_version", "cuda_runtime_version", "hip_driver_version", "hip_runtime_version", "cupti_version"),
    *("rocm_version", "torch_version", "pytorch_version", "nccl_version", "roctracer_version"),
)
_FLAGS = ("record_shapes", "with_stack", "profile_memory", "with_flops", "with_modules")
_HOSTS = ("hostname", "host", "host_name")
_DEVICE_NUMBERS = (
    *("id", "totalGlobalMem", "computeMajor", "computeMinor", "maxThreadsPerBlock", "maxThreadsPerMultiprocessor"),
    *("regsPerBlock", "warpSize", "sharedMemPerBlock", "numSms", "regsPerMultiprocessor"),
    *("sharedMemPerBlockOptin", "sharedMemPerMultiprocessor"),
)
_RANK_NUMBERS = ("rank", "world_size", "pg_count", "local_rank", "attempt", "window", "first_step", "last_step")
_OF_TEXT = frozenset(
    {repair.UNREADABLE, repair.UTF8, repair.ESCAPES, repair.CONTROL, repair.QUOTES, repair.CONSTANTS, repair.RANGE}
    | {repair.TRUNCATED, "metadata after the events unreadable", "metadata unreadable"}
)
"""Repairs of the text, which the copy does not need again; those of events are repeated when it is read."""


def head_of(raw: dict[str, Any], words: Words, repairs: dict[str, int], level: dict[str, Any]) -> dict[str, Any]:
    """Return the keys of a copy.

    Args:
        raw: the keys of the original, other than its events.
        words: replaces words.
        repairs: of the original: kind -> count.
        level: description of the policy, for the copy.
    """
    head: dict[str, Any] = {REDACTED: {**level, "repairs": {k: n for k, n in repairs.items() if k in _OF_TEXT}}}
    head |= {key: raw[key] for key in ("schemaVersion", *_FLAGS) if isinstance(raw.get(key), (bool, int))}
    if raw.get("displayTimeUnit") in ("ms", "ns"):
        head["displayTimeUnit"] = raw["displayTimeUnit"]
    for key in _VERSIONS:
        version = words.version(raw.get(key))
        if version is not None:
            head[key] = raw[key] if isinstance(raw[key], int) else version
    for key in _HOSTS:
        if isinstance(raw.get(key), str):
            head[key] = words.host(raw[key])
    base = raw.get("baseTimeNanoseconds")
    if isinstance(base, str) and base.isascii() and base.isdigit() and len(base) < 20:
        base = int(base)
    if isinstance(base, int) and not isinstance(base, bool):
        head["baseTimeNanoseconds"] = words.time_ns(base)
    devices = raw.get("deviceProperties")
    if isinstance(devices, list):
        head["deviceProperties"] = [_device(d, words) for d in devices if isinstance(d, dict)]
    if isinstance(raw.get("distributedInfo"), dict):
        head["distributedInfo"] = _job(raw["distributedInfo"], words)
    if isinstance(raw.get("rankscope"), dict):
        head["rankscope"] = _job(raw["rankscope"], words)
    if isinstance(raw.get(NOTES), dict) and (calls := notes_of(raw)):
        head[NOTES] = {"calls": [_note(call, words) for call in calls]}
    return head


def _numbers(said: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    """Return those of these keys that hold a number, or a number as text."""
    found = {}
    for key in keys:
        value = said.get(key)
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
            value = int(value)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            found[key] = value
    return found


def _device(value: dict[str, Any], words: Words) -> dict[str, Any]:
    device = _numbers(value, _DEVICE_NUMBERS)
    if isinstance(value.get("name"), str):
        device["name"] = words.device_model(value["name"])
    return device


def _job(said: dict[str, Any], words: Words) -> dict[str, Any]:
    job = _numbers(said, _RANK_NUMBERS)
    for key, judge in (
        ("backend", words.backend),
        ("torch", words.version),
        ("nccl_version", words.version),
        ("host", words.host),
    ):
        if (value := judge(said.get(key))) is not None:
            job[key] = value
    groups = said.get("pg_config")
    if isinstance(groups, list):
        job["pg_config"] = [_group(g, words) for g in groups if isinstance(g, dict)]
    return job


def _group(said: dict[str, Any], words: Words) -> dict[str, Any]:
    group = _numbers(said, ("pg_size",))
    for key in ("pg_name", "pg_desc"):
        if (value := words.group(said.get(key))) is not None:
            group[key] = value
    if ranks := rank_list(said.get("ranks")):
        group["ranks"] = list(ranks)
    return group


def _note(call: Any, words: Words) -> list[Any]:
    kind, _, ends = call.kind.partition(" ")
    plain = (words.collective(kind) or "") + (f" {ends}" if ends and _ends(ends) else "")
    source = "python:" if call.by_python else "nccl:"
    elements = call.in_elements, call.out_elements
    if words.policy.message_sizes == "drop":
        elements = -1, -1
    return [
        words.time_ns(call.created),
        str(words.group(call.group) or ""),
        source + plain,
        call.seq,
        call.p2p_seq,
        *elements,
        words.dtype(call.dtype) if call.dtype else "",
    ]


def _ends(text: str) -> bool:
    """Whether the text has the form ``1->0``, as in the name of a send."""
    return len(text) < 24 and set(text) <= set("0123456789<->")
