"""The run that ``rankscope exec`` belongs to, if several of them, each before a rank of its own, form one run."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rankscope.config import ToolConfig
from rankscope.errors import ConfigError
from rankscope.launcher.run_plan import RunPlan, name_of, place_of
from rankscope.rank_identity import Identity

__all__ = ["ExecArguments", "is_elastic", "parse_exec", "plan_of"]


@dataclass(frozen=True, slots=True)
class ExecArguments:
    """A parsed command line of ``rankscope exec``."""

    command: list[str]
    """The user's command; empty if help was requested."""
    overrides: list[str]
    """Hydra overrides from ``-S``, in order."""
    config_dirs: list[Path]
    """The user's own configuration folders."""


EXEC_HELP = """\
usage: rankscope exec [-S key=value ...] [--config-dir DIR] COMMAND [arguments]

Run any command, and record a few steps of those processes below it that turn out to be ranks. It stands before a
launcher, or before the command that a launcher starts for each rank:

  rankscope exec accelerate launch train.py         also deepspeed, a script with mp.spawn, Lightning, Ray Train
  mpirun -n 8 rankscope exec python train.py        also srun: one for each rank

before the command; behind it every word belongs to the command:
  -S, --set KEY=VALUE   change the configuration, as with rankscope run; `rankscope config` shows all keys
  --config-dir DIR      a folder with configuration groups of your own
  -h, --help            show this
"""


def parse_exec(words: list[str]) -> ExecArguments:
    """Parse the words after ``rankscope exec``.

    Raises:
        ConfigError: an unknown option, or no command.
    """
    overrides: list[str] = []
    config_dirs: list[str] = []
    rest = list(words)
    while rest and rest[0].startswith("-") and rest[0] != "--":
        option, attached, value = rest.pop(0).partition("=")
        if option in ("-h", "--help"):
            return ExecArguments([], [], [])
        if option.startswith("-S") and option != "-S":
            option, value, attached = "-S", f"{option[2:]}{attached}{value}", "="
        if option not in ("-S", "--set", "--config-dir", "--config_dir"):
            raise ConfigError(f"unrecognized argument {option}; see rankscope exec --help")
        if not attached:
            if not rest:
                raise ConfigError(f"{option} needs a value; see rankscope exec --help")
            value = rest.pop(0)
        (overrides if option in ("-S", "--set") else config_dirs).append(value)
    if rest[:1] == ["--"]:
        rest = rest[1:]
    if not rest:
        raise ConfigError("the command is missing; see rankscope exec --help")
    return ExecArguments(rest, overrides, [Path(folder) for folder in config_dirs])


def is_elastic(launcher: str, proc: Path = Path("/proc")) -> bool:
    """Return whether a launcher is a torchrun whose nodes may join and leave (``--nnodes 1:2``); ranks are not told.

    Args:
        launcher: as :func:`~rankscope.rank_identity.launcher_process` names it.
        proc: mount point of procfs.
    """
    words: list[str] = []
    with contextlib.suppress(OSError, IndexError):
        process = proc / launcher.split()[1]
        words = os.fsdecode((process / "cmdline").read_bytes()).split("\0")
        words += [w for w in os.fsdecode((process / "environ").read_bytes()).split("\0") if w.startswith("PET_NNODES=")]
    named = [
        value or following
        for word, following in zip(words, [*words[1:], ""], strict=False)
        for name, _, value in [word.partition("=")]
        if name == "PET_NNODES" or (name.startswith("--nn") and "--nnodes".startswith(name))
    ]
    ends = [value.partition(":")[::2] for value in named]
    return any(least.isdigit() and most.isdigit() and int(least) < int(most) for least, most in ends)


def plan_of(identity: Identity | None, config: ToolConfig, environ: Mapping[str, str], launcher: str) -> RunPlan:
    """Apply the rules; touches no file.

    Args:
        identity: as set by the launcher above; None: there is none, and this is the only process of its run.
        config: what to record.
        environ: may contain a restart count.
        launcher: the process that started the ranks of this node.

    Raises:
        ConfigError: several nodes that cannot know that they belong together.
    """
    run_dir, store = place_of(config)
    if identity is None:
        return RunPlan(
            run_id=None, run_dir=run_dir, node=None, launch=f"launch {secrets.token_hex(16)}", alone=True, store=store
        )
    named = environ.get("TORCHELASTIC_RUN_ID", "none")
    if (run_dir or store) and named != "none" and is_elastic(launcher):
        # the address of its store changes after nodes have joined
        return RunPlan(
            run_id=name_of(run_dir, store), run_dir=run_dir, node=None, launch=f"torchrun {named} elastic",
            alone=False, store=store, elastic=True,
        )  # fmt: skip
    if not identity.several_nodes:
        return RunPlan(run_id=None, run_dir=run_dir, node=None, launch=launcher, alone=True, store=store)
    if identity.job is None:
        raise ConfigError(
            f"{identity.launcher} runs this job on several nodes and gives it no name that all of them know; start "
            "it by `rankscope run` with --rdzv-id, or call rankscope.attach in the script"
        )
    if run_dir is None and store is None:
        raise ConfigError(
            "a job on several nodes needs a run directory that all nodes see. Add -S run.dir=/shared/folder/NAME, "
            "or the URL of a store"
        )
    restart = environ.get("SLURM_RESTART_COUNT", "0")  # a requeued job keeps its id
    launch = f"{identity.launcher} {identity.job} {restart}"
    name = name_of(run_dir, store)
    return RunPlan(run_id=name, run_dir=run_dir, node=None, launch=launch, alone=False, store=store)
