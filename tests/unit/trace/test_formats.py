"""Input formats: each package is in the table, and every format passes the same tests on its samples."""

from __future__ import annotations

import gzip
import json
import os
import pkgutil
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

from rankscope import trace
from rankscope.errors import TraceError
from rankscope.trace.columns import RankTrace
from rankscope.trace.files.consistency import require_consistent
from rankscope.trace.files.formats import OURS, is_offered, recognise
from rankscope.trace.files.load import load_traces
from rankscope.trace.format import Format

KERNEL = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 1, "dur": 2, "args": {"stream": 7}}
SAMPLES: dict[str, tuple[str, bytes]] = {
    "Kineto": ("rank_0.json", json.dumps({"schemaVersion": 1, "traceEvents": [KERNEL]}).encode())
}
"""Name of a format -> (a file name of it, a whole file with one event at least)."""

every_format = pytest.mark.parametrize("form", OURS, ids=lambda form: form.name)


def test_each_package_with_a_format_is_in_the_table() -> None:
    modules = [m.name for m in pkgutil.walk_packages(trace.__path__, "rankscope.trace.") if ".files" not in m.name]
    found = [module.FORMAT for module in map(import_module, modules) if hasattr(module, "FORMAT")]
    assert [form.name for form in found] == [form.name for form in OURS]
    assert set(SAMPLES) == {form.name for form in OURS}


@every_format
def test_its_files_are_opened_and_recognised_and_no_other_format_takes_them(form: Format) -> None:
    name, content = SAMPLES[form.name]
    assert is_offered(name)
    assert recognise(content) is form
    assert not form.fits(b"")
    assert not form.fits(b"PAR1")
    assert [f.name for f in OURS if f.fits(content)] == [form.name]


@every_format
@pytest.mark.parametrize("wrap", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_a_file_becomes_columns_that_fit_together(form: Format, wrap: Callable[[bytes], bytes], tmp_path: Path) -> None:
    name, content = SAMPLES[form.name]
    path = tmp_path / name
    path.write_bytes(wrap(content))
    (found,) = form.read(path)
    assert isinstance(found, RankTrace)
    assert found.source == str(path)
    assert len(found.events) > 0
    require_consistent(found)
    loaded = load_traces([tmp_path], cache=False, workers=1)
    assert [t.source for t in loaded.traces] == [str(path)]


@every_format
def test_half_a_file_is_read_or_refused_with_its_path(form: Format, tmp_path: Path) -> None:
    name, content = SAMPLES[form.name]
    path = tmp_path / name
    for length in range(0, len(content), 7):
        path.write_bytes(content[:length])
        try:
            for found in form.read(path):
                require_consistent(found)
        except TraceError as error:
            assert str(path) in str(error)  # noqa: PT017 - either outcome is right


def test_a_pattern_that_cannot_be_compiled_is_refused() -> None:
    with pytest.raises(Exception, match="unterminated character set"):
        Format(name="new", files="[", fits=lambda _head: True, read=lambda _path: [])


THEIRS = """
import dataclasses
from rankscope.trace.format import Format

def fits(head):
    if head.startswith(b"BOOM"):
        raise RuntimeError("no luck")
    return head.startswith(b"THEIRS")

def read(path):
    from rankscope.trace.kineto.build import read_traces
    plain = path.with_name("plain.json")
    plain.write_bytes(path.read_bytes()[6:])
    (trace,) = read_traces(plain)
    trace.source, trace.rank = str(path), 3
    return [trace]

FORMAT = Format(name="Theirs", files=r"\\.theirs$", fits=fits, read=read)
"""
LIBRARIES = """
from rankscope.trace.library import Library
LIBRARY = Library(name="Warp", kernels="^warp_exchange", samples=(("warp_exchange_kernel", "unknown"),))
"""
POINTS = """
[rankscope.formats]
theirs = their_format:FORMAT

[rankscope.libraries]
warp = their_library:LIBRARY
"""
ASK = """
import sys
from pathlib import Path
from rankscope import plugins
from rankscope.trace.files.load import load_traces
from rankscope.trace.names import is_communication
found = load_traces([Path(sys.argv[1])], cache=False, workers=1)
print([(Path(t.source).name, t.rank) for t in found.traces])
print([s.reason for s in found.sources if s.status != "used"])
print(is_communication("warp_exchange_kernel(int)"))
print(plugins.notes())
"""


def test_formats_and_libraries_of_another_package(tmp_path: Path) -> None:
    for name, text in (("their_format", THEIRS), ("their_library", LIBRARIES)):
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    info = tmp_path / "their_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-package\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(POINTS, encoding="utf-8")
    traces = tmp_path / "traces"
    traces.mkdir()
    (traces / "rank_3.theirs").write_bytes(b"THEIRS" + SAMPLES["Kineto"][1])
    (traces / "broken.theirs").write_bytes(b"BOOM")
    done = subprocess.run(
        [sys.executable, "-c", ASK, traces], env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "[('rank_3.theirs', 3)]",
        "['not JSON']",
        "True",
        "['the plug-in Theirs (rankscope.formats) failed and is left out: RuntimeError: no luck']",
    ]
