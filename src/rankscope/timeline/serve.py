"""Report and timeline on loopback, for a browser on this machine and the Perfetto UI in it.

Only two files and a page that passes one on are served, under a path that only the owner of the terminal knows. The
Perfetto UI reads the timeline in the browser, so no data leaves the machine. Its page may connect to local port 9001
only; from any other port our page posts the file to it.
"""

from __future__ import annotations

import hmac
import os
import re
import secrets
import shutil
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from rankscope.errors import ConfigError, ForeignFileError
from rankscope.rundir.foreign import open_foreign
from rankscope.timeline.output import TIMELINE
from rankscope.timeline.perfetto_page import hand_over

__all__ = ["PERFETTO", "PORT", "TIMELINE", "Server", "make_server"]

PERFETTO = "https://ui.perfetto.dev"
"""The only origin that may read the timeline from a script."""
PORT = 9001
"""The one local port that the Perfetto UI's own policy lets it connect to."""
_PAGE = "timeline.html"
_MOST_BYTES = 1 << 36
_HTML = "text/html; charset=utf-8"
_TYPES = {"report.html": _HTML, TIMELINE: "application/gzip", _PAGE: _HTML}


class Server(ThreadingHTTPServer):
    """Serves the existing files of ``folder``, under a random path."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, folder: Path, port: int, token: str | None = None) -> None:
        self.token = token or secrets.token_urlsafe(16)
        self.folder = folder
        super().__init__(("127.0.0.1", port), _Handler)

    @property
    def root(self) -> str:
        """Base address of the files, without a slash at its end."""
        return f"http://127.0.0.1:{self.server_port}/{self.token}"

    @property
    def report_url(self) -> str:
        """URL of the report."""
        return f"{self.root}/report.html"

    @property
    def timeline_url(self) -> str:
        """URL of the Perfetto UI that opens the timeline; on a port that it may not connect to, URL of our page that
        passes it on."""
        return f"{PERFETTO}/#!/?url={self.root}/{TIMELINE}" if self.server_port == PORT else f"{self.root}/{_PAGE}"


def make_server(folder: Path, port: int | None = None) -> Server:
    """Return a server that listens and does not serve yet.

    Args:
        folder: with report.html and the timeline, or one of them.
        port: None for the one that the Perfetto UI can connect to, or any free one if that is in use.

    Raises:
        ConfigError: the configured port is not available.
    """
    if port is None:
        try:
            return Server(folder, PORT)
        except OSError:
            return Server(folder, 0)
    try:
        return Server(folder, port)
    except (OSError, OverflowError) as error:
        raise ConfigError(f"--port {port} cannot be had on 127.0.0.1 ({error}); leave it out for a free one") from error


class _Handler(BaseHTTPRequestHandler):
    """GET, HEAD and the preflight of browsers; everything else is refused by the base class."""

    server: Server
    server_version = "rankscope"
    sys_version = ""

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_OPTIONS(self) -> None:
        if self._asked() != TIMELINE or self.headers.get("Origin") != PERFETTO:
            self._refuse()
            return
        self.send_response(HTTPStatus.NO_CONTENT)
        self._allow()
        self.send_header("Access-Control-Allow-Methods", "GET, HEAD")
        # Browsers ask before a public page may reach an address of this machine.
        self.send_header("Access-Control-Allow-Private-Network", "true")
        self.end_headers()

    def _answer(self, *, with_body: bool) -> None:
        name = self._asked()
        path = self.server.folder / name if name else None
        if name == _PAGE:
            page = hand_over(TIMELINE, PERFETTO).encode()
            self._begin(name, len(page))
            if with_body:
                self.wfile.write(page)
        elif name is not None and path is not None and path.is_file():
            self._send(name, path, with_body=with_body)
        else:
            self._refuse()

    def _send(self, name: str, path: Path, *, with_body: bool) -> None:
        try:
            stream = open_foreign(path, _MOST_BYTES)
        except ForeignFileError:
            self._refuse()
            return
        with stream:
            self._begin(name, os.fstat(stream.fileno()).st_size)
            if with_body:
                shutil.copyfileobj(stream, self.wfile, 1 << 20)

    def _begin(self, name: str, size: int) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", _TYPES[name])
        self.send_header("Content-Length", str(size))
        self._keep_private()
        if name == TIMELINE:
            self._allow()
        self.end_headers()

    def _asked(self) -> str | None:
        """Return the name of one of the served files, None for any other path, token or host name."""
        if self.headers.get("Host") != f"127.0.0.1:{self.server.server_port}":
            return None  # another name that points at this machine: DNS rebinding
        match = re.fullmatch(r"/([^/?#]+)/([^/?#]+)(?:\?[^#]*)?", self.path)
        if match is None or not hmac.compare_digest(match[1].encode(), self.server.token.encode()):
            return None
        return match[2] if match[2] in _TYPES else None

    def _refuse(self) -> None:
        self.send_response(HTTPStatus.NOT_FOUND)
        self.send_header("Content-Length", "0")
        self._keep_private()
        self.end_headers()

    def _allow(self) -> None:
        self.send_header("Vary", "Origin")
        if self.headers.get("Origin") == PERFETTO:
            self.send_header("Access-Control-Allow-Origin", PERFETTO)

    def _keep_private(self) -> None:
        self.send_header("Cache-Control", "no-store")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin" if self._asked() != TIMELINE else "cross-origin")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Log nothing, because the terminal belongs to the user."""
