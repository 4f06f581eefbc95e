"""Who may import whom: architecture.md's rules, read from sys.modules of fresh processes."""

from __future__ import annotations

import json
import pkgutil
import subprocess
import sys

import pytest

import rankscope

ALL = sorted(m.name for m in pkgutil.walk_packages(rankscope.__path__, "rankscope.") if not m.name.endswith("__main__"))
PACKAGES = ("records", "rundir", "causes")
GROUND = (
    *("rankscope.errors", "rankscope.config", "rankscope.plugins", "rankscope.step_time"),
    *(name for name in ALL if name.split(".")[1:2] and name.split(".")[1] in PACKAGES),
)
HEAVY = ("hydra", "omegaconf", "pandas", "hta", "plotly", "pyarrow", "rich", "jinja2")
HELP = "import sys\nfrom rankscope.cli import main\ntry: main(sys.argv[2:])\nexcept SystemExit: pass\n"


def loaded(*modules: str, code: str = "", arguments: tuple[str, ...] = ()) -> set[str]:
    """Names in sys.modules after the imports, in a process of their own."""
    script = (
        "import importlib, json, sys\n"
        "for name in json.loads(sys.argv[1]): importlib.import_module(name)\n"
        f"{code}\n"
        "sys.stderr.write(json.dumps(sorted(sys.modules)))"
    )
    # -S and -I would hide the installed package; -X importtime is not needed: sys.modules is the truth.
    done = subprocess.run(
        [sys.executable, "-c", script, json.dumps(modules), *arguments],
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    return set(json.loads(done.stderr.splitlines()[-1]))


def part(prefix: str) -> list[str]:
    return [name for name in ALL if name == prefix or name.startswith(f"{prefix}.")]


def under(names: set[str], *prefixes: str) -> list[str]:
    return sorted(n for n in names if any(n == p or n.startswith(f"{p}.") for p in prefixes))


def test_the_ground_floor_is_standard_library_only() -> None:
    before = loaded()
    tops = {name.partition(".")[0] for name in loaded(*GROUND) - before}
    assert tops - set(sys.stdlib_module_names) - {"__mp_main__"} == {"rankscope"}
    assert under(loaded(*GROUND), "rankscope") == sorted(["rankscope", *GROUND])


def test_the_agent_is_light() -> None:
    modules = [name for name in part("rankscope.agent") if ".inject" not in name]
    assert modules
    seen = loaded(*modules)
    forbidden = ("launcher", "analysis", "report", "compose", "cli", "trace", "node", "diagnose")
    assert under(seen, *HEAVY, *(f"rankscope.{name}" for name in forbidden)) == []


def test_the_launcher_never_imports_the_agent() -> None:
    seen = loaded(*part("rankscope.launcher"), *part("rankscope.node"))
    assert under(seen, "rankscope.agent", "rankscope.cli", "rankscope.compose", *HEAVY) == []


def test_the_node_helper_needs_no_torch() -> None:
    assert under(loaded(*part("rankscope.node")), "torch", *HEAVY) == []


def test_trace_and_analysis_know_no_job() -> None:
    modules = [*part("rankscope.trace"), *part("rankscope.analysis")]
    seen = loaded(*modules)
    forbidden = ("launcher", "agent", "report", "cli", "compose", "node")
    assert under(seen, *(f"rankscope.{name}" for name in forbidden)) == []
    assert [name for name in seen if name == "torch.distributed"] == []


@pytest.mark.parametrize("floor", ["rankscope.diagnose", "rankscope.report"])
def test_diagnose_and_report_read_records_not_traces(floor: str) -> None:
    seen = loaded(*part(floor))
    assert under(seen, "rankscope.trace", "rankscope.launcher", "rankscope.agent", "torch", "hta") == []


def test_only_compose_imports_hydra_and_only_cli_imports_compose() -> None:
    others = [n for n in ALL if n != "rankscope.compose" and not n.startswith("rankscope.cli") and ".inject" not in n]
    # the demo's scripts are run, not imported; one needs more than rankscope does
    seen = loaded(*(name for name in others if name not in ("rankscope.demo.train", "rankscope.demo.trainer")))
    assert under(seen, "hydra", "omegaconf", "rankscope.cli", "rankscope.compose") == []


@pytest.mark.parametrize("words", [("--help",), ("--version",), ("analyze", "--help"), ("config",)])
def test_small_verbs_start_fast(words: tuple[str, ...]) -> None:
    seen = loaded(code=HELP, arguments=words)
    assert under(seen, "torch", "pandas", "numpy", "hta", "plotly") == []
