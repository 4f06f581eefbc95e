"""Exit handler of a rank: save what was recorded, and let the process end as it would have ended without rankscope.

A process can end in three ways that matter here. A normal end or an uncaught exception runs ``atexit``. SIGTERM, by
which torchrun ends the other ranks when one fails, kills at once. So while a window is open or libkineto still writes
it, and only if no other handler is installed, a handler closes the window and then lets the signal act. A main thread
that hangs in native code, such as a collective whose peer has exited, never runs Python handlers: a watcher thread then
ends the process by the same signal after a grace period. After SIGKILL or ``os._exit`` only an unfinished record of the
process is left.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from multiprocessing import process, util
from types import FrameType
from typing import Any

import torch

from rankscope.agent.process.descriptors import close_own, file_of

__all__ = ["ExitHandler", "Settler", "exit_reason"]

_signal, _getsignal, _set_wakeup_fd = signal.signal, signal.getsignal, signal.set_wakeup_fd


def exit_reason() -> str | None:
    """Return the uncaught exception that ends this process, in a line; None for a normal end."""
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    return f"ended by {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}" if error else None


class ExitHandler:
    """Calls ``close(reason)`` once when the process ends. ``reason`` is None for a normal end."""

    def __init__(self, close: Callable[[str | None], None], grace_s: float) -> None:
        self._close = close
        self._grace_s = grace_s
        self._begun = False
        self._terminated = False
        self._wakeup: socket.socket | None = None
        self._unread: socket.socket | None = None
        self._patches: tuple[Any, ...] = ()
        self._sockets = (-1, -1), (-1, -1)
        atexit.register(self._at_exit)

    def end_with_multiprocessing(self) -> None:
        """Run at the exit of a forked child of multiprocessing too, which calls ``os._exit`` after its finalizers,
        without ``atexit``."""
        if process.parent_process() is not None:
            util.Finalize(None, self._at_exit, exitpriority=1)

    def _at_exit(self) -> None:
        # when another rank ends, SIGTERM arrives within 0.1 s, while the window is being closed
        self.guard(leaving=True)
        self._run(exit_reason())
        self._unguard()
        if self._terminated:
            _terminate()

    def _on_sigterm(self, signum: int, frame: FrameType | None) -> None:  # noqa: ARG002 - signature of a handler
        if _getsignal(signal.SIGTERM) != self._on_sigterm:
            return  # the script's own handler is installed and has called the one that it replaced
        self._terminated = True
        if not self._begun:
            self._run("terminated by SIGTERM")
            _terminate()

    def _run(self, reason: str | None) -> None:
        if not self._begun:
            self._begun = True
            self._close(reason)

    def run_now(self, reason: str | None = None) -> None:
        """Close before the process ends; its later exit is not handled any more."""
        self._run(reason)
        self._unguard()

    def guard(self, *, leaving: bool = False) -> None:
        """Handle SIGTERM from now on. ``leaving``: the interpreter shuts down.

        Does nothing outside the main thread, or if the script handles the signal or uses the wake-up descriptor.
        """
        in_main = threading.current_thread() is threading.main_thread()
        if not in_main or _getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            return
        try:
            reader, writer = socket.socketpair()
        except OSError:  # no file descriptor is left: the signal acts as it would have without rankscope
            return
        writer.setblocking(False)
        previous = _set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        if previous != -1:
            _set_wakeup_fd(previous)
            reader.close()
            writer.close()
            return
        self._wakeup = writer
        self._sockets = file_of(reader.fileno()), file_of(writer.fileno())
        watcher = threading.Thread(
            target=_watch, args=(reader, self._sockets[0], self._grace_s), name="rankscope-sigterm", daemon=True
        )
        try:
            watcher.start()
        except RuntimeError:
            # Python 3.12 starts no threads during shutdown, so the handler alone has to suffice there. Before shutdown
            # the reason is RLIMIT_NPROC, and the handler is removed: without a watcher, a process that hangs would
            # survive the signal.
            if not leaving:
                reader.close()
                self._unguard()
                return
            self._unread = reader
        _signal(signal.SIGTERM, self._on_sigterm)
        self._hide()

    def _hide(self) -> None:
        """Make calls of the script that read or replace the handler of SIGTERM while ours is installed return what they
        would return without rankscope."""

        def seen(handler: Any) -> Any:
            return signal.SIG_DFL if handler == self._on_sigterm else handler

        @functools.wraps(_getsignal)
        def getsignal(number: Any) -> Any:
            return seen(_getsignal(number))

        @functools.wraps(_signal)
        def set_signal(number: Any, handler: Any) -> Any:
            return seen(_signal(number, handler))

        @functools.wraps(_set_wakeup_fd)
        def set_wakeup_fd(descriptor: int, **more: Any) -> int:
            before = _set_wakeup_fd(descriptor, **more)
            return -1 if self._wakeup is not None and before == self._wakeup.fileno() else before

        self._patches = getsignal, set_signal, set_wakeup_fd
        for patch in self._patches:
            setattr(signal, patch.__name__, patch)

    def release(self) -> None:
        """Restore the handling of the signal when all is written, unless the process is ending."""
        if not self._begun:
            self._unguard()

    def _unguard(self) -> None:
        if self._wakeup is None:
            return
        originals = (_getsignal, _signal, _set_wakeup_fd)
        for original, patch in zip(originals, self._patches, strict=False):
            if getattr(signal, original.__name__) is patch:  # else the script has wrapped ours, and its wrapper stays
                setattr(signal, original.__name__, original)
        if _getsignal(signal.SIGTERM) == self._on_sigterm:
            _signal(signal.SIGTERM, signal.SIG_DFL)
        current = _set_wakeup_fd(-1)
        if current not in (-1, self._wakeup.fileno()):
            _set_wakeup_fd(current)  # the script has set its own meanwhile, which is kept
        _close(self._wakeup, self._sockets[1])
        self._wakeup = None


def _terminate() -> None:
    """Let SIGTERM act as it would have without rankscope."""
    _signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)


def _close(own: socket.socket, file: tuple[int, int]) -> None:
    """Close a socket, unless its number now belongs to a file of the script."""
    close_own(own.detach(), file)


def _watch(reader: socket.socket, file: tuple[int, int], grace_s: float) -> None:
    """Wait for the number of SIGTERM; if the process still runs after the grace period, end it by the default
    action."""
    try:
        received = reader.recv(64)
        while received and signal.SIGTERM not in received:
            received = reader.recv(64)
        if not received:
            return
    except OSError:  # the script has closed all descriptors that it does not know
        return
    finally:
        _close(reader, file)
    threading.Event().wait(grace_s)
    # signal.signal works in the main thread only, which hangs.
    ctypes.CDLL(None).signal(int(signal.SIGTERM), None)
    os.kill(os.getpid(), signal.SIGTERM)


class Settler:
    """Determines whether a device finishes its work in time, without blocking the process.

    Stopping a profiler waits for the device, and a collective whose peer has exited never finishes: then the window is
    abandoned so that the process can exit.

    Its thread is created when the window opens, because Python 3.12 starts no threads during shutdown.

    Args:
        device: ``cuda``, ``xpu``, or None on a CPU. The index of the device is read here, in the training thread: a new
            thread begins with the first device, and using that would create a context on it (0.2 s, 0.5 GB).
    """

    def __init__(self, device: str | None) -> None:
        self._asked = threading.Event()
        self._settled = threading.Event()
        self._dismissed = False
        self._device = device
        if device is not None:
            module = getattr(torch, device)
            work = functools.partial(module.synchronize, module.current_device())
            # no thread can be started any more: then the device counts as not finishing
            with contextlib.suppress(RuntimeError):
                threading.Thread(target=self._wait, args=(work,), name="rankscope-settler", daemon=True).start()

    def _wait(self, work: Callable[[], None]) -> None:
        self._asked.wait()
        if self._dismissed:
            return
        with contextlib.suppress(Exception):
            work()
            self._settled.set()

    def settles(self, within_s: float) -> bool:
        """Wait for the device, at most ``within_s`` seconds; return whether it has finished."""
        self._asked.set()
        return self._device is None or self._settled.wait(within_s)

    def dismiss(self) -> None:
        """End the thread."""
        self._dismissed = True
        self._asked.set()
