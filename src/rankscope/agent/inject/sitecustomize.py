"""Arms the agent in the first Python process of a rank, then gets out of the way.

Python imports the first module of this name on ``sys.path`` before it looks at the script, so the user's command
runs exactly as under torchrun: same ``__main__``, argv, ``sys.path`` and traceback, with ``-m`` and ``--no-python``
alike. What let us in is taken back at once: children of this process never see it. Where RANKSCOPE_DISABLE is set (to
anything but nothing, 0 and false), that is all that happens.
"""

import contextlib
import importlib
import os
import sys


def _withdraw() -> "str | None":
    here = os.path.dirname(__file__)
    sys.path[:] = [entry for entry in sys.path if entry != here]
    spec = os.environ.pop("RANKSCOPE_AGENT", None)
    own = os.environ.pop("RANKSCOPE_PYTHONPATH", "")
    if own:
        os.environ["PYTHONPATH"] = own
    else:
        os.environ.pop("PYTHONPATH", None)
    return spec


def _chain() -> None:
    """Give way to the sitecustomize that Python would have found without us."""
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


# Whoever starts ranks (torchrun's own process) passes the message on and is no rank itself.
if "RANK" in os.environ:
    _spec = _withdraw()
    # The same words as rankscope.rundir.spool.disabled, which is not imported here: nothing of ours shall be.
    if _spec and os.environ.get("RANKSCOPE_DISABLE", "").strip().lower() in ("", "0", "false"):
        try:
            from rankscope.agent import bootstrap

            bootstrap.arm(_spec)
        except Exception as error:  # a job must start even when we cannot
            with contextlib.suppress(Exception):  # nor can it be said where stderr is closed or full
                print(f"rankscope: this rank is not profiled: {error!r}", file=sys.stderr)
    _chain()
