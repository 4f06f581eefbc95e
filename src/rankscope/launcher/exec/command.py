"""Run the user's command in a child process, as if rankscope were not between it and its caller.

The command shares our process group, terminal and streams. A signal that ends us ends the command too, and we exit as
the command has.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import NoReturn

from rankscope.launcher.ending import Ending
from rankscope.launcher.exec.witness import Witness

__all__ = ["Command", "become", "can_run", "die_with_parent"]

_PASSED_ON = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGWINCH")
_STOPS = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT}
_PR_SET_PDEATHSIG = 1
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126
"""Exit codes of shells in these cases (POSIX, Shell Command Language 2.8.2)."""
_SHELL = "/bin/sh"


def can_run(words: Sequence[str]) -> bool:
    """Return whether the command is an executable file, by itself or on the PATH."""
    return shutil.which(words[0]) is not None


class Command:
    """A child that waits for its environment, and then becomes the command. To be created before any thread is.

    Args:
        words: the command line.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self._words = list(words)
        self._stopped_by: int | None = None
        self._came: list[int] = []
        self._passing = self._ended = False
        identity_from, self._tell = os.pipe()
        self._failure, fails = os.pipe()
        parent = os.getpid()
        self._witness = Witness()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._tell)
            os.close(self._failure)
            die_with_parent(parent)
            _become_when_told(self._words, identity_from, fails)
        os.close(identity_from)
        os.close(fails)
        for name in _PASSED_ON:
            number = getattr(signal, name)
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup: the command ignores it as well
                signal.signal(number, self._pass_on)

    def run(self, changes: Mapping[str, str | None]) -> Ending:
        """Let the command begin, with changes to our environment (None: removed), and wait for its end."""
        with os.fdopen(self._tell, "wb") as stream, contextlib.suppress(BrokenPipeError):
            stream.write(json.dumps(dict(changes)).encode())
        with os.fdopen(self._failure, "rb") as stream:
            failure = stream.read()
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        self._ended = True  # from now on its process id may be reused
        _, status = os.waitpid(self.pid, 0)
        self._witness.close()
        if failure:
            sys.stderr.write(failure.decode(errors="replace"))
            sys.stderr.flush()
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            return Ending(exit_code=128 + number, signal=number, by_signal=True)
        return Ending(exit_code=os.WEXITSTATUS(status), signal=self._stopped_by)

    @property
    def stopped(self) -> bool:
        """Whether the job is being ended, or was ended, by a signal to this process."""
        return self._stopped_by is not None

    def drop(self) -> None:
        """End the child without running the command."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self._witness.close()

    def _pass_on(self, number: int, _frame: FrameType | None) -> None:
        """Pass signals on one by one: handlers can interrupt handlers, and the witness answers one question at a
        time."""
        self._came.append(number)
        if self._ended and number in _STOPS:
            self._stopped_by = number
        if self._passing or self._ended:
            return
        self._passing = True
        try:
            while self._came:
                self._pass_on_one(self._came.pop(0))
                self._settle()
        finally:
            self._passing = False

    def _pass_on_one(self, number: int) -> None:
        if number in _STOPS:
            self._stopped_by = number
        seen = self._witness.seen()
        if number not in seen:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)
        # A signal that the group got several times is seen once by the witness. All of them have reached this process
        # by now.
        self._settle()
        for _ in range(len(self._came)):  # in place, since a handler may append at any time
            other = self._came.pop(0)
            if other not in seen:
                self._came.append(other)

    def _settle(self) -> None:
        """Call a function, because calls are where Python runs the handlers of pending signals."""


def become(words: Sequence[str], changes: Mapping[str, str | None]) -> NoReturn:
    """Replace this process by the command, which gets its process id, signals and streams."""
    _change(changes)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.flush()
    try:
        _execute(words)
    except OSError as error:
        text, code = _in_words(words[0], error)
        with contextlib.suppress(OSError):
            os.write(2, text)
        os._exit(code)


def _change(changes: Mapping[str, str | None]) -> None:
    for name in ("SIGPIPE", "SIGXFSZ"):  # Python ignores these, and the command would inherit that
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    for name, value in changes.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _become_when_told(words: list[str], identity_from: int, fails: int) -> NoReturn:
    try:
        text = b""
        while part := os.read(identity_from, 1 << 16):
            text += part
        os.close(identity_from)
        _change(json.loads(text) if text else {})
        _execute(words)
    except OSError as error:
        said, code = _in_words(words[0], error)
        os.write(fails, said)
        os._exit(code)
    except BaseException:
        os._exit(1)


def _execute(words: Sequence[str]) -> NoReturn:
    """Become the command as execvp(3) does it, and so ``env`` and ``nohup``: a script without a first line that names
    its interpreter is the shell's. That of Python fails.

    Raises:
        OSError: it cannot be executed.
    """
    if not words[0]:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    try:
        os.execvp(words[0], list(words))  # noqa: S606 - the user's own command
    except OSError as error:
        script = shutil.which(words[0])
        if error.errno != errno.ENOEXEC or script is None:
            raise
        os.execv(_SHELL, [_SHELL, script, *words[1:]])  # noqa: S606 - as above


def _in_words(word: str, error: OSError) -> tuple[bytes, int]:
    code = _NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE
    return f"rankscope: error: {word}: {error.strerror}\n".encode(), code


def die_with_parent(parent: int, number: int = signal.SIGKILL) -> None:
    """Have the kernel send this process a signal when its parent ends, because killing us is meant for the command.

    Args:
        parent: the parent's process id, determined before this process was forked.
        number: number of the signal.
    """
    with contextlib.suppress(Exception):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)
