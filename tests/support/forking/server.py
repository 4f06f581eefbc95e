"""Server that has loaded torch and forks the requested processes: ``python -m support.forking.server SOCKET``.

It ends with its standard input. It may start no thread, since a forked process has none of them.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import importlib.abc
import importlib.machinery
import inspect
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

__all__ = ["serve"]

LAUNCHERS = ("rankscope", "torch.distributed.run")
NEEDED = (
    "torch", "torch._inductor.config", "torch.distributed.run", "torch.distributed.fsdp", "torch.nn.parallel",
    "torch.utils.data", "rankscope.compose", "rankscope.cli", "rankscope.launcher.run.launch",
)  # fmt: skip

LIMIT_S = 30.0
"""Time limit for a client to send its request, seconds. An interrupted client would block others."""


def serve(address: str) -> Callable[[], None]:
    """Fork until standard input ends. Returns in each forked process, with the function that it must run."""
    for name in NEEDED:
        importlib.import_module(name)
    _what_all_launchers_do()
    threads = len(list(Path("/proc/self/task").iterdir()))
    assert threads == 1, f"{threads} threads in a process that is to be forked"
    listening, selector = socket.socket(socket.AF_UNIX), selectors.DefaultSelector()
    listening.bind(address)
    listening.listen(64)
    selector.register(sys.stdin, selectors.EVENT_READ)
    selector.register(listening, selectors.EVENT_READ)
    gc.collect()
    gc.freeze()  # otherwise the first collection of a forked process copies the memory that it visits
    print("ready", flush=True)
    while True:
        for key, _ in selector.select():
            if key.fileobj is sys.stdin:
                raise SystemExit(0)
            if key.fileobj is not listening:
                pid, client = key.data
                selector.unregister(key.fd)
                os.close(key.fd)
                _tell(client, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
                client.close()
                continue
            client, _ = listening.accept()
            try:
                asked, descriptors = _request(client)
            except (OSError, ValueError):  # the client ended, or was interrupted, before it sent the whole request
                client.close()
                continue
            pid = os.fork()
            if pid == 0:
                for number, descriptor in enumerate(descriptors):
                    os.dup2(descriptor, number)
                selector.close()
                for ours in (client, listening):
                    ours.close()
                os.closerange(3, 1024)
                return _become(asked, address)
            for descriptor in descriptors:
                os.close(descriptor)
            _tell(client, pid)
            selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, client))


def _what_all_launchers_do() -> None:
    """Compose a configuration and look at a stack once: Hydra's parser and ``inspect`` keep what they have learnt."""
    from rankscope.compose import compose

    compose(["run.dir=RUN", "schedule=short", "analysis.enabled=false"])
    inspect.stack()


def _request(client: socket.socket) -> tuple[dict[str, Any], list[int]]:
    client.settimeout(LIMIT_S)
    head, descriptors, _, _ = socket.recv_fds(client, 8, 3)
    size, data = int.from_bytes(head, "big"), b""
    while len(data) < size and (more := client.recv(size - len(data))):
        data += more
    client.settimeout(None)
    if len(data) < size or len(descriptors) < 3:
        for descriptor in descriptors:
            os.close(descriptor)
        raise ValueError("half a request")
    return json.loads(data), descriptors


def _tell(client: socket.socket, number: int) -> None:
    with contextlib.suppress(OSError):  # the client has ended
        client.sendall(b"%d\n" % number)


def _become(asked: dict[str, Any], address: str) -> Callable[[], None]:
    """Set environment, folder and path as at the start of Python; return the function that runs the command."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if asked["session"]:
        os.setsid()
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["env"])
    words = [word for word in asked["words"] if word != "-u"] if asked["words"][:1] == ["-u"] else asked["words"]
    module = words[1] if words[0] == "-m" else None
    sys.argv = words[1:] if module else words
    sys.path[0] = str(Path.cwd() if module else Path(words[0]).absolute().parent)
    path = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    sys.path[1:1] = path
    sys.excepthook = _without_our_frames
    if module in LAUNCHERS:
        if asked["ranks"]:
            _ranks_are_forked(address)
    else:
        _hide("torch")
    sys.modules.pop("sitecustomize", None)
    if path:  # as at the start of Python: before the script, and only if there is one
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module("sitecustomize")
    return lambda: _run_module(module) if module else _run_script(words[0])


def _run_module(name: str) -> None:
    sys.modules.pop(f"{name}.__main__", None)
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def _run_script(path: str) -> None:
    main = ModuleType("__main__")
    main.__file__ = path
    main.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = main
    exec(compile(Path(path).read_bytes(), path, "exec"), main.__dict__)


def _without_our_frames(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    sys.__excepthook__(kind, error.with_traceback(trace), trace)


class _Made(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds a module that is already loaded."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module
        self.spec = module.__spec__

    def find_spec(self, name: str, *_: object) -> importlib.machinery.ModuleSpec | None:
        if name != self.module.__name__:
            return None
        sys.meta_path.remove(self)
        return importlib.machinery.ModuleSpec(name, self, origin=self.module.__file__, is_package=True)

    def create_module(self, _spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return self.module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.spec


def _hide(name: str) -> None:
    """Make the next import of a module run the import system, and find the loaded module."""
    sys.meta_path.insert(0, _Made(sys.modules.pop(name)))


def _ranks_are_forked(address: str) -> None:
    """Make torchrun start scripts by forking, and all other commands as usual."""
    from torch.distributed.elastic.multiprocessing.subprocess_handler import subprocess_handler

    from support.forking.client import Forked

    start = subprocess_handler.Popen

    def popen(args: Sequence[str], **more: Any) -> Any:
        if args[0] != sys.executable or args[1] != "-u":
            return start(args=args, **more)
        return Forked(args, server=address, **more)

    subprocess_handler.Popen = popen


def _ends_as_python(run: Callable[[], None]) -> None:
    """Run, and exit with the code and error output of a Python process, without destroying torch's modules."""
    code: Any = 0
    try:
        run()
    except SystemExit as ended:
        code = ended.code or 0
        if not isinstance(code, int):
            print(code, file=sys.stderr)
            code = 1
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(code & 0xFF)


if __name__ == "__main__":
    _ends_as_python(serve(sys.argv[1]))
