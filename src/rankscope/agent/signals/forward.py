"""Forwards of the outermost module: the only signal where nothing trains, as in inference, evaluation and generation.

A step begins with the forward. Of several outermost modules (a loss is a module too) the first one counts. It is
replaced by another only when it is idle or no longer exists.

Every call of every module passes through this patch, so it is removed as soon as a better signal counts the steps.
"""

from __future__ import annotations

import functools
import threading
import weakref
from typing import Any

import torch

from rankscope.agent.signals.base import Signal, Watch

__all__ = ["SIGNAL"]

_IDLE_FOR = 16
"""Number of forwards of other modules after which a module counts as idle."""


class _Depth(threading.local):
    inside = False


def _install(watch: Watch) -> None:
    module: Any = torch.nn.Module
    original = module.__call__
    depth = _Depth()
    anchor: Any = None
    others = 0

    def begins(outermost: Any) -> None:
        nonlocal anchor, others
        if anchor is None or anchor() is not outermost:
            others += 1
            if anchor is not None and anchor() is not None and others <= _IDLE_FOR:
                return
            anchor = weakref.ref(outermost)
        others = 0
        watch.between()
        watch.signal("forward")

    @functools.wraps(original)
    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807 - the method's own name
        if torch.compiler.is_compiling() or depth.inside:
            return original(self, *args, **kwargs)
        depth.inside = True
        try:
            begins(self)
            return original(self, *args, **kwargs)
        finally:
            depth.inside = False

    def remove() -> None:
        if module.__call__ is __call__:
            module.__call__ = original

    module.__call__ = __call__
    watch.when_believed("forward", remove)


SIGNAL = Signal("forward", "forwards of the outermost module", "uncertain", patience=True, install=_install)
