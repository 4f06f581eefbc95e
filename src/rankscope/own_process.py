"""Start Python processes of rankscope so that they never import modules from the current folder.

``python -m`` and ``python -c`` put the current folder first on ``sys.path``, and PYTHONPATH comes before the standard
library: a file called ``gzip.py`` in the folder from which a job is launched would be imported instead of the standard
library's. So every process is started by file, in Python's isolated mode (``-I``, since ``-P`` needs 3.11), and gets
the path of the package as an argument.

This file is both the module that makes the command and the script that the command runs.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType

__all__ = ["command", "environment", "give_way", "safe_spawn"]

_PYTHONHOME = "PYTHONHOME"
_SAFE_PATH = "PYTHONSAFEPATH"


def command(module: str, *arguments: str) -> list[str]:
    """Build the command line that runs ``module`` as ``python -m`` would, without the current folder and PYTHONPATH."""
    return [sys.executable, *_flags(), str(Path(__file__).absolute()), os.pathsep.join(_roots()), module, *arguments]


def environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Build the environment of such a process, without PYTHONPATH and the variables for ranks."""
    return {k: v for k, v in environ.items() if k != "PYTHONPATH" and not k.startswith("RANKSCOPE_")}


def give_way() -> None:
    """Take the lowest priority, so that training comes first: this thread, on Linux, and those that it starts later."""
    with contextlib.suppress(OSError):
        os.nice(19)


@contextlib.contextmanager
def safe_spawn() -> Iterator[None]:
    """Make :mod:`multiprocessing` start worker processes, within the context, without the current folder on their path,
    and without running the caller's script again, which may have no main guard, or come from a pipe.

    Workers are started with ``python -c``. Python 3.11 and later read PYTHONSAFEPATH; Python 3.10 needs flags.
    """
    with _without_main(), _without_current_folder():
        yield


_starting: list[int] = []
"""Threads that are within the context, as often as they are."""
_replaced: list[Callable[[str], dict[str, object]]] = []
"""What to put back when the last of them leaves."""
_lock = threading.Lock()


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
    from multiprocessing import spawn  # here, because ranks import this module and start no workers

    with _lock:
        if not _starting:
            _replaced.append(spawn.get_preparation_data)
            _replace(spawn, functools.partial(_prepared_without_main, spawn.get_preparation_data))
        _starting.append(threading.get_ident())
    try:
        yield
    finally:
        with _lock:
            _starting.remove(threading.get_ident())
            if not _starting:
                _replace(spawn, _replaced.pop())


def _replace(spawn: ModuleType, prepare: Callable[[str], dict[str, object]]) -> None:
    spawn.get_preparation_data = prepare  # type: ignore[attr-defined]


def _prepared_without_main(prepare: Callable[[str], dict[str, object]], name: str) -> dict[str, object]:
    found = prepare(name)
    if threading.get_ident() in _starting:  # other threads may start processes of the caller's at this moment
        found.pop("init_main_from_path", None)
        found.pop("init_main_from_name", None)
    return found


@contextlib.contextmanager
def _without_current_folder() -> Iterator[None]:
    if sys.version_info >= (3, 11):
        before = os.environ.get(_SAFE_PATH)
        os.environ[_SAFE_PATH] = "1"
        try:
            yield
        finally:
            if before is None:
                os.environ.pop(_SAFE_PATH, None)
            else:
                os.environ[_SAFE_PATH] = before
        return
    from multiprocessing import util  # pragma: no cover - only on Python 3.10

    name = "_args_from_interpreter_flags"
    flags = getattr(util, name)
    setattr(util, name, lambda: [*dict.fromkeys([*flags(), "-I"])])
    try:
        yield
    finally:
        setattr(util, name, flags)


def _flags() -> list[str]:
    # Isolated mode ignores PYTHONHOME. A Python that needs it would not find its standard library.
    flags = ["-s"] if _PYTHONHOME in os.environ else ["-I"]
    if sys.dont_write_bytecode:
        flags.append("-B")
    return flags


def _roots() -> list[str]:
    """Return the folders of rankscope and its dependencies, absolute, to append to the path of a process.

    A folder of PYTHONPATH is included only if rankscope was loaded from it, as with ``pip install --target``.
    """
    own = Path(__file__).absolute().parent.parent
    theirs = {Path(entry) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep)} | _current_folder()
    kept = [p for entry in sys.path if (p := Path(entry)).is_absolute() and p not in theirs and p.exists()]
    return [str(path) for path in dict.fromkeys([*kept, own])]


def _current_folder() -> set[Path]:
    try:
        return {Path.cwd()}
    except OSError:  # the folder was removed
        return set()


def _become(roots: str, module: str, arguments: list[str]) -> None:
    import runpy

    here = Path(__file__).absolute().parent
    sys.path[:] = [p for p in sys.path if p and Path(p).absolute() != here]  # without -I: "", this folder
    sys.path += [p for p in roots.split(os.pathsep) if p not in sys.path]
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _become(sys.argv[1], sys.argv[2], sys.argv[3:])
