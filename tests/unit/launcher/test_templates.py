"""The templates in launch/ call `rankscope run` with valid arguments. Cluster commands are replaced."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from rankscope.compose import compose
from rankscope.launcher.exec.plan import parse_exec
from rankscope.launcher.run.arguments import RunArguments, parse
from rankscope.launcher.run_plan import RunPlan, check

LAUNCH = Path(__file__).parents[3] / "launch"


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """srun, ssh and the like that run their command here, and a rankscope that prints what it was given."""
    stand_ins = {
        "rankscope": 'printf "%s\\n" "$@" > "$OUT/call.$$"',
        "srun": 'shift; exec "$@"',
        "scontrol": "printf 'node-a\\nnode-b\\n'",
        "ssh": 'shift 2; exec bash -c "$*"',
    }
    for name, body in stand_ins.items():
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/usr/bin/env bash\n{body}\n")
        path.chmod(0o755)
    return tmp_path


def calls(cluster: Path, template: str, **environ: str) -> list[tuple[RunArguments, RunPlan]]:
    env = {"PATH": f"{cluster / 'bin'}{os.pathsep}{os.environ['PATH']}", "OUT": str(cluster), **environ}
    words = ["bash", str(LAUNCH / template), "train.py", "--start", "5", "two words"]
    subprocess.run(words, env=env, cwd=cluster, check=True, timeout=300)
    return [planned(path.read_text().splitlines()[1:]) for path in sorted(cluster.glob("call.*"))]


def planned(words: list[str]) -> tuple[RunArguments, RunPlan]:
    arguments = parse(words)
    return arguments, check(arguments.torchrun, compose(arguments.overrides).config)


def test_slurm(cluster: Path) -> None:
    slurm = {"JOB_ID": "41", "JOB_NODELIST": "node-[a-b]", "NNODES": "2", "SUBMIT_DIR": "/shared/me"}
    [(arguments, plan)] = calls(cluster, "slurm.sh", **{f"SLURM_{key}": value for key, value in slurm.items()})
    assert plan == RunPlan(
        run_id="41_0", run_dir=Path("/shared/me/rankscope_runs/slurm_41_0"), node=None, launch="rendezvous 41_0",
        alone=False,
    )  # fmt: skip
    assert arguments.torchrun.rdzv_endpoint == "node-a:20041"
    assert arguments.torchrun.training_script_args == ["--start", "5", "two words"]


def test_one_task_a_rank_under_slurm_and_mpirun(cluster: Path) -> None:
    (cluster / "bin/mpirun").write_text('#!/usr/bin/env bash\nshift 2; exec "$@"\n')
    (cluster / "bin/mpirun").chmod(0o755)
    for template, environ, run_dir in (
        ("slurm_tasks.sh", {"SLURM_JOB_ID": "41", "SLURM_SUBMIT_DIR": "/me"}, "/me/rankscope_runs/slurm_41_0"),
        ("mpirun.sh", {"HOSTS": "a:8,b:8", "RUN_DIR": "/shared/first"}, "/shared/first"),
    ):
        env = {"PATH": f"{cluster / 'bin'}{os.pathsep}{os.environ['PATH']}", "OUT": str(cluster), **environ}
        words = ["bash", str(LAUNCH / template), "python", "train.py", "--start", "5", "two words"]
        subprocess.run(words, env=env, cwd=cluster, check=True, timeout=30)
        (call,) = cluster.glob("call.*")
        verb, *rest = call.read_text().splitlines()
        call.unlink()
        arguments = parse_exec(rest)
        assert verb == "exec"
        assert arguments.command == ["python", "train.py", "--start", "5", "two words"]
        assert compose(arguments.overrides).config.run.dir == run_dir


def test_ssh(cluster: Path) -> None:
    found = calls(cluster, "ssh.sh", HOSTS="node-a node-b", RUN_ID="first", RUN_DIR="/shared/first")
    assert {plan.node for _, plan in found} == {"0", "1"}
    for arguments, plan in found:
        assert (plan.run_id, plan.run_dir) == ("first", Path("/shared/first"))
        assert arguments.torchrun.master_addr == "node-a"
        assert arguments.torchrun.training_script_args == ["--start", "5", "two words"]


def in_a_container(container: dict, **given: str) -> list[str]:
    """Its words, with Kubernetes' own substitution of variables."""
    words = [*container["command"], *container["args"]]
    for name, value in given.items():
        words = [word.replace(f"$({name})", value) for word in words]
    return words


def on_the_second_node(words: list[str], run_id: str) -> RunArguments:
    """Check that the words run train.py on node 1 of a run in the shared folder; return their arguments."""
    tool, verb, *rest = words
    assert (tool, verb) == ("rankscope", "run")
    arguments, plan = planned(rest)
    assert plan == RunPlan(
        run_id=run_id, run_dir=Path(f"/shared/rankscope_runs/{run_id}"), node="1", launch=f"rendezvous {run_id}",
        alone=False,
    )  # fmt: skip
    assert arguments.torchrun.training_script == "train.py"
    return arguments


def test_kubernetes() -> None:
    _, job = yaml.safe_load_all((LAUNCH / "kubernetes.yaml").read_text())
    container = job["spec"]["template"]["spec"]["containers"][0]
    given = {"JOB_COMPLETION_INDEX": "1", "RUN_ID": "uid"}
    assert {item["name"] for item in container["env"]} == set(given)
    on_the_second_node(in_a_container(container, **given), "uid")


def test_pytorchjob(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = yaml.safe_load((LAUNCH / "pytorchjob.yaml").read_text())["spec"]
    nodes = spec["pytorchReplicaSpecs"]
    assert nodes["Master"]["template"] == nodes["Worker"]["template"]
    (container,) = nodes["Worker"]["template"]["spec"]["containers"]
    # what the operator sets in the second pod
    given = {"NNODES": "2", "NPROC_PER_NODE": spec["nprocPerNode"], "NODE_RANK": "1"}
    for name, value in (given | {"MASTER_ADDR": "train-master-0", "MASTER_PORT": "23456"}).items():
        monkeypatch.setenv(f"PET_{name}", value)
    arguments = on_the_second_node(in_a_container(container, RUN_ID="first"), "first")
    assert (arguments.torchrun.master_addr, arguments.torchrun.nproc_per_node) == ("train-master-0", "8")


def test_trainjob(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime, job = yaml.safe_load_all((LAUNCH / "trainjob.yaml").read_text())
    reference = job["spec"]["runtimeRef"]
    assert (runtime["kind"], runtime["metadata"]["name"]) == (reference["kind"], reference["name"])
    (pods,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    name, trainer = job["metadata"]["name"], job["spec"]["trainer"]
    # what Trainer sets in the second pod
    given = {"NNODES": str(trainer["numNodes"]), "NPROC_PER_NODE": "auto", "NODE_RANK": "1", "MASTER_PORT": "29500"}
    for variable, value in (given | {"MASTER_ADDR": f"{name}-{pods['name']}-0-0.{name}"}).items():
        monkeypatch.setenv(f"PET_{variable}", value)
    arguments = on_the_second_node(in_a_container(trainer, RUN_ID="uid"), "uid")
    assert (arguments.torchrun.nnodes, arguments.torchrun.master_addr) == ("2", "train-node-0-0.train")


def test_jobset() -> None:
    jobset = yaml.safe_load((LAUNCH / "jobset.yaml").read_text())
    (job,) = jobset["spec"]["replicatedJobs"]
    container = job["template"]["spec"]["template"]["spec"]["containers"][0]
    given = {"JOB_COMPLETION_INDEX": "1", "RUN_ID": "uid", "ATTEMPT": "2"}
    assert {item["name"] for item in container["env"]} == set(given)
    tool, verb, *words = in_a_container(container, **given)
    assert (tool, verb) == ("rankscope", "run")
    arguments, plan = planned(words)
    assert plan == RunPlan(
        run_id="uid-2", run_dir=Path("/shared/rankscope_runs/uid-2"), node="1", launch="rendezvous uid-2", alone=False
    )  # fmt: skip
    # the first pod of the first Job, by the names that the controller gives
    name, nodes = jobset["metadata"]["name"], job["template"]["spec"]["completions"]
    assert arguments.torchrun.master_addr == f"{name}-{job['name']}-0-0.{name}"
    assert arguments.torchrun.nnodes == str(nodes)


def test_leaderworkerset(cluster: Path) -> None:
    group = yaml.safe_load((LAUNCH / "leaderworkerset.yaml").read_text())["spec"]["leaderWorkerTemplate"]
    assert group["restartPolicy"] == "None"
    (container,) = group["workerTemplate"]["spec"]["containers"]
    given = {"LWS_GROUP_SIZE": "2", "LWS_WORKER_INDEX": "1", "LWS_LEADER_ADDRESS": "train-0.train.default"}
    words = in_a_container(container, RUN_ID="first", **given)
    for name, body in (("rankscope", 'printf "%s\n" "$@" > "$OUT/call.$$"; exit 3'), ("sleep", 'echo "slept $*"')):
        (cluster / "bin" / name).write_text(f"#!/usr/bin/env bash\n{body}\n")
        (cluster / "bin" / name).chmod(0o755)
    env = {"PATH": f"{cluster / 'bin'}{os.pathsep}{os.environ['PATH']}", "OUT": str(cluster)}
    done = subprocess.run(words, env=env, cwd=cluster, check=True, timeout=30, capture_output=True, text=True)
    assert done.stdout == "ended with code 3\nslept infinity\n"
    (call,) = cluster.glob("call.*")
    verb, *rest = call.read_text().splitlines()
    arguments, plan = planned(rest)
    assert verb == "run"
    assert plan == RunPlan(
        run_id="first", run_dir=Path("/shared/rankscope_runs/first"), node="1", launch="rendezvous first", alone=False
    )  # fmt: skip
    assert arguments.torchrun.master_addr == "train-0.train.default"
    assert arguments.torchrun.nnodes == str(group["size"])
