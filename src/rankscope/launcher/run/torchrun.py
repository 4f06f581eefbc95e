"""Run torchrun's own ``run`` and report how it ended, exactly as ``torchrun`` itself would have shown it."""

from __future__ import annotations

import signal
import sys
from argparse import Namespace
from pathlib import Path
from types import TracebackType

import torch
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.run import run

from rankscope.launcher.ending import Ending

__all__ = ["run_torchrun"]

_TORCH = Path(torch.__file__).parent


def run_torchrun(arguments: Namespace) -> Ending:
    """Launch, wait, and print what Python would print for an uncaught exception, at the same time as torchrun would."""
    try:
        # `record` is the wrapper of torchrun's main: it passes on error files of workers.
        record(run)(arguments)
    except KeyboardInterrupt as error:
        _show(error)
        return Ending(exit_code=128 + signal.SIGINT, signal=signal.SIGINT, by_signal=True)
    except SignalException as error:
        _show(error)
        return Ending(exit_code=1, signal=int(error.sigval))
    except SystemExit as error:
        if error.code is not None and not isinstance(error.code, int):
            sys.stderr.write(f"{error.code}\n")
        return Ending(exit_code=error.code if isinstance(error.code, int) else int(error.code is not None))
    except Exception as error:
        _show(error)
        return Ending(exit_code=1)
    return Ending(exit_code=0)


def _show(error: BaseException) -> None:
    sys.stdout.flush()
    error.__traceback__ = _from_torch(error.__traceback__)  # excepthook prints this, whatever it is passed
    sys.excepthook(type(error), error, error.__traceback__)


def _from_torch(frames: TracebackType | None) -> TracebackType | None:
    """Remove our own frames: the user should see torchrun's traceback."""
    first = frames
    while first is not None and not Path(first.tb_frame.f_code.co_filename).is_relative_to(_TORCH):
        first = first.tb_next
    return first or frames
