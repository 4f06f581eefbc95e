"""Foreign files are opened only if they are regular files, and read only up to a limit."""

from __future__ import annotations

import gzip
import os
import socket
import threading
from pathlib import Path

import pytest

from rankscope.errors import ForeignFileError
from rankscope.rundir import foreign
from rankscope.rundir.foreign import open_foreign, read_foreign, read_foreign_gzip, shown


def lay(folder: Path, what: str) -> Path:
    path = folder / "file"
    if what == "directory":
        path.mkdir()
    elif what == "fifo":
        os.mkfifo(path)
    elif what == "socket":
        socket.socket(socket.AF_UNIX).bind(str(path))
    elif what == "loop":
        path.symlink_to(path)
    elif what == "nowhere":
        path.symlink_to(folder / "absent")
    elif what.startswith("/"):
        path.symlink_to(what)
    return path


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # the socket is left as its file
@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("directory", "a directory, not a regular file"),
        ("fifo", "a FIFO, not a regular file"),
        ("socket", "a socket, not a regular file"),
        ("/dev/zero", "a device, not a regular file"),
        ("/dev/tty", "a device, not a regular file"),
        ("loop", "cannot be read"),
        ("nowhere", "No such file"),
        ("absent", "No such file"),
    ],
)
def test_only_regular_files_are_opened(tmp_path, what, said):
    path = lay(tmp_path, what)
    for read in (open_foreign, read_foreign, read_foreign_gzip):
        with pytest.raises(ForeignFileError, match=said) as refused:
            read(path, 100)
        assert str(path) in str(refused.value)


def test_what_changes_between_the_look_and_the_opening_is_seen(tmp_path, monkeypatch):
    path, plain = lay(tmp_path, "fifo"), tmp_path / "plain"
    plain.write_bytes(b"")
    look = plain.stat()
    monkeypatch.setattr(Path, "stat", lambda _: look)
    with pytest.raises(ForeignFileError, match="a FIFO"):
        open_foreign(path, 100)


def test_a_file_is_read_up_to_its_limit_and_no_further(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_foreign(path, 5) == b"12345"
    with pytest.raises(ForeignFileError, match="5 bytes, and such a file holds at most 4"):
        read_foreign(path, 4)
    link = tmp_path / "link"
    link.symlink_to(path)
    assert read_foreign(link, 5) == b"12345"


def test_a_file_that_grows_is_read_up_to_its_limit(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(10))
    with open_foreign(path, 20) as stream:
        assert stream.read(10) == bytes(10)
        with path.open("ab") as writer:
            writer.write(bytes(11))
        with pytest.raises(ForeignFileError, match="at most 20"):
            stream.read()


def test_an_opened_file_can_be_sought_and_has_a_descriptor(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    with open_foreign(path, 10) as stream:
        stream.seek(-2, os.SEEK_END)
        assert stream.read() == b"89"
        assert os.fstat(stream.fileno()).st_size == 10


def test_no_descriptor_is_left(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(10))
    before = len(list(Path("/proc/self/fd").iterdir()))
    assert read_foreign(path, 10) == bytes(10)
    for read, limit in ((read_foreign, 9), (read_foreign_gzip, 10)):
        with pytest.raises(ForeignFileError):
            read(path, limit)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_gzip_unpacks_up_to_its_limit(tmp_path):
    path = tmp_path / "file.gz"
    path.write_bytes(gzip.compress(b"a" * 1000) + gzip.compress(b"b" * 1000))  # concatenated members are one text
    assert read_foreign_gzip(path, 2000) == b"a" * 1000 + b"b" * 1000
    with pytest.raises(ForeignFileError, match="unpacks to more than 1999 bytes"):
        read_foreign_gzip(path, 1999)


def test_gzip_of_what_does_not_shrink_is_no_longer_than_allowed(tmp_path):
    path, plain = tmp_path / "file.gz", os.urandom(1 << 20)
    path.write_bytes(gzip.compress(plain))
    assert path.stat().st_size > len(plain)
    assert read_foreign_gzip(path, 1 << 20) == plain


@pytest.mark.parametrize("damage", ["cut", "flipped", "no gzip"])
def test_damaged_gzip_is_one_error(tmp_path, damage):
    path, packed = tmp_path / "file.gz", bytearray(gzip.compress(os.urandom(1000)))
    if damage == "cut":
        packed = packed[:-100]
    elif damage == "flipped":
        packed[500] ^= 255
    else:
        packed = bytearray(b"no gzip")
    path.write_bytes(packed)
    with pytest.raises(ForeignFileError, match="damaged gzip"):
        read_foreign_gzip(path, 10_000)


def test_a_store_that_hangs_is_given_up(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(b"1")
    assert read_foreign(path, 1, within_s=60) == b"1"
    with pytest.raises(ForeignFileError, match="No such file"):
        read_foreign(tmp_path / "absent", 1, within_s=60)
    answer = threading.Event()
    monkeypatch.setattr(foreign, "open_foreign", lambda *_: answer.wait())
    with pytest.raises(ForeignFileError, match=r"not read within 0\.01 s"):
        read_foreign(path, 1, within_s=0.01)
    answer.set()  # the thread was left waiting for it


def test_names_are_shown_without_harm(tmp_path):
    assert shown("/a/b c-ü.json") == "/a/b c-ü.json"
    assert shown(os.fsdecode(b"/a/\xff\x1b[2J\n")) == "/a/\\xff\\x1b[2J\\n"
    with pytest.raises(ForeignFileError, match="null"):
        read_foreign(Path("a\0b"), 1)
