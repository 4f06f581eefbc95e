"""Mutations of a file: of its bytes, values, size or type. Reproducible by seed."""

from __future__ import annotations

import copy
import gzip
import json
import os
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["mutate"]

HOSTILE: tuple[Any, ...] = (
    *(None, True, [], {}, "", "0", 0, -1, 0.5, 99_999_999, 1 << 31, (1 << 63) - 1, 1 << 64, -(1 << 63), 10**400),
    *(1e308, -1e308, float("nan"), float("inf"), "\ud800", "\0\x1b[2J\n", "x" * 100_000, "\U0001f600" * 1000),
    *("../../../../etc/passwd", "rank_7", [[]], {"": {"": []}}, "NaN", [1, "a", None], "[0, 1, 2, 99999999]"),
)


def mutate(rng: random.Random, path: Path) -> str:
    """Put something wrong in the place of a good file; returns what, in words."""
    kinds = [in_place] * 2 + [bytes_changed] * 5 + [values_changed] * 7 + [sizes_changed] * 2
    return rng.choice(kinds)(rng, path)


# ------------------------------------------------------------ no file, or none that can be read


def in_place(rng: random.Random, path: Path) -> str:
    how = rng.choice(
        ("fifo", "zero", "folder", "loop", "nowhere", "empty", "gone", "sparse", "rights", "socket", "named")
    )
    if how == "sparse":
        with path.open("r+b") as stream:
            stream.truncate(1 << 40)
        return how
    if how == "rights":
        path.chmod(0)  # means nothing to root
        return how
    if how == "named":
        odd = rng.choice((b"\xff\xfe", b"\x1b[31m", b" \n ", b"-", b"%s{}", b"a" * 150))
        path.rename(path.with_name(os.fsdecode(odd) + path.name))
        return f"{how} {odd!r}"
    path.unlink()
    if how == "fifo":
        os.mkfifo(path)
    elif how == "zero":
        path.symlink_to("/dev/zero")
    elif how == "folder":
        path.mkdir()
    elif how == "loop":
        path.symlink_to(path.name)
    elif how == "nowhere":
        path.symlink_to("absent")
    elif how == "socket":
        path.symlink_to("/dev/tty")
    elif how == "empty":
        path.write_bytes(b"")
    return how


# ------------------------------------------------------------ bytes


def bytes_changed(rng: random.Random, path: Path) -> str:
    raw = path.read_bytes()
    packed = raw.startswith(b"\x1f\x8b")
    inside = packed and rng.random() < 0.7
    data = bytearray(gzip.decompress(raw) if inside else raw)
    said = []
    for _ in range(rng.choice((1, 1, 2, 5, 30))):
        name, change = rng.choice(BYTES)
        change(rng, data)
        said.append(name)
    path.write_bytes(gzip.compress(bytes(data), 1) if inside else bytes(data))
    return f"{'text' if inside or not packed else 'packed'} {'+'.join(sorted(set(said)))}"


def _span(rng: random.Random, data: bytearray) -> tuple[int, int]:
    first = rng.randrange(len(data) + 1)
    return first, min(len(data), first + rng.choice((1, 2, 8, 100, 5000)))


def _flip(rng: random.Random, data: bytearray) -> None:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _cut(rng: random.Random, data: bytearray) -> None:
    del data[rng.randrange(len(data) + 1) :]


def _drop(rng: random.Random, data: bytearray) -> None:
    first, end = _span(rng, data)
    del data[first:end]


def _again(rng: random.Random, data: bytearray) -> None:
    first, end = _span(rng, data)
    data[end:end] = data[first:end] * rng.choice((1, 3, 100))


def _swap(rng: random.Random, data: bytearray) -> None:
    first, end = _span(rng, data)
    other = rng.randrange(len(data) + 1)
    data[other:other] = data[first:end]


def _zeros(rng: random.Random, data: bytearray) -> None:
    first, end = _span(rng, data)
    data[first:end] = bytes(end - first)


INSERTED = (
    *(b"\xff\xfe", b"\xed\xa0\x80", b'"', b"\\", b"]", b"}", b"{", b"[", b",", b"\0", b"\n", b"\\ud800"),
    *(b"NaN", b"-Infinity", b"1e999", b"[" * 2000, b'{"a":' * 3000, b'{"name":"' * 20_000),
)


def _insert(rng: random.Random, data: bytearray) -> None:
    place = rng.randrange(len(data) + 1)
    data[place:place] = rng.choice((*INSERTED, rng.randbytes(16)))


BYTES: tuple[tuple[str, Callable[[random.Random, bytearray], None]], ...] = (
    ("flip", _flip), ("cut", _cut), ("drop", _drop), ("again", _again), ("swap", _swap), ("zeros", _zeros),
    ("insert", _insert),
)  # fmt: skip


# ------------------------------------------------------------ values


def values_changed(rng: random.Random, path: Path) -> str:
    raw = path.read_bytes()
    packed = raw.startswith(b"\x1f\x8b")
    text = gzip.decompress(raw) if packed else raw
    if path.suffix == ".pickle":
        plain = pickle.loads(text)
        said = [_change(rng, plain) for _ in range(rng.choice((1, 1, 3)))]
        path.write_bytes(pickle.dumps(plain, rng.choice((2, 4))))
        return f"values {'; '.join(said)}"
    try:
        plain = json.loads(text)
    except ValueError:
        return bytes_changed(rng, path)
    said = [_change(rng, plain) for _ in range(rng.choice((1, 1, 1, 3, 20)))]
    indent, ascii_only = rng.choice((None, None, 1)), rng.random() < 0.7
    changed = json.dumps(plain, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    path.write_bytes(gzip.compress(changed, 1) if packed else changed)
    return f"values {'; '.join(said[:3])}"


def _change(rng: random.Random, plain: Any) -> str:
    """Change one value somewhere, or leave it out, or say it many times."""
    where, holder, key = "", None, None
    here = plain
    while isinstance(here, (dict, list)) and here and (holder is None or rng.random() < 0.9):
        holder = here
        key = rng.choice(list(here)) if isinstance(here, dict) else rng.randrange(len(here))
        where += f".{str(key)[:30]}"
        here = here[key]
    if holder is None:
        return "nothing"
    how = rng.random()
    if how < 0.1:
        del holder[key]
        return f"{where} left out"
    if how < 0.15 and isinstance(holder, list):
        holder[key:key] = [here] * 500
        return f"{where} many times"
    if how < 0.2 and isinstance(holder, dict):
        holder[rng.choice(("more", "", "ph", "ts", "rank", "__class__"))] = here
        return f"{where} under another name"
    value = copy.deepcopy(rng.choice((*HOSTILE, rng.randrange(-10, 1000), rng.uniform(-1e6, 1e19))))
    holder[key] = value
    shown = repr(value)
    return f"{where} = {shown[:40]}"


# ------------------------------------------------------------ sizes


def sizes_changed(rng: random.Random, path: Path) -> str:
    how = rng.choice(
        ("deep", "deep in", "bomb", "bomb of it", "wide", "long text", "numbers", "many events", "pickles")
    )
    packed = path.name.endswith(".gz")
    text = b""
    if how == "deep":
        text = rng.choice((b"[", b'{"a":', b'{"traceEvents":[[')) * 200_000
    elif how == "deep in":
        deep = b"[" * 50_000 + b"]" * 50_000
        text = b'{"schemaVersion": 1, "config": %b, "distributedInfo": %b, "traceEvents": [' % (deep, deep)
        text += b'{"ph": "X", "name": "a", "ts": 1, "dur": 1, "args": {"a": %b}}]}' % deep
    elif how == "wide":
        text = b'{"schemaVersion": 1, "a": [' + b"[]," * 3_000_000 + b'[]], "traceEvents": []}'
    elif how == "long text":
        text = b'{"host": "' + rng.choice((b"x", "\U0001f600".encode())) * 12_000_000 + b'", "traceEvents": []}'
    elif how == "numbers":
        text = (
            b'{"rank": '
            + b"9" * 1_000_000
            + b', "traceEvents": [{"ph": "X", "ts": '
            + b"1" * 100_000
            + b', "dur": 1}]}'
        )
    elif how == "many events":
        one = b'{"ph":"X","name":"aten::mm","cat":"cpu_op","pid":1,"tid":1,"ts":%d,"dur":1}'
        text = b'{"schemaVersion":1,"traceEvents":[' + b",".join(one % n for n in range(200_000)) + b"]}"
    elif how == "bomb of it":
        raw = path.read_bytes()
        path.write_bytes(raw * 200 if packed else raw + b" " * 50_000_000)
        return how
    elif how == "pickles":
        path.write_bytes(rng.choice(PICKLES))
        return how
    if how == "bomb":
        path.write_bytes(BOMB)
    else:
        path.write_bytes(gzip.compress(text, 1) if packed else text)
    return how


BOMB = gzip.compress(bytes(1 << 24), 6) * 64
"""A gigabyte of zeros in one megabyte."""
PICKLES = (
    b"cos\nsystem\n(S'true'\ntR.",
    b"\x80\x04]r\xff\xff\xff\x7f.",  # a memo of two thousand million places
    b"\x80\x04\x8d" + (1 << 40).to_bytes(8, "little"),  # a text of a terabyte
    b"\x80\x04\x8e" + (1 << 62).to_bytes(8, "little"),
    b"\x80\x04\x95" + (1 << 50).to_bytes(8, "little"),
    b"(" * 1_000_000 + b"t" * 1_000_000 + b".",
    b"\x80\x04)" + b"2\x86" * 200 + b"}" + b".",
    b"\x80\x04})" + b"2\x86" * 60 + b"K\x01s.",  # a key whose hash takes 2**60 steps
    b"\x80\x04(}K\x01]K\x02".ljust(1000, b"2") + b"d.",
    b"\x80\x04\x8a\xff" + b"\xff" * 255 + b".",
)
