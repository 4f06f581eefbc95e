"""Notice the user's own torch.profiler and never disturb it.

Kineto supports one profiler at a time. Preparing a second one silently cancels the first, and exporting the cancelled
one crashes the process. Ours must therefore have ended *before* the user's is prepared, even if ours is only warming
up.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import profiler as autograd_profiler

from rankscope.agent.process.guard import guarded

__all__ = ["UserProfilerWatch"]


class UserProfilerWatch:
    """Watches ``torch.autograd.profiler.profile``, which every torch profiler is built on.

    Args:
        is_ours: whether a profile belongs to rankscope.
        on_prepare: called before a profiler of the user is prepared.
    """

    def __init__(self, is_ours: Callable[[object], bool], on_prepare: Callable[[], None]) -> None:
        self._active: weakref.WeakSet[Any] = weakref.WeakSet()
        self._is_ours = is_ours
        self._on_prepare = guarded(on_prepare)

    @property
    def active(self) -> bool:
        """Whether a profiler of the user is prepared or records."""
        return bool(self._active) or bool(torch._C._autograd._profiler_enabled())  # noqa: SLF001 - no public name

    def install(self) -> None:
        """Wrap preparation and exit; the wrappers call the originals."""
        profile: Any = autograd_profiler.profile
        prepare, leave = profile._prepare_trace, profile.__exit__  # noqa: SLF001 - the one place all profilers pass

        @functools.wraps(prepare)
        def _prepare_trace(this: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._is_ours(this):
                self._on_prepare()
                self._active.add(this)
            return prepare(this, *args, **kwargs)

        @functools.wraps(leave)
        def __exit__(this: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807 - the method's own name
            try:
                return leave(this, *args, **kwargs)
            finally:
                self._active.discard(this)

        profile._prepare_trace = _prepare_trace  # noqa: SLF001 - as above
        profile.__exit__ = __exit__
