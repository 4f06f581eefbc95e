"""Forwards of the outermost module: what is left where nothing trains, in inference, evaluation and generation.

A step begins with the forward. Of several outermost modules (a loss is a module as well) the first counts, and another
one only when that has been idle or is gone.

Every call of every module passes here, so this is taken away as soon as steps are counted by something better.
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
"""So many forwards of others show that a module is not used any more."""


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
