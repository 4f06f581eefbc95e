"""Words in traces and records other than event names: kinds of calls, types, groups, hosts, devices, versions."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from rankscope.privacy.naming.policy import Policy
from rankscope.privacy.naming.public_names import known_words
from rankscope.privacy.naming.tokens import Tokens
from rankscope.trace.libraries import OURS

__all__ = ["Words"]

_DTYPES = re.compile(
    r"(?:c10::)?(?:Float|Double|Half|BFloat16|Int|Long|Short|Byte|Char|Bool|Undefined|Complex\w{0,6}|U?Int\d{1,2}|"
    r"float\d{0,2}|double|half|bfloat16|int\d{0,2}|uint\d{1,2}|bool|Float8_e\dm\d\w{0,4}|float8_e\dm\d\w{0,4}|long|"
    r"byte|char|short|QInt\d{1,2}|QUInt8)\Z",
    re.ASCII,
)
_COLLECTIVES = re.compile(
    r"_?(?:all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|all_?to_?allv|broadcast|reduce|gather|scatter|barrier|"
    r"monitored_barrier|send|recv|isend|irecv|recv_?any_?source|wait|init|start_?coalescing|end_?coalescing|sendrecv|"
    r"ALLREDUCE|ALLGATHER|REDUCE_SCATTER|ALLTOALL|unknown)"
    r"(?:_?(?:base|into_tensor|tensor|single|coalesced|sparse|out|tensors|list|v|_into_tensor|oop)){0,3}_{0,1}\Z",
    re.ASCII | re.IGNORECASE,
)
_BACKENDS = frozenset(
    {*(row.prefix for row in OURS if row.prefix), "cpu:gloo,cuda:nccl", "cuda:nccl", "cpu:gloo", "fake"}
)
_GROUPS = re.compile(
    r"\d{1,9}|undefined|default_pg|default|mesh_default|WORLD"
    r"|(?:mesh_)?(?:dp|tp|pp|cp|ep|sp|mp|fsdp|hsdp|ddp|edp|etp|dp_shard|dp_replicate|replicate|shard|tensor|pipeline|data"
    r"|expert|context)(?:_(?:cp|shard|replicate|parallel|group|pg|mod_ep|in_ep)){0,3}",
    re.ASCII,
)
"""Numbers, and names that PyTorch and its trainers give their groups."""
_MAKERS = re.compile(
    r"(?:NVIDIA|Tesla|GeForce|Quadro|AMD|Instinct|Radeon|Intel|Gaudi|Habana|HL-|Ascend|MTIA|Apple|Data Center GPU|Xeon|"
    r"GRID|Graphics Device)[\w \-()/.]{0,60}\Z|cpu(?: \([\w ]{1,20}\))?\Z"
    r"|(?:A|H|B|V|L|T|GH|GB|RTX|MI)\d{1,4}[\w \-]{0,40}\Z",
    re.ASCII,
)
_VERSION = re.compile(
    r"\d{1,10}(?:\.\d{1,10}){0,4}(?:(?:a|b|rc|\.dev|\.post)\d{1,8})*(?:\+(?:cu|cpu|rocm|xpu)[\d.]{0,8})?"
)
_UUID = re.compile(r"(GPU|MIG)-[0-9a-fA-F-]{8,}")
_THREADS = re.compile(
    r"pt_(?:autograd|data_pin|data_worker|main_thread|nccl_watchdg|nccl_heartbt|gloo_runloop|gloo_work|tcpstore\w*|elastic"
    r")(?:_\d{1,4})?|python\d?(?:\.\d{1,2})?|cuda-EvtHandlr|cuda\d{11}|OMP|gloo|nccl\w{0,12}|dmabuf_mover",
    re.ASCII,
)
_COUNTED_TRACK = re.compile(
    r"(?:GPU|CPU|Device|stream|Stream|thread)(?: \d{1,20})?(?: \((?:sync|null)\))? ?\Z"
    r"|CUPTI Overhead\Z|python\d?(?:\.\d{1,2})?\Z"
    r"|Spans\Z|Traces\Z|PyTorch Profiler\Z",
    re.ASCII,
)
_TRACK_OF_THREAD = re.compile(r"thread (?P<number>\d{1,20}) \((?P<name>.{0,80})\)\Z", re.S)


@dataclass(slots=True)
class Words:
    """Replaces each kind of word as the policy requires."""

    tokens: Tokens
    policy: Policy
    shift: int = field(init=False, default=0)
    """Added to ids of processes and threads."""
    earlier_ns: int = field(init=False, default=0)
    """Subtracted from times in the copy, in ns: whole seconds, up to eight years."""

    def __post_init__(self) -> None:
        if self.policy.process_ids == "shift":
            self.shift = 1_000_000 + self.tokens.number("pids", "", 1 << 29)
        if self.policy.times == "shift":
            self.earlier_ns = 10**9 * (1 + self.tokens.number("times", "", 8 * 365 * 86_400))

    def process(self, value: Any) -> Any:
        """Shift the id of a process or a thread; small ones (devices, streams) and those that mean none are kept."""
        if value.__class__ is int and _SMALL_IDS <= value < 1 << 62:
            return value + self.shift
        return value

    def time_ns(self, value: int) -> int:
        """Shift a time since 1970; times on another clock are kept."""
        return value - self.earlier_ns if value >= _SINCE_1970_NS else value

    def dtype(self, value: Any) -> str | None:
        """Return the type of elements."""
        if not isinstance(value, str):
            return None
        return value if _DTYPES.match(value) else self.tokens.token("own", value)

    def collective(self, value: Any) -> str | None:
        """Return the kind of a communication call."""
        if not isinstance(value, str):
            return None
        return (
            value if not value or _COLLECTIVES.match(value) or known_words(value) else self.tokens.token("own", value)
        )

    def group(self, value: Any) -> Any:
        """Return the name or description of a process group."""
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            return None
        text = str(value)
        return value if not text or _GROUPS.fullmatch(text) else self.tokens.token("group", text)

    def backend(self, value: Any) -> str | None:
        """Return a communication backend."""
        if not isinstance(value, str):
            return None
        return value if value in _BACKENDS else self.tokens.token("own", value)

    def host(self, value: Any) -> str | None:
        """Return the token of a host; an empty name stays empty."""
        return self.tokens.token("host", value) if isinstance(value, str) and value else value if value == "" else None

    def device_model(self, value: Any) -> str | None:
        """Return the vendor's name of a device model."""
        if not isinstance(value, str):
            return None
        keep = self.policy.device_models == "keep" and _MAKERS.match(value) is not None
        return value if keep or not value else self.tokens.token("device", value)

    def device_id(self, value: Any) -> str | None:
        """Return the token of the unique id of a device."""
        return self.tokens.token("device", value) if isinstance(value, str) and value else None

    def version(self, value: Any) -> str | None:
        """Return the released part of a version."""
        if self.policy.versions == "drop" or isinstance(value, bool) or not isinstance(value, (str, int)):
            return None
        match = _VERSION.match(str(value))
        return match[0] if match else None

    def thread(self, value: Any) -> str:
        """Return the name of a thread in the kernel."""
        text = value if isinstance(value, str) else ""
        return text if not text or _THREADS.fullmatch(text) else self.tokens.token("thread", text)

    def track(self, value: Any) -> str | None:
        """Return the name of a process or a thread in a trace."""
        if not isinstance(value, str):
            return None
        if (thread := _TRACK_OF_THREAD.match(value)) is not None:
            number = self.process(int(thread["number"]))
            return f"thread {number} ({self.thread(thread['name'])})"
        if _COUNTED_TRACK.match(value):
            return value
        return self.tokens.token("own", value) if value.strip() else ""


_SMALL_IDS = 1024
_SINCE_1970_NS = 10**18
