"""Every engine makes the same objects, byte for byte; one that is not available names what is missing."""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager
from pathlib import Path
from shutil import which
from types import SimpleNamespace
from typing import Any

import pytest

from rankscope import __version__, cli
from rankscope.analysis.pipeline import analyze
from rankscope.engines import mpi
from rankscope.engines.table import BY_NAME
from rankscope.errors import ConfigError
from rankscope.reduced.reduce import reduce_share, reduce_shares, shares_of
from rankscope.report.formats import json as contract
from rankscope.trace.files.load import load_traces
from support.ray_cluster import ray_cluster
from support.slurm import slurm

TRACES = Path(__file__).parents[2] / "data" / "traces" / "ddp_slow_gpu"


def objects_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def expected(tmp_path: Path) -> dict[str, bytes]:
    for share in shares_of([TRACES], str(tmp_path / "here"), objects=2):
        reduce_share(share)
    return objects_in(tmp_path / "here")


@pytest.mark.data
def test_processes_of_this_machine(expected: dict[str, bytes], tmp_path: Path) -> None:
    output = tmp_path / "local"
    assert cli.main(["reduce", str(TRACES), "--output", str(output), "--objects", "2", "--workers", "2"]) == 0
    assert objects_in(output) == expected


@pytest.mark.data
@pytest.mark.long
def test_dask_of_which_a_worker_is_killed(expected: dict[str, bytes], tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    output = tmp_path / "dask"
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        first = cluster.workers[0].pid

        def kill() -> None:
            while not output.is_dir():  # a share has begun
                time.sleep(0.01)
            os.kill(first, signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        with BY_NAME["dask"].open(cluster.scheduler_address, None) as executor:
            failed = list(reduce_shares(shares_of([TRACES], str(output), objects=2), executor))
        killer.join()
    assert failed == []
    assert {name: text for name, text in objects_in(output).items() if name.endswith(".columns")} == expected


def _mpiexec() -> list[str]:
    """What starts two processes of which one leads, before ``-m MODULE``."""
    if which("mpiexec") is None:
        pytest.skip("no MPI here")
    about = subprocess.run(["mpiexec", "--version"], capture_output=True, text=True).stdout
    starts = ["mpiexec", "-n"]
    if "Open MPI" in about or "OpenRTE" in about:  # of which mpi4py's wheel has to be told
        starts = ["env", "MPI4PY_MPIABI=openmpi", "mpiexec", "--allow-run-as-root", "--oversubscribe", "-n"]
    probe = subprocess.run([*starts, "1", sys.executable, "-c", "import mpi4py.MPI"], capture_output=True, text=True)
    if probe.returncode:
        pytest.skip(f"mpi4py does not work with this mpiexec: {probe.stderr[-200:]}")
    return [*starts, "2", sys.executable, "-m", "mpi4py.futures"]


@pytest.mark.data
@pytest.mark.long
def test_mpi(expected: dict[str, bytes], tmp_path: Path) -> None:
    output = tmp_path / "mpi"
    command = [
        *_mpiexec(), "-m", "rankscope",
        "reduce", str(TRACES), "--output", str(output), "--objects", "2", "--engine", "mpi",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert objects_in(output) == expected


@pytest.fixture(scope="module")
def ray() -> Iterator[tuple[list[str], dict[str, str]]]:
    """The words that name the one cluster of this module, and the environment in which they do."""
    with ray_cluster() as cluster:
        if isinstance(cluster, str):
            pytest.skip(cluster)
        address, environment = cluster
        yield ["--engine", "ray", "--address", address, "--workers", "2"], environment


@pytest.mark.data
@pytest.mark.long
def test_ray(ray: tuple[list[str], dict[str, str]], expected: dict[str, bytes], tmp_path: Path) -> None:
    output = tmp_path / "ray"
    command = [sys.executable, "-m", "rankscope", "reduce", str(TRACES), "--output", str(output), "--objects", "2"]
    done = subprocess.run([*command, *ray[0]], env=ray[1], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert objects_in(output) == expected


@pytest.mark.data
@pytest.mark.long
def test_tasks_of_srun(tmp_path: Path) -> None:
    with slurm(tmp_path / "slurm") as environment:
        if isinstance(environment, str):
            pytest.skip(environment)
        share = f"exec {sys.executable} -m rankscope reduce {TRACES} --output {tmp_path / 'columns'}"
        command = ["srun", "-n", "2", "--overcommit", "bash", "-c", f"{share} --share $SLURM_PROCID/$SLURM_NTASKS"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert len(objects_in(tmp_path / "columns")) == 2
    assert cli.main(["cluster-report", str(tmp_path / "columns"), "--output", str(tmp_path / "srun")]) == 0
    words = ["--workers", "1", "--cache", str(tmp_path / "cache")]
    assert cli.main(["analyze", str(TRACES), "--output", str(tmp_path / "here"), *words]) == 0
    reports = [(tmp_path / name / "report.json").read_bytes() for name in ("here", "srun")]
    assert reports[0] == reports[1]


class _Loses(Executor):
    """An engine of which one worker dies with a file, and another does not see one."""

    def submit(self, call: Any, *arguments: Any, **more: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if arguments[0].path.name == "rank_0.json.gz":
            future.set_exception(ConnectionError("its worker is gone"))
        else:
            future.set_result("no such file here")
        return future


class _Works(Executor):
    """An engine that brings everything back as it is sent between processes."""

    def submit(self, call: Any, *arguments: Any, **more: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(pickle.loads(pickle.dumps(call(*pickle.loads(pickle.dumps(arguments))))))
        return future


@pytest.mark.data
@pytest.mark.parametrize("engine", [_Loses(), _Works()], ids=["loses", "works"])
def test_a_report_is_the_same_whoever_reads(engine: Executor) -> None:
    here = load_traces([TRACES], workers=1, cache=False)
    there = load_traces([TRACES], executor=engine, cache=False)
    assert contract.render(analyze(there, hta=False)) == contract.render(analyze(here, hta=False))


@pytest.mark.data
@pytest.mark.long
@pytest.mark.parametrize("engine", ["dask", "ray", "mpi"])
def test_analyze_by_an_engine(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    before, words, environment = [sys.executable], ["--engine", engine], dict(os.environ)
    if engine == "mpi":
        before = _mpiexec()
    elif engine == "ray":
        words, environment = request.getfixturevalue("ray")
    else:
        pytest.importorskip("distributed")
        words += ["--workers", "2"]
    reports = []
    for name, starts, more in (("here", [sys.executable], ["--workers", "1"]), (engine, before, words)):
        output = tmp_path / name
        command = [*starts, "-m", "rankscope", "analyze", str(TRACES), "--output", str(output), *more]
        whole = [*command, "--cache", str(output)]
        done = subprocess.run(whole, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        reports.append((output / "report.json").read_bytes())
    assert reports[0] == reports[1]


def test_an_engine_or_a_number_that_is_none_is_refused(tmp_path: Path) -> None:
    assert cli.main(["analyze", str(tmp_path), "--engine", "nobody"]) == ConfigError.exit_code
    assert cli.main(["analyze", str(TRACES), "--workers", "0"]) == ConfigError.exit_code


@pytest.mark.parametrize(("engine", "module"), [("dask", "distributed"), ("mpi", "mpi4py.MPI"), ("ray", "ray")])
def test_a_package_that_is_missing_is_named(engine: str, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigError, match=rf"pip install 'rankscope\[{engine}\]'"), BY_NAME[engine].open("", None):
        pass


def test_a_library_that_is_missing_is_no_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(_: str) -> None:
        raise ImportError("libmpi.so.12: cannot open shared object file")

    monkeypatch.setattr(mpi, "import_module", load)
    with pytest.raises(ConfigError, match=r"no MPI library can be loaded \(libmpi"), BY_NAME["mpi"].open("", None):
        pass


def test_the_local_engine_has_no_address() -> None:
    with pytest.raises(ConfigError, match="has none"), BY_NAME["local"].open("tcp://elsewhere", None):
        pass


def test_an_address_of_ray_that_does_not_answer_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(remote=lambda call: call, is_initialized=lambda: False))
    with socket.socket() as server:  # bound, and does not listen
        server.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(ConfigError, match="no cluster of Ray at"), BY_NAME["ray"].open(address, None):
            pass


class _Client(AbstractContextManager["_Client"]):
    """A client of Dask whose workers have these versions of rankscope."""

    def __init__(self, versions: list[str | Exception]) -> None:
        self.versions = versions

    def __exit__(self, *_: object) -> None:
        pass

    def submit(self, call: Any, **_: Any) -> _Client:
        return self

    def result(self, timeout: float) -> int:
        if not self.versions:
            raise TimeoutError
        return 0

    def run(self, call: Any, *_: Any, **__: Any) -> dict[str, str | Exception]:
        return {f"tcp://node-{n}:1": version for n, version in enumerate(self.versions)}


@pytest.mark.parametrize(
    ("versions", "why"),
    [
        ([], "no free worker for 600 s"),
        ([__version__, "0.0.9"], r"node-1:1 has another version of rankscope \(0.0.9\)"),
        ([ModuleNotFoundError("No module named 'rankscope'")], "node-0:1 cannot load rankscope"),
    ],
)
def test_workers_of_dask_without_this_version_are_refused(
    versions: list[str | Exception], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", SimpleNamespace(Client=lambda **_: _Client(versions)))
    with pytest.raises(ConfigError, match=why), BY_NAME["dask"].open("node-0:8786", None):
        pass


def test_a_scheduler_file_that_is_missing_is_not_taken_for_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", SimpleNamespace())
    with pytest.raises(ConfigError, match="no such file"), BY_NAME["dask"].open("/nowhere/scheduler.json", None):
        pass
