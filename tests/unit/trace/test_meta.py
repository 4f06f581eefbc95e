"""Metadata of a trace is used if it is possible."""

from __future__ import annotations

from typing import Any

import pytest

from rankscope.trace.kineto.meta import parse_head, typed


@pytest.mark.parametrize(
    ("said", "rank", "world", "notes"),
    [
        ({"rank": 3, "world_size": 1 << 20}, 3, 1 << 20, []),
        ({"rank": 3, "world_size": 99_999_999}, 3, None, ["world_size 99999999, which is not believed"]),
        ({"rank": 99_999_999, "world_size": 4}, None, 4, ["rank 99999999, which is not believed"]),
        ({"rank": "3", "world_size": "4"}, 3, 4, []),
        ({"rank": -1, "world_size": [4]}, None, None, []),
        ({"rank": 3.0, "world_size": True}, None, None, []),
    ],
)
def test_rank_and_world_size(said: dict[str, Any], rank: int | None, world: int | None, notes: list[str]) -> None:
    meta, told = typed({"distributedInfo": said})
    assert (meta.rank, meta.world_size) == (rank, world)
    assert len(told) == len(notes)
    assert all(part in whole for part, whole in zip(notes, told, strict=True))


def test_metadata_that_would_fill_the_memory_is_not_decoded() -> None:
    raw, kinds = parse_head(b'{"a": [' + b"[]," * 2_000_000 + b"[]],", b"}")
    assert (raw, kinds) == ({}, ["metadata of more lists and objects than any trace has"])
