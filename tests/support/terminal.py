"""Run a command on a pseudo-terminal and capture its output."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from typing import Literal, NamedTuple


class Shown(NamedTuple):
    """A finished command."""

    text: str
    """Output to the terminal."""
    other: bytes
    """Output to the other stream, which was a file."""
    code: int


def on_a_terminal(words: Sequence[str], stream: Literal["stdout", "stderr"], **variables: str) -> Shown:
    """Run a command with one of its streams on a terminal, without variables that set colours."""
    leader, follower = os.openpty()
    env = {k: v for k, v in os.environ.items() if k not in {"NO_COLOR", "FORCE_COLOR"}} | variables
    with tempfile.TemporaryFile() as file:
        streams = {"stdout": file, "stderr": file, stream: follower}
        with subprocess.Popen(words, env=env, **streams) as process:  # type: ignore[call-overload]
            os.close(follower)
            data = b""
            try:
                while block := os.read(leader, 1 << 16):
                    data += block
            except OSError:  # the other end was closed
                pass
            os.close(leader)
            code = process.wait(300)
        file.seek(0)
        return Shown(data.decode(), file.read(), code)
