"""libkineto's protocol, with messages as libkineto sends them (recorded from torch 2.13)."""

from __future__ import annotations

import os
import socket
import struct
import threading
import time

import pytest

from rankscope.node.kineto_server import answer, answering, listen, serve

HEADER = struct.Struct("=Q32s")


def poll(kind: int, *pids: int) -> bytes:
    body = struct.pack("=iiq", kind, len(pids), 0) + struct.pack(f"={len(pids)}i", *pids)
    return HEADER.pack(len(body), b"req\0not initialised") + body


def test_a_request_is_handed_to_the_process_that_asks(tmp_path):
    asked = tmp_path / "ask_4711"
    asked.write_text("ACTIVITIES_ITERATIONS=1\n")
    reply, handed = answer(poll(3, 4711, 1), tmp_path)
    assert reply == HEADER.pack(24, b"req") + b"ACTIVITIES_ITERATIONS=1\n"
    assert handed == asked


@pytest.mark.parametrize(("kind", "pid"), [(3, 4712), (1, 4711)], ids=["another process", "busy"])
def test_nobody_else_gets_it(tmp_path, kind, pid):
    (tmp_path / "ask_4711").write_text("x=1\n")
    assert answer(poll(kind, pid, 4711), tmp_path) == (HEADER.pack(0, b"req"), None)


def test_registering_is_acknowledged(tmp_path):
    message = HEADER.pack(16, b"ctxt") + struct.pack("=iiq", 0, 4711, 0)
    assert answer(message, tmp_path) == (HEADER.pack(4, b"ctxt") + struct.pack("=i", 1), None)


def test_what_is_no_message_is_an_error(tmp_path):
    with pytest.raises(struct.error):
        answer(b"hello", tmp_path)


@pytest.fixture
def libkineto(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ours:
        ours.bind(str(tmp_path / "libkineto"))
        ours.settimeout(30)
        yield ours


def test_what_was_asked_too_long_ago_is_not_answered(tmp_path, libkineto):
    # GIVEN a question from before libkineto stopped listening, and a fresh one
    (tmp_path / "ask_1").write_text("a=1\n")
    (tmp_path / "ask_2").write_text("b=2\n")
    with listen(tmp_path / "dynolog") as ours:
        libkineto.sendto(poll(3, 1), str(tmp_path / "dynolog"))
        time.sleep(0.05)
        reader, writer = os.pipe()
        with os.fdopen(reader) as until:
            server = threading.Thread(target=serve, args=(ours, tmp_path, until))
            server.start()
            while (tmp_path / "ask_2").exists():  # on a busy machine a fresh one gets old too, and is asked again
                libkineto.sendto(poll(3, 2), str(tmp_path / "dynolog"))
                time.sleep(0.01)
            os.close(writer)
            server.join()
    assert libkineto.recv(4096) == HEADER.pack(4, b"req") + b"b=2\n"
    assert (tmp_path / "ask_1").exists()


def test_a_process_answers_while_the_context_lasts(tmp_path, libkineto):
    (tmp_path / "ask_7").write_text("c=3\n")
    with answering(tmp_path, tmp_path / "dynolog"):
        while (tmp_path / "ask_7").exists():
            libkineto.sendto(poll(3, 7), str(tmp_path / "dynolog"))
            time.sleep(0.01)
        assert libkineto.recv(4096) == HEADER.pack(4, b"req") + b"c=3\n"
    libkineto.setblocking(False)
    with pytest.raises(ConnectionRefusedError):
        libkineto.sendto(poll(3, 7), str(tmp_path / "dynolog"))


def test_a_taken_address_is_an_error(tmp_path):
    (tmp_path / "dynolog").touch()
    with pytest.raises(OSError, match="in use"), answering(tmp_path, tmp_path / "dynolog"):
        pass
