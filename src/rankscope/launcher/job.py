"""What we put around the job: a spool on this node's disk, the agent's instructions, the environment, the helper."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankscope.config import ToolConfig, to_agent_spec
from rankscope.launcher.run_plan import RunPlan, take
from rankscope.records.codec import to_json
from rankscope.records.spec import BY_LIBKINETO
from rankscope.rundir.files import write_new
from rankscope.rundir.layout import RunDir
from rankscope.rundir.spool import ENV_PYTHONPATH, ENV_SPEC, Spool

if TYPE_CHECKING:
    from rankscope.launcher.node_helper import NodeHelper

__all__ = ["Session", "begin"]

# Named, not imported: the agent lives in the ranks and never in the launcher.
_INJECT = Path(__file__).parent.parent / "agent" / "inject"


@dataclass(frozen=True, slots=True)
class Session:
    """A run that is being recorded."""

    run_dir: RunDir
    spool: Spool
    helper: NodeHelper

    @contextlib.contextmanager
    def environment(self, environ: MutableMapping[str, str] = os.environ) -> Iterator[None]:
        """Reach the ranks: torchrun passes our environment on, and Python imports the agent from PYTHONPATH."""
        before = environ.get("PYTHONPATH")
        changes = {
            "PYTHONPATH": os.pathsep.join([str(_INJECT), *([before] if before else [])]),
            ENV_PYTHONPATH: before or "",
            ENV_SPEC: str(self.spool.spec),
        }
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

    def discard_spool(self) -> None:
        """Remove the spool; what it held has been gathered or is lost."""
        shutil.rmtree(self.spool.path, ignore_errors=True)


def begin(plan: RunPlan, config: ToolConfig, *, argv: Sequence[str], plain: dict[str, Any]) -> Session:
    """Claim the run directory, write the spec and start this node's helper. Leaves no spool behind when it fails.

    Raises:
        RunDirError: the run directory is taken or cannot be written.
    """
    from rankscope.launcher.node_helper import NodeHelper

    run_dir, claim = take(plan)
    # mkdtemp makes it private (0700): traces show the user's code. Each node has its own, never on the shared disk.
    spool = Spool(Path(tempfile.mkdtemp(prefix="rankscope_")))
    try:
        spec = to_agent_spec(config, run_id=claim.run_id, spool=spool.path)
        spec.no_kineto = _why_no_kineto(config.capture.backend, spool)
        spec.kineto_socket = str(spool.socket.parent) if spec.no_kineto is None else None
        write_new(spool.spec, to_json(spec))
        helper = NodeHelper.start(run_dir, spool, claim, list(argv), plain)
    except BaseException:
        shutil.rmtree(spool.path, ignore_errors=True)
        raise
    return Session(run_dir=run_dir, spool=spool, helper=helper)


_NVIDIA = Path("/dev/nvidiactl")
_INJECTED = "CUDA_INJECTION64_PATH"

# A socket's path has 107 bytes (sun_path); libkineto's own is the folder, a slash, `dynoconfigclient` and a UUID.
_LONGEST_FOLDER = 107 - 1 - 16 - 36


def _why_no_kineto(backend: str, spool: Spool) -> str | None:
    """Why libkineto shall not record by itself on this node, or None; what only a rank can know the agent asks."""
    if backend not in ("auto", *BY_LIBKINETO):
        return "not asked for"
    folder = str(spool.socket.parent)
    if len(os.fsencode(folder)) > _LONGEST_FOLDER:
        return f"{folder} is too long for the path of a socket; set TMPDIR to a shorter one"
    if backend == "auto" and not _NVIDIA.exists():
        return "no NVIDIA device on this node"
    if backend == "auto" and _INJECTED in os.environ:
        return f"another tool is inside CUDA, {_INJECTED} is set"
    return None
