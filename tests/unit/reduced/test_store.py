"""Objects at a URL: never read partially; interrupted uploads are repeated, complete ones are not."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import fsspec
import pytest

from rankscope import cli
from rankscope.errors import RunDirError
from rankscope.reduced.collected import load_objects
from rankscope.reduced.reduce import reduce_shares, shares_of, without_whole
from rankscope.reduced.store import place_of, places_in
from rankscope.rundir.urls import has_folders

TRACES = Path(__file__).parents[2] / "data" / "traces" / "ddp_slow_gpu"

pytestmark = pytest.mark.data


@pytest.fixture
def url() -> str:
    return f"memory://{uuid.uuid4().hex}/objects"


def test_a_store_gives_the_report_of_a_folder(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = []
    for output in (url, str(tmp_path / "folder")):
        assert cli.main(["reduce", str(TRACES), "--output", output, "--objects", "2", "--workers", "1"]) == 0
        capsys.readouterr()
        assert cli.main(["cluster-report", output, "--format", "json"]) == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1]


def test_what_is_whole_is_left_alone(url: str) -> None:
    shares = shares_of([TRACES], url, objects=2)
    assert list(reduce_shares(shares[:1])) == []
    assert without_whole(shares) == shares[1:]
    files, path = fsspec.core.url_to_fs(shares[0].target)
    files.pipe_file(path, files.cat_file(path)[:-50])  # an upload that was cut off
    assert without_whole(shares) == shares
    (bad,) = load_objects([url]).sources
    assert (bad.path, bad.status) == (shares[0].target, "unusable")
    assert cli.main(["reduce", str(TRACES), "--output", url, "--objects", "2", "--workers", "1", "--resume"]) == 0
    assert without_whole(shares) == []
    assert [trace.rank for trace in load_objects([url]).traces] == [0, 1]


def test_a_store_that_keeps_less_than_it_was_sent_is_reported(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    files, _ = fsspec.core.url_to_fs(url)

    def half(local: str, path: str, **_: Any) -> None:
        files.pipe_file(path, Path(local).read_bytes()[:1000])

    monkeypatch.setattr(type(files), "put_file", lambda self, local, path, **more: half(local, path))
    ((share, why),) = reduce_shares(shares_of([TRACES], url, objects=1))
    assert "holds 1000 bytes of the" in why
    assert not place_of(share.target).contents()


class OwnError(Exception):
    """Of a store, as those of Amazon's client: no OSError."""


def test_a_store_that_is_gone_is_reported(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shares = shares_of([TRACES], url, objects=2)
    assert list(reduce_shares(shares)) == []
    files, _ = fsspec.core.url_to_fs(url)

    def gone(*_: Any, **__: Any) -> None:
        raise OwnError("no connection")

    monkeypatch.setattr(type(files), "open", gone)
    assert without_whole(shares) == shares
    loaded = load_objects([url])
    assert [(source.status, source.reason) for source in loaded.sources] == [("unusable", "no connection")] * 2
    monkeypatch.setattr(type(files), "ls", gone)
    with pytest.raises(RunDirError, match="no connection"):
        places_in(url)


def test_an_unknown_url_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunDirError, match="cannot be used as a store"):
        place_of("nowhere://bucket/object.columns")
    with pytest.raises(RunDirError, match="cannot be read"):
        places_in(f"memory://{uuid.uuid4().hex}")
    assert places_in(str(tmp_path)) == []


def test_a_server_of_s3_that_dies_while_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real server on loopback, stopped between two objects and started again with what it had."""
    moto = pytest.importorskip("moto.server", reason="needs moto[server]", exc_type=ImportError)
    pytest.importorskip("s3fs", reason="needs s3fs", exc_type=ImportError)
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in (
        ("AWS_ACCESS_KEY_ID", "nobody"), ("AWS_SECRET_ACCESS_KEY", "nothing"), ("AWS_DEFAULT_REGION", "us-east-1"),
        ("AWS_MAX_ATTEMPTS", "1"), ("AWS_EC2_METADATA_DISABLED", "true"),
    ):  # fmt: skip
        monkeypatch.setenv(name, value)
    monkeypatch.setitem(
        fsspec.config.conf, "s3", {"endpoint_url": f"http://{host}:{port}", "skip_instance_cache": True}
    )
    url, folder = "s3://bucket/run_0001", str(tmp_path / "folder")
    fsspec.core.url_to_fs(url)[0].mkdir("bucket")
    shares = shares_of([TRACES], url, objects=2)
    try:
        assert list(reduce_shares(shares[:1])) == []
        server.stop()
        assert [share for share, _ in reduce_shares(shares[1:])] == shares[1:]
    finally:
        server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=port)
        server.start()
    try:
        assert without_whole(shares) == shares[1:]
        assert list(reduce_shares(without_whole(shares))) == []
        assert list(reduce_shares(shares_of([TRACES], folder, objects=2))) == []
        assert load_objects([url]).sources == load_objects([folder]).sources
        local = [path.read_bytes() for path in sorted(Path(folder).iterdir())]
        assert [place.open().read() for place in places_in(url)] == local
    finally:
        server.stop()


@pytest.mark.parametrize(("protocol", "expected"), [(("s3", "s3a"), False), ("gs", False), (("file", "local"), True)])
def test_no_bucket_is_made_where_folders_are(protocol: str | tuple[str, ...], expected: bool) -> None:
    assert has_folders(protocol) is expected
