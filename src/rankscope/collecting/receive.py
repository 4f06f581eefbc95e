"""Receive parts from the nodes of a job over the network."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import re
import shutil
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rankscope.collecting.collect import Collecting
from rankscope.collecting.parts import Part, is_part_file, launch_of
from rankscope.collecting.wire import VERSION, nonce, proof, proves, receive, send
from rankscope.errors import ConfigError, RankscopeError, RunDirError
from rankscope.limits import MAX_NODES
from rankscope.records.manifest import FileSum
from rankscope.rundir.files import sha256_of
from rankscope.rundir.layout import RunDir

__all__ = ["Receiver"]

_AT_ONCE = 8
"""Number of parts that are received at the same time. Further ones wait, because one disk and network serve all."""
_SILENT_S = 120.0
_LEAVE_FREE = 1 << 30
_BLOCK = 1 << 20
_SHA = re.compile(r"[0-9a-f]{64}")


class Receiver:
    """Listens for parts, and adds each to a run directory.

    Args:
        collecting: the run directory to which parts are added.
        at: host (empty: all addresses of this machine) and port (0: any).
        key: the shared key of sender and receiver.
        nodes: number of nodes of the job.
        tell: called with a message for each received and each refused part.

    Raises:
        ConfigError: the port cannot be used.
    """

    def __init__(
        self, collecting: Collecting, at: tuple[str, int], key: bytes, nodes: int, tell: Callable[[str], None]
    ) -> None:
        self._collecting, self._key, self._nodes, self._tell = collecting, key, nodes, tell
        self._adds, self._turns = threading.Lock(), threading.BoundedSemaphore(_AT_ONCE)
        self._busy: dict[str, threading.Lock] = {}
        self._coming: dict[str, int] = {}
        """Part that is being received -> bytes that are still to come."""
        self._whole = threading.Event()
        if len(collecting.nodes) >= nodes:
            self._whole.set()
        receiver = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                receiver._serve(self.request)

        try:
            self._server = _Server(at, Handler)
        except OSError as error:
            raise ConfigError(
                f"--listen: {at[0] or '*'}:{at[1]} cannot be used ({error}); name another port"
            ) from error

    @property
    def port(self) -> int:
        """Port on which it listens."""
        return int(self._server.server_address[1])

    def run(self, wait_s: float) -> bool:
        """Receive parts until those of all nodes have arrived, or the time limit is reached.

        Args:
            wait_s: time limit in seconds.

        Returns:
            Whether all have arrived.
        """
        thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            return self._whole.wait(wait_s)
        finally:
            self._server.shutdown()
            self._server.server_close()

    def _serve(self, connection: socket.socket) -> None:
        connection.settimeout(_SILENT_S)
        who = "a part"
        try:
            own_nonce = nonce()
            send(connection, rankscope=VERSION, nonce=own_nonce)
            message = receive(connection)
            nodes, files = message.get("nodes"), message.get("files")
            proven = [own_nonce, message.get("nonce"), nodes, files]
            if not proves(message.get("proof"), self._key, "sender", *proven):
                raise RunDirError("the keys differ: give all nodes the one that the collecting machine has")
            part = _part_in(nodes, files)
            who = f"the part of {', '.join(part.nodes)}"
            with self._turns, self._folder(part) as folder:
                lacks = self._lacks(part, folder)
                send(connection, lacks=lacks, proof=proof(self._key, "receiver", *proven, lacks))
                for name in lacks:
                    _take(connection, folder / name, part.files[name])
                    self._coming[part.nodes[0]] -= part.files[name].bytes
                self._add(folder, part)
            size = sum(part.files[name].bytes for name in lacks)
            self._tell(f"{who}: {len(lacks)} of {len(part.files)} files came, {size / 1e6:,.1f} MB")
            send(connection, done=len(lacks), proof=proof(self._key, "done", *proven, len(lacks)))
        except (ConnectionError, TimeoutError) as error:  # the sender tries again
            self._tell(f"{who} did not come whole: {error}")
        except (RankscopeError, OSError) as error:
            self._tell(f"{who} was not taken: {error}")
            with contextlib.suppress(OSError):
                send(connection, error=str(error))
        if len(self._collecting.nodes) >= self._nodes:
            self._whole.set()

    @contextlib.contextmanager
    def _folder(self, part: Part) -> Iterator[Path]:
        """Yield a folder for received files, on the disk of the run directory. It is kept if the connection breaks, so
        that the next one continues there."""
        folder = self._collecting.run_dir.arriving(part.nodes[0])
        with self._adds:
            busy = self._busy.setdefault(part.nodes[0], threading.Lock())
        if not busy.acquire(timeout=2 * _SILENT_S):
            raise RunDirError(f"{part.nodes[0]} sends its part twice at once")
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            yield folder
            shutil.rmtree(folder, ignore_errors=True)
        except RankscopeError:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):  # what came would keep the disk full
                shutil.rmtree(folder, ignore_errors=True)
            raise
        finally:
            self._coming.pop(part.nodes[0], None)
            busy.release()

    def _lacks(self, part: Part, folder: Path) -> list[str]:
        into = self._collecting.run_dir.path
        here = {name: known for name, known in part.files.items() if not _holds(into / name, known)}
        lacks = [name for name, known in here.items() if not _holds(folder / name, known)]
        size = sum(part.files[name].bytes for name in lacks)
        with self._adds:
            free, others = shutil.disk_usage(into).free, sum(self._coming.values())
            if size and size > free - others - _LEAVE_FREE:
                raise RunDirError(
                    f"{into} has {free / 1e9:.1f} GB free, of which 1 stays free and {others / 1e9:.1f} are for parts "
                    f"that are on their way, and this part has {size / 1e9:.1f} GB; make room, or collect elsewhere"
                )
            self._coming[part.nodes[0]] = size
        return lacks

    def _add(self, folder: Path, part: Part) -> None:
        with self._adds:
            here = RunDir(folder) if RunDir(folder).launch.exists() else self._collecting.run_dir
            came = {name: known for name, known in part.files.items() if (folder / name).exists()}
            self._collecting.add(folder, Part(part.nodes, launch_of(here), came), move=True)


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = 1024

    def __init__(self, at: tuple[str, int], handler: type[socketserver.BaseRequestHandler]) -> None:
        if ":" in at[0]:
            self.address_family = socket.AF_INET6
        super().__init__(at, handler)


def _part_in(nodes: Any, files: Any) -> Part:
    """Check the file list of a sender. The identity of the launch is in one of the files.

    Raises:
        RunDirError: it is not such a list, or contains a path that no run directory has.
    """
    try:
        names = [str(node) for node in nodes]
        sums = {str(name): FileSum(bytes=int(size), sha256=str(sha)) for name, (size, sha) in files.items()}
    except (TypeError, ValueError, AttributeError, OverflowError):
        raise RunDirError("what should be a list of files is none") from None
    wrong = [name for name, known in sums.items() if not is_part_file(name) or known.bytes < 0]
    wrong += [name for name, known in sums.items() if not _SHA.fullmatch(known.sha256)]
    wrong += [node for node in names if f"nodes/{node}.claim.json" not in sums]
    if wrong or not 0 < len(names) <= MAX_NODES:
        raise RunDirError(f"no run directory has this: {wrong[:1] or names}")
    return Part(nodes=names, launch="", files=sums)


def _holds(path: Path, known: FileSum) -> bool:
    try:
        return path.is_file() and path.stat().st_size == known.bytes and sha256_of(path) == known.sha256
    except OSError:
        return False


def _take(connection: socket.socket, target: Path, known: FileSum) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    digest, left = hashlib.sha256(), known.bytes
    with target.open("wb") as stream:
        while left:
            block = connection.recv(min(left, _BLOCK))
            if not block:
                raise ConnectionError("the connection was closed in the middle of a file")
            digest.update(block)
            stream.write(block)
            left -= len(block)
    if digest.hexdigest() != known.sha256:
        raise RunDirError(f"{target.name} is not what its sender said; it changed on the way, or while it was sent")
