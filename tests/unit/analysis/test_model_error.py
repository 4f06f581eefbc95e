"""Known errors of the replay: the file, and how its errors follow from the cases."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from rankscope.analysis.matching.collectives import Matched
from rankscope.analysis.matching.communicators import Communicator
from rankscope.analysis.stragglers import model_error as module
from rankscope.analysis.stragglers.model_error import CAUSES, FILE, MESHES, errors_of, mesh_of, model_error
from rankscope.causes.table import OURS

KEPT = json.loads(FILE.read_text(encoding="utf-8"))


def test_the_file_has_every_kind_of_mesh_and_cause_and_is_what_the_code_reads() -> None:
    assert set(KEPT["error"]) == set(MESHES)
    for mesh, errors in KEPT["error"].items():
        assert set(errors) == set(CAUSES)
        assert {cause: model_error(mesh, cause) for cause in CAUSES} == errors
    assert set(CAUSES) == {cause.name for cause in OURS} | {"slow_link"}


def test_another_file_gives_other_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = {mesh: dict.fromkeys(CAUSES, 0.31) for mesh in MESHES}
    (tmp_path / "other.json").write_text(json.dumps({"error": changed}))
    monkeypatch.setattr(module, "FILE", tmp_path / "other.json")
    module._table.cache_clear()
    try:
        assert model_error("ring", "slow_compute") == 0.31
    finally:
        module._table.cache_clear()


def test_a_cause_of_another_package_has_the_largest_error() -> None:
    assert model_error("grid", "of another package") == max(KEPT["error"]["grid"].values())


def test_the_errors_follow_from_the_cases_in_the_file_and_each_case_says_where_it_is_from() -> None:
    cases: dict[str, dict[str, list[float]]] = {}
    for source in KEPT["sources"]:
        assert source["command"].startswith("python benchmarks/")
        assert all(source[key] for key in ("what", "rankscope", "made"))
        for mesh, of_mesh in source["cases"].items():
            for cause, off in of_mesh.items():
                cases.setdefault(mesh, {}).setdefault(cause, []).extend(off)
    assert sum(len(off) for of_mesh in cases.values() for off in of_mesh.values()) >= 60
    assert errors_of(cases) == KEPT["error"]


def test_errors_by_hand() -> None:
    """Twenty cases: the 19th of them by size is 0.19. Three: the largest of these, or of their cause if that is more.
    Of a cause without a case: those of the device, of which 27 of 28 (95 % are 26.6) are 0.3 or less."""
    twenty = [n / 100 * (-1) ** n for n in range(1, 21)]
    cases = {"grid": {"slow_compute": twenty}, "ring": {"slow_compute": [0.0, 0.02, -0.3]}}
    cases["stages"] = {"uneven_work": [0.3, 0.4, 0.1, 0.1, 0.1], "input_stall": [0.01] * 19}
    errors = errors_of(cases)
    assert errors["grid"]["slow_compute"] == 0.19
    assert errors["ring"]["slow_compute"] == 0.3
    assert errors["experts"]["slow_compute"] == 0.2  # the 22nd of 23
    assert errors["experts"]["extra_compute"] == 0.3
    assert errors["stages"]["uneven_work"] == 0.4
    assert errors["stages"]["input_stall"] == 0.3  # 19 of the host are too few: the 45th of all 47
    assert errors_of({"grid": {"host_pause": [0.001] * 20}})["grid"]["host_pause"] == 0.05  # never less


@pytest.mark.parametrize(
    ("groups", "kind", "staged", "mesh"),
    [
        ([(0, 1, 2, 3)], "all_reduce", False, "one group"),
        ([(0, 1), (2, 3), (0, 2), (1, 3)], "all_reduce", False, "grid"),
        ([(0, 1), (2, 3), (0, 2), (1, 3)], "all_reduce", True, "stages"),
        ([(0, 1, 2, 3)], "all_to_all", False, "experts"),
        ([(0, 1)], "send", False, "ring"),
    ],
)
def test_kinds_of_meshes(groups: list[tuple[int, ...]], kind: str, staged: bool, mesh: str) -> None:
    channels = [Communicator(ranks, str(n), kind == "send") for n, ranks in enumerate(groups)]
    calls = np.arange(len(groups), dtype=np.int32)
    matched = Matched((0, 1, 2, 3), kind=[kind] * len(groups), channel=calls, channels=channels)
    assert mesh_of(matched, staged=staged) == mesh
