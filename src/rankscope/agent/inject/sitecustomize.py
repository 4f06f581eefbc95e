"""Start the agent in the first Python process of a rank, and restore what let it in.

Python imports the first module of this name on ``sys.path`` before it looks at the script, so the user's command runs
exactly as without us: same ``__main__``, argv, ``sys.path`` and traceback, with ``-m`` and ``--no-python`` alike.
What let the agent in is restored at once in a process that was started as a rank: children of it never see it.
Elsewhere, below ``rankscope exec``, it stays in the environment for the ranks that may come, until this process turns
out to be one. Where RANKSCOPE_DISABLE is set (to anything but an empty value, 0 and false), all is restored and nothing
else happens.
"""

import contextlib
import importlib
import os
import sys


def _withdraw() -> None:
    for name in ("RANKSCOPE_AGENT", "RANKSCOPE_TOLD"):
        os.environ.pop(name, None)
    own = os.environ.pop("RANKSCOPE_PYTHONPATH", None)
    if own is None:
        os.environ.pop("PYTHONPATH", None)
    else:
        os.environ["PYTHONPATH"] = own


def _chain() -> None:
    """Run the sitecustomize that Python would have found without this one."""
    ours = sys.modules.pop("sitecustomize", None)
    try:
        importlib.import_module("sitecustomize")
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        # The import system insists on finding a module of this name when this one has run.
        if ours is not None:
            sys.modules.setdefault("sitecustomize", ours)


def _begin() -> None:
    here = os.path.dirname(__file__)
    sys.path[:] = [entry for entry in sys.path if entry != here]
    spec = os.environ.get("RANKSCOPE_AGENT")
    if not spec:
        return
    # The same words as rankscope.rundir.spool.disabled, which is not imported here: nothing of ours shall be.
    if os.environ.get("RANKSCOPE_DISABLE", "").strip().lower() not in ("", "0", "false"):
        _withdraw()
        return
    certain = False
    try:
        from rankscope.agent import bootstrap

        certain = bootstrap.is_rank(os.environ)
        bootstrap.arm(spec, certain=certain)
    except Exception as error:  # a job must start even when we cannot
        # Another Python, without rankscope, is no news unless it trains.
        if "RANK" in os.environ and not os.environ.get("RANKSCOPE_TOLD", "").startswith("torchrun"):
            certain = True
            with contextlib.suppress(Exception):  # nor can it be said where stderr is closed or full
                print(f"rankscope: this rank is not profiled: {error!r}", file=sys.stderr)
    if certain:
        _withdraw()


_begin()
_chain()
