"""Arm the agent from the file that the launcher wrote. Standard library only: torch is left to the user to import.

As little as possible is imported before the script's first line runs, because every process of the job pays for it.
Imports after torch's cost little, since torch has imported most of the standard library by then.
"""

from __future__ import annotations

import os
import sys

from rankscope.agent.process.exec_again import ENV_IDENTITY, survive_exec
from rankscope.agent.process.import_hooks import after_import
from rankscope.rank_identity import identity_from, identity_key

TYPE_CHECKING = False  # typing takes longer to import than this module
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rankscope.rank_identity import Identity
    from rankscope.records.spec import AgentSpec

__all__ = ["arm", "is_rank"]


def is_rank(environ: Mapping[str, str]) -> bool:
    """Return whether this process was certainly started as a rank: torchrun's variables changed between rankscope and
    this process, or a launcher started several processes on this node, one per rank. A single process may be the
    launcher of a node, such as torchrun under srun."""
    found = identity_from(environ)
    if found is None or found.world_size is None:
        return False
    changed = found.launcher == "torchrun" and identity_key(found) != environ.get(ENV_IDENTITY, "")
    return changed or (found.local_world_size or 0) > 1


def arm(spec_path: str, *, certain: bool, withdraw: Callable[[], None] | None = None) -> None:
    """Wait for the user's ``import torch``, then read the spec and begin. Without that import nothing happens.

    Args:
        spec_path: the file that the launcher has written.
        certain: see :func:`is_rank`. Otherwise this process or processes below it may be the ranks.
        withdraw: restores the environment that started the agent; called once this process turns out to be a rank.
    """
    parent = os.getpid()
    if certain:
        survive_exec(os.environ)

    def attach() -> None:
        # A child forked before torch was imported inherits the hook. A forked child of a rank does not train.
        if os.getpid() == parent or not certain:
            _begin(spec_path, certain=certain, withdraw=withdraw)

    after_import("torch", attach)


def _begin(spec_path: str, *, certain: bool, withdraw: Callable[[], None] | None) -> None:
    try:
        spec = _read(spec_path)
    except Exception as error:  # without a spec there is no spool to write a record to
        if certain:
            sys.stderr.write(f"rankscope: this rank is not profiled: {error!r}\n")
        return
    try:
        from rankscope.agent.session import Session

        Session.begin(spec, certain=certain, withdraw=withdraw)
    except Exception as error:  # for instance an unsupported version of torch, or a full spool
        found = identity_from(os.environ)
        if certain and found is not None:
            _report_failure(spec, found, error)


def _read(spec_path: str) -> AgentSpec:
    from rankscope.records.codec import from_json
    from rankscope.records.spec import AgentSpec

    with open(spec_path, encoding="utf-8") as file:  # noqa: PTH123 - without pathlib
        return from_json(AgentSpec, file.read())


def _report_failure(spec: AgentSpec, found: Identity, error: Exception) -> None:
    """Write into the record of this rank's process why it has no further records.

    If that fails, the rank is missing from the report without a reason: the calling hook swallows the error.
    """
    from pathlib import Path

    from rankscope.agent.process.record import process_record
    from rankscope.records.codec import to_json
    from rankscope.rundir.files import replace_text
    from rankscope.rundir.spool import Spool

    reason = f"the agent did not start, the job went on without it: {error!r}"
    attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    process = process_record(found.rank, found.world_size or 1, found.local_rank, attempt, "missing", reason)
    replace_text(Spool(Path(spec.spool)).process_record(process.attempt, process.rank), to_json(process))
