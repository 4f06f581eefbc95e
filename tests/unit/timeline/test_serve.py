"""The loopback server: two files for the owner of the address, and none for others."""

from __future__ import annotations

import base64
import hashlib
import http.client
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rankscope.errors import ConfigError
from rankscope.timeline.serve import PERFETTO, PORT, Server, make_server

TRACE = "cluster.trace.json.gz"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    folder = tmp_path / "report"
    folder.mkdir()
    (folder / "report.html").write_bytes(b"<!doctype html>page")
    (folder / TRACE).write_bytes(b"\x1f\x8bpacked")
    (folder / "report.json").write_text("{}")
    (tmp_path / "secret.txt").write_text("secret")
    with make_server(folder, 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def ask(
    server: Server, path: str, method: str = "GET", host: str | None = None, **headers: str
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=120)
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    connection.putheader("Host", host or f"127.0.0.1:{server.server_port}")
    for name, value in headers.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    answer = connection.getresponse()
    found = answer.status, dict(answer.getheaders()), answer.read()
    connection.close()
    return found


def test_report_and_timeline_are_served(server: Server) -> None:
    status, headers, body = ask(server, f"/{server.token}/report.html")
    assert (status, body) == (200, b"<!doctype html>page")
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert headers["Referrer-Policy"] == "no-referrer"  # the address is the key
    assert headers["Cache-Control"] == "no-store"
    status, headers, body = ask(server, f"/{server.token}/{TRACE}?x=1")
    assert (status, body) == (200, b"\x1f\x8bpacked")
    assert "Content-Encoding" not in headers
    status, headers, body = ask(server, f"/{server.token}/{TRACE}", "HEAD")
    assert (status, headers["Content-Length"], body) == (200, "8", b"")


def test_it_listens_on_loopback_only(server: Server) -> None:
    assert server.server_address[0] == "127.0.0.1"
    assert server.report_url == f"http://127.0.0.1:{server.server_port}/{server.token}/report.html"
    assert server.timeline_url == f"{server.root}/timeline.html"  # the Perfetto UI may not connect to this port
    server.server_port = PORT
    assert server.timeline_url == f"https://ui.perfetto.dev/#!/?url=http://127.0.0.1:9001/{server.token}/{TRACE}"


def test_tokens_are_long_and_differ(tmp_path: Path) -> None:
    with make_server(tmp_path, 0) as first, make_server(tmp_path, 0) as second:
        assert first.token != second.token
        assert len(first.token) >= 20


PATHS = [
    *("/", "/report.html", "/wrong/report.html", "/%C3%A9/report.html", "/../{token}/report.html"),
    *("/{token}", "/{token}/", "/{token}/report.json", "/{token}/REPORT.HTML", "/{token}x/report.html"),
    *("/{token}/../secret.txt", "/{token}/%2e%2e/secret.txt", "/{token}/..%2fsecret.txt", "/{token}/report.html/.."),
    *("/{token}/./report.html", "/{token}/report.html%00"),
    "http://127.0.0.1/{token}/report.html",
]


@pytest.mark.parametrize("path", PATHS)
def test_every_other_path_is_refused(path: str, server: Server) -> None:
    status, headers, body = ask(server, path.format(token=server.token))
    assert (status, body) == (404, b"")
    assert "Access-Control-Allow-Origin" not in headers


def test_a_link_in_the_folder_is_followed_only_under_our_names(server: Server) -> None:
    (server.folder / "other.html").symlink_to(server.folder.parent / "secret.txt")
    assert ask(server, f"/{server.token}/other.html")[0] == 404


def test_only_the_perfetto_ui_may_read_the_timeline_from_a_script(server: Server) -> None:
    path = f"/{server.token}/{TRACE}"
    assert ask(server, path, Origin=PERFETTO)[1]["Access-Control-Allow-Origin"] == PERFETTO
    for origin in ("https://evil.example", "null", "https://ui.perfetto.dev.evil.example", "http://ui.perfetto.dev"):
        assert "Access-Control-Allow-Origin" not in ask(server, path, Origin=origin)[1]
    assert "Access-Control-Allow-Origin" not in ask(server, f"/{server.token}/report.html", Origin=PERFETTO)[1]


def test_the_browsers_question_before_it_reaches_this_machine(server: Server) -> None:
    path = f"/{server.token}/{TRACE}"
    status, headers, _ = ask(server, path, "OPTIONS", Origin=PERFETTO, Access_Control_Request_Private_Network="true")
    assert (status, headers["Access-Control-Allow-Private-Network"]) == (204, "true")
    assert ask(server, path, "OPTIONS", Origin="https://evil.example")[0] == 404
    assert ask(server, f"/wrong/{TRACE}", "OPTIONS", Origin=PERFETTO)[0] == 404


def test_another_name_for_this_machine_is_refused(server: Server) -> None:
    for host in ("evil.example", f"localhost:{server.server_port}", "127.0.0.1"):
        assert ask(server, f"/{server.token}/report.html", host=host)[0] == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_nothing_can_be_changed(method: str, server: Server) -> None:
    assert ask(server, f"/{server.token}/report.html", method)[0] == 501


def test_a_file_that_is_not_there(server: Server) -> None:
    (server.folder / TRACE).unlink()
    assert ask(server, f"/{server.token}/{TRACE}")[0] == 404


def test_the_page_that_hands_the_timeline_over(server: Server) -> None:
    status, headers, body = ask(server, f"/{server.token}/timeline.html")
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert int(headers["Content-Length"]) == len(body)
    page = body.decode()
    script = page.partition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page
    assert f'value="{PERFETTO}"' in page
    assert f'name="{TRACE}"' in page


@pytest.mark.parametrize("port", [None, 99_999])
def test_a_taken_port_is_reported(port: int | None, server: Server) -> None:
    port = port or server.server_port
    with pytest.raises(ConfigError, match=f"--port {port}"):
        make_server(server.folder, port)


def test_where_the_best_port_is_taken_any_other_will_do(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankscope.timeline.serve.PORT", server.server_port)
    with make_server(server.folder) as other:
        assert other.server_port != server.server_port
