"""Start the agent in the first Python process of a rank, and restore the environment that led to it.

Python imports the first module of this name on ``sys.path`` before it reads the script, so the user's command runs
exactly as without rankscope: same ``__main__``, argv, ``sys.path`` and traceback, also with ``-m`` and ``--no-python``.
A process that was started as a rank restores its environment at once, so its children never see the variables. Other
processes below ``rankscope exec`` keep them for ranks that they may start, until a process turns out to be a rank
itself. If RANKSCOPE_DISABLE is set (to anything but an empty value, 0 and false), all is restored and nothing else
happens.
"""

import contextlib
import importlib
import os
import sys

_HERE = os.path.dirname(__file__)


def _withdraw() -> None:
    """Restore the environment."""
    for name in ("RANKSCOPE_AGENT", "RANKSCOPE_TOLD"):
        os.environ.pop(name, None)
    own = os.environ.pop("RANKSCOPE_PYTHONPATH", None)
    value = _without_ours(os.environ.get("PYTHONPATH"), own)
    if value is None:
        os.environ.pop("PYTHONPATH", None)
    else:
        os.environ["PYTHONPATH"] = value


def _without_ours(value: "str | None", own: "str | None") -> "str | None":
    """Return what PYTHONPATH would be without rankscope; None if it would not be set.

    Args:
        value: PYTHONPATH as it is: a script between rankscope and this process may have put folders before and behind
            what it found there.
        own: as it was before rankscope added to it; None if it was not set.
    """
    entries = (value or "").split(os.pathsep)
    if _HERE not in entries:
        return value
    if value == _HERE:
        return own
    ours = f"{_HERE}{os.pathsep}{own}" if own else _HERE
    if f"{os.pathsep}{ours}{os.pathsep}" in f"{os.pathsep}{value}{os.pathsep}":
        return str(value).replace(ours, own or "", 1)
    return os.pathsep.join(entry for entry in entries if entry != _HERE)  # the script has sorted them


def _remove_ours() -> None:
    """Take our folder from ``sys.path``. ``PYTHONPATH=src:$PYTHONPATH`` where that was not set ends with an empty
    entry, which means the current folder: it is what the place of ours would have held."""
    value, own = os.environ.get("PYTHONPATH", ""), os.environ.get("RANKSCOPE_PYTHONPATH")
    entries = (_without_ours(value, own) or "").split(os.pathsep)
    if value != _HERE and not own and "" in entries and _HERE in sys.path:
        with contextlib.suppress(OSError):  # the current folder was removed
            here = os.getcwd()
            if here not in sys.path:
                sys.path[sys.path.index(_HERE)] = here
    sys.path[:] = [entry for entry in sys.path if entry != _HERE]


def _chain() -> None:
    """Run the sitecustomize that Python would have imported without this one."""
    ours = sys.modules.pop("sitecustomize", None)
    try:
        importlib.import_module("sitecustomize")
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        # The import system requires a module of this name to exist after this one has run.
        if ours is not None:
            sys.modules.setdefault("sitecustomize", ours)


def _begin() -> None:
    _remove_ours()
    spec = os.environ.get("RANKSCOPE_AGENT")
    if not spec:
        return
    # The same values as in rankscope.rundir.spool.disabled, which is not imported, since a disabled rankscope imports
    # none of its modules.
    if os.environ.get("RANKSCOPE_DISABLE", "").strip().lower() not in ("", "0", "false"):
        _withdraw()
        return
    certain = False
    try:
        from rankscope.agent import bootstrap

        certain = bootstrap.is_rank(os.environ)
        bootstrap.arm(spec, certain=certain, withdraw=_withdraw)
    except Exception as error:  # a job must start even if the agent cannot
        # A Python without rankscope is reported only if it trains.
        if "RANK" in os.environ and not os.environ.get("RANKSCOPE_TOLD", "").startswith("torchrun"):
            certain = True
            with contextlib.suppress(Exception):  # stderr may be closed or full
                print(f"rankscope: this rank is not profiled: {error!r}", file=sys.stderr)
    if certain:
        _withdraw()


_begin()
_chain()
