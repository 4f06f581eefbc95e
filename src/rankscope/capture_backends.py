"""Table of all capture backends. Standard library only, because the launcher reads this table too.

To add one, add a file to ``agent/backends`` with a class that has the methods of ``Capture`` in its ``base``, a row
here, and a paragraph in docs/capture.md. No other code refers to a backend by its name.

Other packages add backends through the entry points ``rankscope.backends`` (see :mod:`rankscope.plugins`).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from rankscope import plugins

__all__ = ["OURS", "Backend", "backend_names", "load_capture", "recorder", "resolve"]

_PLACE = re.compile(r"[\w.]+:\w+")


@dataclass(frozen=True, kw_only=True, slots=True)
class Backend:
    """One value of ``capture.backend``: a class that records, or the name of another backend that is used instead."""

    name: str
    """The value of ``capture.backend``, and ``capture`` in the records of ranks."""
    recorder: str
    """Name of the recorder in reports."""
    capture: str = ""
    """``module:class`` of the capture. A rank imports it when the training script has imported torch, and calls the
    class with the :class:`~rankscope.records.spec.CaptureSpec` of the window and the rank's ``CuptiTeardown``."""
    instead: str = ""
    """The backend that is used instead of this one; empty if this one records."""
    reason: str | None = None
    """Why another backend is used, for the records of the ranks; None if no reason is given."""

    def __post_init__(self) -> None:
        """Check that exactly one of ``capture`` and ``instead`` is set."""
        if bool(self.capture) == bool(self.instead) or not (self.instead or _PLACE.fullmatch(self.capture)):
            raise ValueError(
                f"{self.name}: a backend has a capture (module:class), or another one that records instead"
            )


_OWN_THREADS = (
    "libkineto's own threads are not used, because they read lists that other threads are still writing, which can "
    "end the job; torch.profiler records"
)

OURS: tuple[Backend, ...] = (
    Backend(name="auto", recorder="torch.profiler", instead="inline"),
    Backend(name="inline", recorder="torch.profiler", capture="rankscope.agent.backends.inline:InlineCapture"),
    Backend(
        name="cuda_profiler",
        recorder="another tool",
        capture="rankscope.agent.backends.cuda_profiler:CudaProfilerCapture",
    ),
    Backend(name="kineto", recorder="libkineto", instead="inline", reason=_OWN_THREADS),
    Backend(name="kineto_alone", recorder="libkineto", instead="inline", reason=_OWN_THREADS),
)
_OURS: Mapping[str, Backend] = {backend.name: backend for backend in OURS}


def _named(name: str) -> Backend | None:
    # Reading entry points takes time in each rank, so they are read only for a name that is not built in.
    return _OURS.get(name) or next((backend for backend in _theirs() if backend.name == name), None)


@functools.cache
def _theirs() -> tuple[Backend, ...]:
    return plugins.load("backends", Backend, frozenset(_OURS), "name")


def backend_names() -> list[str]:
    """Return the values of ``capture.backend``, those of other packages last."""
    return [*_OURS, *(backend.name for backend in _theirs())]


def resolve(name: str) -> tuple[str, str | None]:
    """Return the backend that records if ``name`` is configured, and the reason if that is another one.

    A name unknown to this process is returned unchanged; the rank that cannot import it reports the error.
    """
    backend = _named(name)
    if backend is None or not backend.instead:
        return name, None
    return backend.instead, backend.reason


def load_capture(name: str) -> Callable[..., Any]:
    """Import the class of a backend. Only a rank does that.

    Raises:
        LookupError: no installed package has this backend.
        ImportError: its module cannot be imported.
        AttributeError: its module has no such class.
    """
    backend = _named(name)
    if backend is None or not backend.capture:
        raise LookupError(f"capture.backend={name} is not installed in the environment of this rank")
    module, _, attribute = backend.capture.partition(":")
    made: Callable[..., Any] = getattr(import_module(module), attribute)
    return made


def recorder(name: str) -> str:
    """Return the recorder of a backend as reports name it; for an unknown backend its name."""
    return _OURS[name].recorder if name in _OURS else name
