"""The end of a rank's process: leave what was recorded, and end as it would have ended without us.

Three ways out concern us. A normal end or an uncaught exception runs ``atexit``. SIGTERM (torchrun's way to end the
survivors of a peer) kills without a word, so while a window is open, and only if nobody else handles the signal, a
handler closes the window and then lets the signal do its work. A main thread that hangs in native code, say in a
collective whose peer is gone, never runs Python handlers: a watcher thread then ends the process by the same signal
when the grace is over. SIGKILL and ``os._exit`` leave only the record of a life that did not end.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from types import FrameType

import torch

__all__ = ["Ending", "Settler", "exit_reason"]


def exit_reason() -> str | None:
    """The uncaught exception this process ends with, in a line; None for a normal end."""
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    return f"ended by {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}" if error else None


class Ending:
    """Calls ``close(reason)`` once when the process ends. ``reason`` is None for a normal end."""

    def __init__(self, close: Callable[[str | None], None], grace_s: float) -> None:
        self._close = close
        self._grace_s = grace_s
        self._closed = False
        atexit.register(self._at_exit)

    def _at_exit(self) -> None:
        if not self._closed:
            self._closed = True
            self._close(exit_reason())

    def guard_window(self) -> Callable[[], None]:
        """Handle SIGTERM from now until the returned function is called. Main thread only; else does nothing."""
        if (
            threading.current_thread() is not threading.main_thread()
            or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        ):
            return lambda: None
        reader, writer = socket.socketpair()
        writer.setblocking(False)
        previous = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        if previous != -1:
            # Somebody (asyncio) already uses the one wake-up descriptor there is.
            signal.set_wakeup_fd(previous)
            reader.close()
            writer.close()
            return lambda: None
        signal.signal(signal.SIGTERM, self._on_sigterm)
        threading.Thread(target=_watch, args=(reader, self._grace_s), name="rankscope-sigterm", daemon=True).start()

        def release() -> None:
            # A handler that the user has installed meanwhile is theirs and stays.
            if signal.getsignal(signal.SIGTERM) == self._on_sigterm:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
            with contextlib.suppress(ValueError):
                current = signal.set_wakeup_fd(-1)
                if current not in (-1, writer.fileno()):
                    signal.set_wakeup_fd(current)  # somebody else has taken it meanwhile
            writer.close()

        return release

    def _on_sigterm(self, signum: int, frame: FrameType | None) -> None:  # noqa: ARG002 - signature of a handler
        if not self._closed:
            self._closed = True
            self._close("terminated by SIGTERM")
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)


def _watch(reader: socket.socket, grace_s: float) -> None:
    """Wait for SIGTERM's number; when the process still lives after the grace, end it by the default action."""
    with reader:
        received = reader.recv(64)
        while received and signal.SIGTERM not in received:
            received = reader.recv(64)
        if not received:
            return
    threading.Event().wait(grace_s)
    # signal.signal works in the main thread only, and that one hangs.
    ctypes.CDLL(None).signal(int(signal.SIGTERM), None)
    os.kill(os.getpid(), signal.SIGTERM)


class Settler:
    """Tells whether a device finishes its work in time. Stopping a profiler waits for the device, and a collective
    whose peer is gone never finishes: then the window is given up rather than the process held.

    Its thread is made when the window opens: Python 3.12 starts no threads once it is shutting down.
    """

    def __init__(self, device: str | None) -> None:
        self._wanted = threading.Event()
        self._settled = threading.Event()
        self._device = device
        if device is not None:
            threading.Thread(target=self._wait, name="rankscope-settler", daemon=True).start()

    def _wait(self) -> None:
        self._wanted.wait()
        with contextlib.suppress(Exception):
            getattr(torch, str(self._device)).synchronize()
            self._settled.set()

    def settles(self, within_s: float) -> bool:
        """Wait for the device, at most so long."""
        self._wanted.set()
        return self._device is None or self._settled.wait(within_s)

    def dismiss(self) -> None:
        """Let the thread end."""
        self._wanted.set()
