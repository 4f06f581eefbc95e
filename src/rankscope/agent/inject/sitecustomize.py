"""Start the agent in the first Python process of a rank, and restore what let it in.

Python imports the first module of this name on ``sys.path`` before it looks at the script, so the user's command runs
exactly as under torchrun: same ``__main__``, argv, ``sys.path`` and traceback, with ``-m`` and ``--no-python`` alike.
What let the agent in is restored at once: children of this process never see it. Where RANKSCOPE_DISABLE is set (to
anything but an empty value, 0 and false), nothing else happens.
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


# The process that starts ranks (torchrun's own) passes the message on and is no rank itself.
if "RANK" in os.environ:
    _spec = _withdraw()
    # The same values as in rankscope.rundir.spool.disabled, which is not imported here, to import nothing else.
    if _spec and os.environ.get("RANKSCOPE_DISABLE", "").strip().lower() in ("", "0", "false"):
        try:
            from rankscope.agent import bootstrap

            bootstrap.arm(_spec)
        except Exception as error:  # a job must start even when the agent cannot
            with contextlib.suppress(Exception):  # where stderr is closed or full it cannot be reported either
                print(f"rankscope: this rank is not profiled: {error!r}", file=sys.stderr)
    _chain()
