"""Redaction of run.json and the records of ranks: each field has its own rule, and unknown fields are left out."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any, TypeVar

from rankscope.capture_backends import backend_names
from rankscope.config import ToolConfig, step_sources
from rankscope.node.health.gpus import THROTTLE_REASONS
from rankscope.privacy.naming.policy import as_plain
from rankscope.privacy.naming.words import Words
from rankscope.records.manifest import RunManifest, WindowRanks
from rankscope.records.rank import (
    ClockSample,
    DevicePlace,
    HealthSample,
    HostSample,
    RankRecord,
    StepTimes,
    ThreadTimes,
)

__all__ = ["RULES", "config_of", "redact_record"]

T = TypeVar("T")
Rule = Callable[[Any, Words], Any]
LEFT_OUT = "left out of this redacted copy"

_REQUEST = re.compile(r"plan\Z|slow_step\Z|pattern\Z|script\Z|request_\d{4}\Z|periodic\Z")
_FILE = re.compile(r"rank_\d{1,7}\.(?:trace\.json\.gz|memory\.pickle)\Z")
_THROTTLE = re.compile(r"reason 0x[0-9a-f]{1,8}\Z")


def _same(value: Any, _: Words) -> Any:
    """Keep the value: a number, or a word of a fixed choice, which the reader of records has checked."""
    return value


def _time(value: Any, words: Words) -> Any:
    return words.time_ns(value)


def _process(value: Any, words: Words) -> Any:
    return words.process(value)


def _one_of(*known: str) -> Rule:
    return lambda value, words: value if value is None or value in known else words.tokens.token("own", value)


def _signal(value: Any, words: Words) -> Any:
    return _one_of(*step_sources())(value, words)


def _recorder(value: Any, words: Words) -> Any:
    return _one_of(*backend_names())(value, words)


def _fitting(pattern: re.Pattern[str]) -> Rule:
    return lambda value, _: value if value is None or pattern.match(value) else None


def _sentence(value: Any, _: Words) -> Any:
    return LEFT_OUT if value else None


def _sentences(value: Any, _: Words) -> list[str]:
    return [f"{len(value)} notes {LEFT_OUT}"] if value else []


def _none(_value: Any, _: Words) -> list[Any]:
    return []


def _each(value: Any, words: Words) -> Any:
    return [redact_record(item, words) for item in value]


def _inner(value: Any, words: Words) -> Any:
    return redact_record(value, words)


def _word(kind: str) -> Rule:
    """Return the rule that applies the method of :class:`Words` of this name."""
    return lambda value, words: getattr(words, kind)(value)


def _healthy(value: Any, words: Words) -> Any:
    return _each(value, words) if words.policy.health == "keep" else []


def _redaction(_: Any, words: Words) -> Any:
    return as_plain(words.policy)


_PACKAGES = frozenset({"rankscope", "python", "torch", "HolisticTraceAnalysis", "hydra-core"})
_TRUST = ("certain", "likely", "uncertain")
RULES: dict[type, dict[str, Rule]] = {
    ClockSample: {"realtime_ns": _time, "monotonic_ns": _same},
    StepTimes: dict.fromkeys(("before_ms", "inside_ms", "after_ms", "open_ms", "close_ms"), _same),
    ThreadTimes: {
        "tid": _process,
        "name": _word("thread"),
        **dict.fromkeys(("kind", "cpu_ms", "wait_ms"), _same),
    },
    HostSample: {"time_ns": _time}
    | {f.name: _same for f in dataclasses.fields(HostSample) if f.type in ("int | None", "float | None")},
    HealthSample: {
        "time_ns": _time,
        "device": lambda value, words: words.device_id(value) or "",
        "throttle": lambda value, _: [why for why in value if why in THROTTLE_REASONS.values() or _THROTTLE.match(why)],
    }
    | {f.name: _same for f in dataclasses.fields(HealthSample) if f.type in ("int | None", "float | None")},
    DevicePlace: {
        "numa": _same,
        "nics": lambda value, words: [words.tokens.token("own", name) for name in value],
        "nvlink": lambda value, words: [words.device_id(device) or "" for device in value],
    },
    RankRecord: {
        **dict.fromkeys(("rank", "local_rank", "world_size", "attempt", "window", "status", "steps_counted"), _same),
        **dict.fromkeys(("first_step", "last_step", "planned_first_step", "planned_last_step", "agreed"), _same),
        **dict.fromkeys(("gc_ms", "trace_bytes", "cuda_used", "open_window"), _same),
        "host": _word("host"),
        "pid": _process,
        "reason": _sentence,
        "device": _word("device_model"),
        "backend": _word("backend"),
        "torch_version": _word("version"),
        "step_source": _signal,
        "step_trust": _one_of(*_TRUST),
        "origin": lambda value, _: value if _REQUEST.match(value) else "plan",
        "capture": _recorder,
        "capture_reason": lambda *_: None,
        "clock": _each,
        "steps": _inner,
        "notes": _sentences,
        "trace": _fitting(_FILE),
        "snapshot": lambda value, words: _fitting(_FILE)(value, words) if words.policy.memory == "keep" else None,
        **dict.fromkeys(("sha256", "columns"), lambda *_: None),
        "device_uuid": _word("device_id"),
        "place": lambda value, words: None if value is None else redact_record(value, words),
        "health": _healthy,
        "host_load": _healthy,
        "threads": _healthy,
        "marks": _none,
        "described": lambda *_: {},  # tokens and operations of a step tell the size of a model
    },
    WindowRanks: {
        **dict.fromkeys(("attempt", "window", "world_size"), _same),
        "records": _each,
        "mismatches": _sentences,
    },
    RunManifest: {
        **dict.fromkeys(("world_size", "attempts", "exit_code"), _same),
        "run_id": lambda value, words: words.tokens.token("run", value),
        "argv": _none,
        "config": lambda value, _: config_of(value),
        "versions": lambda value, words: {
            name: said
            for name, version in value.items()
            if name in _PACKAGES and (said := words.version(version)) is not None
        },
        "hosts": lambda value, words: [words.host(host) for host in value],
        "windows": _each,
        "lives": _each,
        "marks": _none,
        "notes": _sentences,
        "redaction": _redaction,
        "hang": lambda _value, _words: None,  # its sentences contain lines of the script
    },
}
"""For each kind of record, the rule of each field. A field without a rule gets its default."""


def redact_record(record: T, words: Words) -> T:
    """Return a record for the copy. Fields without a rule get their default."""
    rules = RULES[type(record)]
    given = {name: rule(getattr(record, name), words) for name, rule in rules.items()}
    return type(record)(**given)


def config_of(config: Any) -> dict[str, Any]:
    """Return numbers and switches of the keys that rankscope has; no text."""
    found: dict[str, Any] = {}
    for group in dataclasses.fields(ToolConfig):
        usual = getattr(ToolConfig(), group.name)
        values = config.get(group.name) if isinstance(config, dict) else None
        if not isinstance(values, dict) or not dataclasses.is_dataclass(usual):
            continue  # the keys below script and env are names of the user's
        known = {f.name for f in dataclasses.fields(usual)}
        kept = {k: v for k, v in values.items() if k in known and isinstance(v, (bool, int, float))}
        if kept:
            found[group.name] = kept
    return found
