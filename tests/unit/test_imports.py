"""Imports at run time: the rules of architecture.md, read from sys.modules of fresh processes."""

from __future__ import annotations

import json
import pkgutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

import rankscope

pytestmark = pytest.mark.process

ALL = sorted(m.name for m in pkgutil.walk_packages(rankscope.__path__, "rankscope.") if not m.name.endswith("__main__"))
PACKAGES = ("records", "rundir", "causes")
GROUND = (
    *("rankscope.errors", "rankscope.config", "rankscope.plugins", "rankscope.own_process", "rankscope.limits"),
    "rankscope.in_job",
    *("rankscope.capture_backends", "rankscope.statistics", "rankscope.statistics.step_time"),
    *(name for name in ALL if name.split(".")[1:2] and name.split(".")[1] in PACKAGES),
)
HEAVY = ("hydra", "omegaconf", "pandas", "hta", "plotly", "pyarrow", "rich", "jinja2")
HELP = "import sys\nfrom rankscope.cli import main\ntry: main(sys.argv[2:])\nexcept SystemExit: pass\n"


SERVER = """
import importlib, json, os, sys

for line in sys.stdin:
    first, modules, code, sys.argv[1:] = json.loads(line)
    for name in first:
        importlib.import_module(name)
    sys.stdout.flush()
    if not os.fork():
        answer, sys.stdout = sys.stdout, sys.stderr
        for name in modules:
            importlib.import_module(name)
        exec(code)
        answer.write(json.dumps(sorted(sys.modules)) + chr(10))
        answer.flush()
        os._exit(0)
    if os.wait()[1]:
        print("[]", flush=True)
"""
"""Answers each line of stdin from a child of its own, so that no answer knows what another has loaded."""


@pytest.fixture(scope="module")
def fresh() -> Iterator[Callable[[Sequence[str], Sequence[str], str, Sequence[str]], set[str]]]:
    """Names in sys.modules after imports, in a process that imported nothing of ours before."""
    servers: dict[tuple[str, ...], subprocess.Popen[str]] = {}

    def ask(first: Sequence[str], modules: Sequence[str], code: str, arguments: Sequence[str]) -> set[str]:
        words = [sys.executable, "-W", "ignore", "-c", SERVER]
        server = servers.get(tuple(first))
        if server is None:
            server = subprocess.Popen(words, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            servers[tuple(first)] = server
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps([list(first), list(modules), code, list(arguments)]) + "\n")
        server.stdin.flush()
        found = set(json.loads(server.stdout.readline()))
        assert found, f"{modules} {code} failed"
        return found

    yield ask
    for server in servers.values():
        with server:
            server.kill()


@pytest.fixture
def loaded(fresh):
    def loaded(*modules: str, code: str = "", arguments: tuple[str, ...] = (), after: tuple[str, ...] = ()) -> set[str]:
        """Names in sys.modules. ``after``: packages of others that were imported before, because that takes long."""
        return fresh(after, modules, code, arguments)

    return loaded


def part(prefix: str) -> list[str]:
    return [name for name in ALL if name == prefix or name.startswith(f"{prefix}.")]


def under(names: set[str], *prefixes: str) -> list[str]:
    return sorted(n for n in names if any(n == p or n.startswith(f"{p}.") for p in prefixes))


def test_the_ground_floor_is_standard_library_only(loaded) -> None:
    before = loaded()
    tops = {name.partition(".")[0] for name in loaded(*GROUND) - before}
    assert tops - set(sys.stdlib_module_names) - {"__mp_main__"} == {"rankscope"}
    assert under(loaded(*GROUND), "rankscope") == sorted(["rankscope", *GROUND])


def test_the_agent_is_light(loaded) -> None:
    modules = [name for name in part("rankscope.agent") if ".inject" not in name]
    assert modules
    seen = loaded(*modules, after=("torch",))
    forbidden = ("launcher", "analysis", "report", "compose", "cli", "trace", "node", "diagnose")
    assert under(seen, *HEAVY, *(f"rankscope.{name}" for name in forbidden)) == []


def test_a_rank_imports_next_to_nothing_before_torch() -> None:
    """What torch imports anyway is imported after it: each process of the job would wait for it at its start."""
    code = f"import sys; sys.path.append({str(Path(rankscope.__file__).parents[1])!r}); before = set(sys.modules)\n"
    code += "import rankscope.agent.bootstrap; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    slow = {
        "typing",
        "dataclasses",
        "inspect",
        "json",
        "re",
        "pathlib",
        "socket",
        "importlib.abc",
        "importlib.metadata",
    }
    assert set(done.stdout.split()) & slow == set()
    ours = {name for name in done.stdout.split() if name.startswith("rankscope.")}
    assert ours == {
        *("rankscope.agent", "rankscope.agent.bootstrap", "rankscope.agent.process"),
        *("rankscope.agent.process.exec_again", "rankscope.agent.process.guard"),
        *("rankscope.agent.process.import_hooks", "rankscope.rank_identity", "rankscope.in_job"),
    }


def test_the_launcher_never_imports_the_agent(loaded) -> None:
    seen = loaded(*part("rankscope.launcher"), *part("rankscope.node"), after=("torch",))
    assert under(seen, "rankscope.agent", "rankscope.cli", "rankscope.compose", *HEAVY) == []


def test_the_node_helper_needs_no_torch(loaded) -> None:
    assert under(loaded(*part("rankscope.node")), "torch", *HEAVY) == []


def test_trace_and_analysis_know_no_job(loaded) -> None:
    modules = [*part("rankscope.trace"), *part("rankscope.analysis")]
    seen = loaded(*modules)
    forbidden = ("launcher", "agent", "report", "cli", "compose", "node")
    assert under(seen, *(f"rankscope.{name}" for name in forbidden)) == []
    assert [name for name in seen if name == "torch.distributed"] == []


@pytest.mark.parametrize("floor", ["rankscope.diagnose", "rankscope.report"])
def test_diagnose_and_report_read_records_not_traces(loaded, floor: str) -> None:
    seen = loaded(*part(floor))
    assert under(seen, "rankscope.trace", "rankscope.launcher", "rankscope.agent", "torch", "hta") == []


def test_only_compose_imports_hydra_and_only_cli_imports_compose(loaded) -> None:
    others = [n for n in ALL if n != "rankscope.compose" and not n.startswith("rankscope.cli") and ".inject" not in n]
    # the demo's scripts are run, not imported; one needs more than rankscope does
    seen = loaded(
        *(name for name in others if name not in ("rankscope.demo.train", "rankscope.demo.trainer")), after=("torch",)
    )
    assert under(seen, "hydra", "omegaconf", "rankscope.cli", "rankscope.compose") == []


@pytest.mark.parametrize("words", [("--help",), ("--version",), ("analyze", "--help"), ("config",)])
def test_small_verbs_start_fast(loaded, words: tuple[str, ...]) -> None:
    seen = loaded(code=HELP, arguments=words)
    assert under(seen, "torch", "pandas", "numpy", "hta", "plotly") == []
