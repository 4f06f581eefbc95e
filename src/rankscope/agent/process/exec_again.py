"""Arm the agent again in a rank that replaces itself by another program, such as the same script with LD_PRELOAD set.

The variables that let the agent in were removed, so that children of the rank do not see them. A program that replaces
the rank is no child: it has the process id and the rank. So ``os.execv`` and ``os.execve``, on which the other
functions of this family are built, hand it these variables. Standard library only, and little of it.
"""

from __future__ import annotations

import os

from rankscope.agent.process.guard import guarded

TYPE_CHECKING = False  # each rank imports this before its script begins
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, MutableMapping
    from typing import Any

__all__ = ["ENV_IDENTITY", "before_exec", "survive_exec"]

_SPEC, ENV_IDENTITY, _OWN = "RANKSCOPE_AGENT", "RANKSCOPE_TOLD", "RANKSCOPE_PYTHONPATH"
"""The same values as in ``rundir.spool``, which is not imported yet."""
_INJECT = os.path.join(os.path.dirname(os.path.dirname(__file__)), "inject")  # noqa: PTH118, PTH120 - without pathlib
_execv, _execve = os.execv, os.execve
_rank = -1
_variables: dict[str, str] = {}
_before: list[Callable[[], None]] = []


def survive_exec(environ: Mapping[str, str]) -> None:
    """Remember the variables that started the agent in this rank, before they are removed from the environment."""
    _variables.update({name: environ[name] for name in (_SPEC, ENV_IDENTITY) if name in environ})
    _install()


def before_exec(call: Callable[[], None]) -> None:
    """Register a function that is called before this process is replaced, in the replacing thread.

    It is called only if the program exists and can be executed.
    """
    _before[:] = [guarded(call)]
    _install()


def _install() -> None:
    global _rank  # noqa: PLW0603 - one process, one rank
    _rank = os.getpid()
    if os.execv is not _execv or os.execve is not _execve:
        return

    def execv(path: Any, argv: Any, /) -> Any:
        undo = _prepare(path, os.environ)
        try:
            return _execv(path, argv)
        finally:  # the call returned, so it has failed
            for name, value in undo.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value

    def execve(path: Any, argv: Any, env: Any) -> Any:
        if env is os.environ or isinstance(env, dict):
            env = dict(env)
            if all(isinstance(name, str) for name in env):  # bytes may name a variable a second time
                _prepare(path, env)
        return _execve(path, argv, env)

    for ours, theirs in ((execv, _execv), (execve, _execve)):
        ours.__name__, ours.__qualname__, ours.__doc__ = theirs.__name__, theirs.__qualname__, theirs.__doc__
        setattr(os, theirs.__name__, ours)
    if _execve in os.supports_fd:
        os.supports_fd.add(execve)


def _prepare(path: Any, env: MutableMapping[str, str]) -> dict[str, str | None]:
    """Add the variables to an environment and return their previous values. In a child process nothing is changed."""
    if os.getpid() != _rank or not _can_run(path):
        return {}
    for call in _before:
        call()
    if not _variables:
        return {}
    changed = dict(_variables)
    own = env.get("PYTHONPATH")
    changed["PYTHONPATH"] = os.pathsep.join([_INJECT, *([own] if own else [])])
    if own is not None:
        changed[_OWN] = own
    before = {name: env.get(name) for name in changed}
    env.update(changed)
    return before


def _can_run(path: Any) -> bool:
    if isinstance(path, int):  # an open file
        return True
    try:
        return os.access(path, os.X_OK) and not os.path.isdir(path)  # noqa: PTH112 - without pathlib
    except (TypeError, ValueError):
        return False  # the call itself raises the error
