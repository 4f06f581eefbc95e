"""Write the reports of all traces in tests/data, so that two versions of rankscope can be compared byte for byte.

    python benchmarks/reports.py before            # on the older version, or with PYTHONPATH=OTHER/CHECKOUT/src
    python benchmarks/reports.py after
    diff -r before after

Each trace folder becomes ``OUT/NAME/report.json``, ``report.md``, ``report.html`` and ``terminal.txt``. HTA's numbers
are left out unless ``--hta`` is given. Reading uses no cache, and every path in a report is relative to tests/data.
"""

from __future__ import annotations

import argparse
import os
import tarfile
import tempfile
from pathlib import Path

from rankscope.analysis.pipeline import analyze
from rankscope.errors import AnalysisError
from rankscope.records.codec import from_json
from rankscope.records.manifest import RunManifest
from rankscope.report import WRITERS, write_report
from rankscope.trace.files.load import load_traces

DATA = Path(__file__).parents[1] / "tests" / "data"


def folders() -> dict[str, Path]:
    """Return name -> folder of one job's traces, in the current directory."""
    found = {f"cases-{p.name}": p / "traces" for p in sorted(Path("cases").iterdir())}
    found |= {f"{kind}-{p.name}": p for kind in ("traces", "runs") for p in sorted(Path(kind).iterdir()) if p.is_dir()}
    return found | {name: Path(name) for name in ("public", "param_dlrm")}


def manifest_of(folder: Path) -> RunManifest | None:
    path = folder / "run.json"
    return from_json(RunManifest, path.read_bytes()) if path.is_file() else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--hta", action="store_true", help="with HolisticTraceAnalysis' numbers, which takes longer")
    given = parser.parse_args()
    out = given.out.resolve()
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        for name in ("cases", "traces", "runs", "public"):
            Path(name).symlink_to(DATA / name)
        with tarfile.open(DATA / "param_dlrm_8ranks.tar.gz") as packed:
            packed.extraction_filter = getattr(tarfile, "data_filter", None)
            packed.extractall("param_dlrm")
        for name, folder in folders().items():
            target = out / name
            target.mkdir(parents=True)
            try:
                load = load_traces([folder], cache=False)
                report = analyze(load, manifest_of(folder), hta=given.hta)
            except AnalysisError as error:
                (target / "error.txt").write_text(f"{error}\n", encoding="utf-8")
                continue
            write_report(report, target)
            (target / "terminal.txt").write_text(WRITERS["terminal"](report), encoding="utf-8")
            print(f"{name}: {report.verdict.sentence}")
        os.chdir(DATA)  # the current folder must not be one that is removed


if __name__ == "__main__":
    main()
