"""Function of the user's code that a rank was in: the deepest Python frame that is not in a library."""

from __future__ import annotations

import re
import sys

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.rank import intervals
from rankscope.analysis.rank.nesting import deepest
from rankscope.analysis.rank.view import RankView

__all__ = ["UserFrames", "readable", "user_frames"]

I64 = NDArray[np.int64]

_FRAME = re.compile(r"^(?P<file>.+\.py)\((?P<line>\d+)\): (?P<function>.+)$")
_INSTALLED = re.compile(r"(^|/)(site-packages|dist-packages|lib/python\d)")
_LIBRARIES = frozenset(
    {"torch", "torchgen", "functorch", "torchvision", "torchaudio", "triton", "numpy", "scipy", "pandas", "PIL"}
    | {"transformers", "accelerate", "datasets", "tokenizers", "deepspeed", "lightning", "pytorch_lightning"}
    | {"lightning_fabric", "lightning_utilities", "apex", "transformer_engine", "flash_attn", "xformers", "tqdm"}
    | {"wandb", "tensorboard", "hydra", "omegaconf", "ray", "einops", "rankscope"}
)
"""Kineto removes the folder of installed packages from its paths, so they begin with the package."""


class UserFrames:
    """Stretches of time of the main thread, each in one function of the user: sorted, disjoint, own clock."""

    def __init__(self, start: I64, end: I64, name: I64, strings: list[str]) -> None:
        self._start, self._end, self._name, self._strings = start, end, name, strings

    def __len__(self) -> int:
        return len(self._start)

    def inside(self, spans: intervals.Spans) -> dict[str, float]:
        """Return function -> ns of these spans in it, most first."""
        ns = intervals.cover(spans, self._start, self._end)
        names, place = np.unique(self._name, return_inverse=True)
        total = np.bincount(place, ns, len(names))
        order = np.argsort(-total, kind="stable")
        return {readable(self._strings[names[i]]): float(total[i]) for i in order.tolist() if total[i] > 0}

    def at(self, times: I64) -> list[str]:
        """Return the function at each time; empty if there is none."""
        place = np.searchsorted(self._start, times, side="right") - 1
        known = (place >= 0) & (times < self._end[place.clip(0)]) if len(self) else np.zeros(len(times), np.bool_)
        names = self._name[place.clip(0)] if len(self) else np.zeros(len(times), np.int64)
        words = {code: readable(self._strings[code]) for code in np.unique(names[known]).tolist()}
        return [words[code] if good else "" for code, good in zip(names.tolist(), known.tolist(), strict=True)]


def user_frames(view: RankView) -> UserFrames:
    """Return the functions that the thread of the script was in; empty if no stacks were recorded."""
    trace, python = view.trace, view.trace.python
    used = np.unique(python.name).tolist()
    own = np.array([code for code in used if _is_users(trace.strings[code])], np.int64)
    rows = np.flatnonzero(np.isin(python.name, own))
    if not len(rows):
        nothing = np.empty(0, np.int64)
        return UserFrames(nothing, nothing, nothing, trace.strings)
    threads, counts = np.unique(python.tid[rows], return_counts=True)
    main = _main_thread(view, threads, counts)
    rows = rows[python.tid[rows] == main]
    pieces = np.array(
        list(deepest(zip(*(c[rows].tolist() for c in (python.start, python.end, python.name)), strict=True)))
    )
    pieces = pieces.reshape(-1, 3).astype(np.int64)
    return UserFrames(pieces[:, 0].copy(), pieces[:, 1].copy(), pieces[:, 2].copy(), trace.strings)


def _main_thread(view: RankView, threads: I64, counts: I64) -> int:
    """Return the thread with frames of the user that runs most operators; if none does, the one with most frames."""
    operators = view.trace.events.tid[view.chain]
    run = np.array([int((operators == thread).sum()) for thread in threads.tolist()])
    return int(threads[np.lexsort((counts, run))[-1]])


def _is_users(name: str) -> bool:
    match = _FRAME.match(name)
    if match is None or name.startswith("<"):
        return False
    file = match["file"].replace("\\", "/")
    if _INSTALLED.search(file) or "<frozen" in file:
        return False
    first = file.removeprefix("./").partition("/")[0].removesuffix(".py")
    return file.startswith("/") or (first not in _LIBRARIES and first not in sys.stdlib_module_names)


def readable(name: str) -> str:
    """Convert ``train.py(12): main`` to ``main() (train.py:12)``, with the last two parts of a long path."""
    match = _FRAME.match(name)
    if match is None:
        return name
    file = "/".join(match["file"].replace("\\", "/").split("/")[-2:])
    function = match["function"]
    called = function if function.startswith("<") else f"{function}()"
    return f"{called} ({file}:{match['line']})"
