"""Surroundings of the job: a spool on this node's disk, the agent's specification, the environment, the node helper."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankscope.config import ToolConfig, to_agent_spec
from rankscope.errors import RunDirError
from rankscope.launcher.headroom import leave_enough
from rankscope.launcher.run_plan import RunPlan, name_of
from rankscope.node.gathering.signing import load_signing_key
from rankscope.rank_identity import identity_from, identity_key
from rankscope.records.codec import to_json
from rankscope.records.running.node_task import NodeTask
from rankscope.records.secrets import mask_arguments, mask_config
from rankscope.rundir.files import write_new
from rankscope.rundir.layout import RUNS_FOLDER
from rankscope.rundir.sealing import recipients_of
from rankscope.rundir.spool import ENV_IDENTITY, ENV_PYTHONPATH, ENV_SPEC, Spool

if TYPE_CHECKING:
    from rankscope.launcher.node_helper import NodeHelper

__all__ = ["RecordedRun", "begin", "changes_for"]

# Named, not imported: the agent runs in the ranks and never in the launcher.
_INJECT = Path(__file__).parent.parent / "agent" / "inject"


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A run that is being recorded."""

    run_dir: Path | str | None
    """A folder, or a URL. None: its store has not answered yet."""
    wanted: Path | str
    """The requested run directory, or the folder below which one was requested."""
    spool: Spool
    helper: NodeHelper

    @contextlib.contextmanager
    def environment(self, environ: MutableMapping[str, str] = os.environ) -> Iterator[None]:
        """Set the environment for the ranks: torchrun passes it on, and Python imports the agent from PYTHONPATH."""
        changes = changes_for(self.spool, environ)
        saved = {key: environ.get(key) for key in changes}
        environ.update(changes)
        try:
            yield
        finally:
            for key, value in saved.items():
                if value is None:
                    environ.pop(key, None)
                else:
                    environ[key] = value


def changes_for(spool: Spool, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by which the agent is loaded into a process, combined with existing ones."""
    before = environ.get("PYTHONPATH")
    return {
        "PYTHONPATH": os.pathsep.join([str(_INJECT), *([before] if before else [])]),
        **({} if before is None else {ENV_PYTHONPATH: before}),
        ENV_SPEC: str(spool.spec),
        ENV_IDENTITY: identity_key(identity_from(environ)),
    }


def begin(
    plan: RunPlan,
    config: ToolConfig,
    *,
    argv: Sequence[str],
    plain: dict[str, Any],
    spool: Spool | None = None,
    ends_with_ranks: bool = False,
) -> RecordedRun:
    """Write task and spec into a spool, start this node's helper, and wait for the run directory, up to a limit.

    Leaves no spool behind when it fails, unless one was given.

    Args:
        plan: which run this is.
        config: what to record.
        argv: the command line, for the manifest.
        plain: the configuration, for the manifest.
        spool: a private folder; None creates one.
        ends_with_ranks: this process does not wait for the end of the job.

    Raises:
        ConfigError: encryption or signing was requested and is not possible.
        RunDirError: the run directory is in use or cannot be written.
        OSError: this node's own disk, or its processes or descriptors, do not suffice.
    """
    from rankscope.launcher.node_helper import NodeHelper

    leave_enough()
    # first, so that an encryption that is not possible is reported before a job begins
    task = _task(plan, config, argv, plain)
    # mkdtemp makes it private (0700), because traces show the user's code. Each node has its own, never on the shared
    # disk.
    made = spool is None
    spool = spool or Spool(Path(tempfile.mkdtemp(prefix="rankscope_")))
    helper = None
    try:
        spec = to_agent_spec(
            config,
            run_id=plan.run_id or name_of(plan.run_dir, plan.store) or plan.launch,
            spool=spool.path,
        )
        task.ends_with_ranks = ends_with_ranks
        if plan.store is not None:
            task.run_dir = str(spool.part)
        write_new(spool.spec, to_json(spec))
        write_new(spool.task, to_json(task))
        helper = NodeHelper(spool, kept=ends_with_ranks)
        answer = helper.claimed(_CLAIM_S, _STORE_S)
        if answer is not None and answer.kind == "refused":
            raise RunDirError(answer.text)
        if not ends_with_ranks:
            helper.watch()
    except BaseException:
        if helper is not None:
            helper.end()
        if made:
            shutil.rmtree(spool.path, ignore_errors=True)  # no rank has begun, so it holds no recorded data
        raise
    run_dir = None if answer is None else (task.store or Path(answer.text))
    return RecordedRun(
        run_dir=run_dir, wanted=task.store or Path(task.run_dir or task.base), spool=spool, helper=helper
    )


_CLAIM_S = 10.0
"""The job starts even if the run directory has not answered by then, because that or the helper may be unable to."""
_STORE_S = 5.0
"""The same, from when the helper has requested it. A store that works answers in milliseconds, a busy network disk in a
second or two."""


def _task(plan: RunPlan, config: ToolConfig, argv: Sequence[str], plain: dict[str, Any]) -> NodeTask:
    return NodeTask(
        run_id=plan.run_id,
        launch=plan.launch,
        alone=plan.alone,
        elastic=plan.elastic,
        run_dir=str(plan.run_dir) if plan.run_dir is not None else None,
        base=str(RUNS_FOLDER.absolute()),
        node=plan.node,
        launcher_pid=os.getpid(),
        argv=mask_arguments(argv),
        config=mask_config(plain),
        gather_timeout_s=config.gather.timeout_s,
        report=config.analysis.enabled,
        hta=config.analysis.hta,
        report_timeout_s=config.analysis.timeout_s,
        keep=config.gather.keep,
        store=plan.store,
        leave_free_bytes=round(config.gather.leave_free_gb * 1e9),
        most_bytes=round(config.gather.most_gb * 1e9),
        metrics=config.live.metrics,
        encrypt=recipients_of(list(config.store.encrypt)),
        signing_key=_signing_key(config.store.signing_key),
    )


def _signing_key(configured: str | None) -> str | None:
    """Return the file, after checking that the key can be used."""
    if configured is None:
        return None
    path = Path(configured).expanduser().absolute()
    load_signing_key(path)
    return str(path)
