"""libkineto's protocol, with messages as libkineto sends them (recorded from torch 2.13)."""

from __future__ import annotations

import struct

import pytest

from rankscope.node.kineto import answer

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
