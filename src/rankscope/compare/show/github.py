"""Annotations of GitHub Actions: lines that it reads from standard output (workflow commands)."""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.compare.gate import Failure

__all__ = ["workflow_commands"]


def workflow_commands(failures: Sequence[Failure]) -> str:
    """Return a line for each condition that holds (an error) or could not be decided (a warning)."""
    lines = [
        f"::{'error' if failure.state == 'holds' else 'warning'} title={_property(f'rankscope: {failure.condition}')}::"
        f"{_message(failure.text)}"
        for failure in failures
    ]
    return "\n".join(lines) + "\n" if lines else "::notice title=rankscope::no condition holds\n"


def _message(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")
