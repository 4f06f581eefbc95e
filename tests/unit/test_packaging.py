"""The wheel contains all packages: a folder that pyproject.toml omits is missing from the wheel only."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def setuptools() -> dict:
    if sys.version_info < (3, 11):
        pytest.skip("tomllib came with Python 3.11")
    import tomllib

    return tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]


def dotted(folder: Path, prefix: str = "") -> str:
    return ".".join((prefix, *folder.parts)).strip(".")


def test_every_folder_is_installed(setuptools: dict) -> None:
    code = {dotted(path.parent.relative_to(ROOT / "src")) for path in (ROOT / "src").rglob("*.py")}
    conf = {dotted(path.parent.relative_to(ROOT), "rankscope") for path in (ROOT / "conf").rglob("*.yaml")}
    assert set(setuptools["packages"]) == code | conf
    assert setuptools["packages"] == sorted(setuptools["packages"])


def test_every_file_that_is_no_code_is_installed(setuptools: dict) -> None:
    given = {
        path
        for package, patterns in setuptools["package-data"].items()
        for pattern in patterns
        for path in (ROOT / "src" / package.replace(".", "/")).glob(pattern)
    }
    kept = {p for p in (ROOT / "src").rglob("*") if p.is_file() and p.suffix not in (".py", ".pyc")}
    kept = {p for p in kept if not any(part.endswith(".egg-info") for part in p.parts)}
    assert kept - given == set()
    configured = {f"rankscope.{dotted(p.parent.relative_to(ROOT))}" for p in (ROOT / "conf").rglob("*.yaml")}
    assert configured <= set(setuptools["package-data"])
