"""What a redacted copy keeps. Content that no field of :class:`Policy` covers is left out."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from rankscope.errors import ConfigError, ForeignFileError
from rankscope.rundir.foreign import read_foreign

__all__ = ["LEVELS", "Policy", "as_markdown", "load_policy"]

_MOST_BYTES = 1 << 20
_CHOICES: dict[str, tuple[str, ...]] = {
    "shapes": ("keep", "token", "drop"),
    "grids": ("keep", "token", "drop"),
    "kernel_details": ("keep", "drop"),
    "message_sizes": ("keep", "drop"),
    "memory": ("keep", "drop"),
    "step_logs": ("keep", "drop"),
    "health": ("keep", "drop"),
    "device_models": ("keep", "token"),
    "versions": ("keep", "drop"),
    "times": ("keep", "shift"),
    "process_ids": ("keep", "shift"),
}
MEANINGS: dict[str, str] = {
    "shapes": "input shapes of operators; tokens keep which are equal, and which has more elements",
    "grids": "launch grids of kernels, which tell how much data they work on; tokens keep which are equal",
    "kernel_details": "registers and shared memory of each kernel",
    "message_sizes": "elements of each communication call, bytes of each copy; without them there is no bus bandwidth",
    "memory": "snapshots and totals of the allocator: sizes and times, stacks as tokens",
    "step_logs": "the time of every step of the run",
    "health": "clocks, power, temperature and errors of devices, load of hosts, CPU time of threads",
    "device_models": "names of devices, as `NVIDIA H100 80GB HBM3`",
    "versions": "versions of torch, NCCL, CUDA and drivers; of one's own builds only the released part",
    "times": "when it ran; shifted by the same secret time in all files of a copy",
    "process_ids": "numbers of processes and threads; shifted by the same secret number",
}
_MOST_WORDS = 10_000


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Treatment of each kind of content: ``keep``, ``token``, ``shift`` or ``drop``."""

    level: str = "public"
    """Its name, for the report of the copy."""
    shapes: str = "token"
    grids: str = "token"
    kernel_details: str = "drop"
    message_sizes: str = "keep"
    memory: str = "drop"
    step_logs: str = "keep"
    health: str = "keep"
    device_models: str = "keep"
    versions: str = "keep"
    times: str = "shift"
    process_ids: str = "shift"
    keep_names: tuple[str, ...] = field(default=())
    """The user's own names that may be read, in addition to those of PyTorch and of the libraries: whole names."""


LEVELS: dict[str, Policy] = {
    "share": Policy(level="share", memory="keep", times="keep", process_ids="keep"),
    "vendor": Policy(level="vendor", memory="keep", kernel_details="keep"),
    "public": Policy(),
}
"""From the level that keeps most to the one that keeps least."""


def load_policy(level: str, path: Path | None) -> Policy:
    """Return the policy of a level, with the changes in a file.

    Args:
        level: a name of :data:`LEVELS`.
        path: YAML with any of the fields of :class:`Policy`; ``level`` in it names the level it begins with, and
            ``name`` the name of the result in the report.

    Raises:
        ConfigError: the file has an unknown key or value, so that nothing is kept by mistake.
    """
    if path is None:
        return LEVELS[level]
    import yaml

    try:
        settings = yaml.safe_load(read_foreign(path, _MOST_BYTES))
    except (yaml.YAMLError, ForeignFileError, RecursionError) as error:
        raise ConfigError(f"--policy {path}: {' '.join(str(error).split())}") from error
    if not isinstance(settings, dict):
        raise ConfigError(f"--policy {path}: a list of `key: value` is wanted, see docs/privacy.md")
    known = {*_CHOICES, "level", "name", "keep_names"}
    for key in settings:
        if key not in known:
            raise ConfigError(f"--policy {path}: {key!s:.60} is not known; choose of {', '.join(sorted(known))}")
    begun = settings.pop("level", level)
    if begun not in LEVELS:
        raise ConfigError(f"--policy {path}: level: {begun!s:.60} is not known; choose one of {', '.join(LEVELS)}")
    name = settings.pop("name", f"{begun}, changed by a policy file")
    names = settings.pop("keep_names", [])
    if not isinstance(names, list) or len(names) > _MOST_WORDS or not all(isinstance(n, str) for n in names):
        raise ConfigError(f"--policy {path}: keep_names: a list of at most {_MOST_WORDS} names is wanted")
    for key, value in settings.items():
        if value not in _CHOICES[key]:
            raise ConfigError(f"--policy {path}: {key}: {value!s:.60} is none of {', '.join(_CHOICES[key])}")
    return replace(LEVELS[begun], level=str(name)[:80], keep_names=tuple(names), **settings)


def as_plain(policy: Policy) -> dict[str, Any]:
    """Return the description for the copy: the level and each choice, without the names that were kept."""
    return {key: value for key, value in asdict(policy).items() if key != "keep_names"}


def as_markdown() -> str:
    """Return the table of docs/privacy.md."""
    rows = [
        f"| `{key}` | {' | '.join(getattr(LEVELS[n], key) for n in LEVELS)} | {MEANINGS[key]} |" for key in _CHOICES
    ]
    assert set(_CHOICES) == {f.name for f in fields(Policy)} - {"level", "keep_names"}
    return "\n".join(rows) + "\n"
