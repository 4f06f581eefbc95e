"""Which sets of ranks have a name: hosts, groups, positions."""

from __future__ import annotations

from types import SimpleNamespace

from rankscope.analysis.evidence.places import find_places
from rankscope.analysis.matching.communicators import Communicator
from rankscope.records.rank import DevicePlace, RankRecord
from rankscope.records.rows import RankSummary
from rankscope.trace.columns import Group


def rows(hosts: dict[int, str], lost: tuple[int, ...] = ()) -> list[RankSummary]:
    return [RankSummary(rank=r, host=h, compute_pct=None if r in lost else 50.0) for r, h in hosts.items()]


def windows(*channels: Communicator, groups: tuple[Group, ...] = ()) -> list[SimpleNamespace]:
    views = [SimpleNamespace(trace=SimpleNamespace(groups=list(groups)))]
    return [SimpleNamespace(matched=SimpleNamespace(channels=list(channels)), views=views)]


def found(*arguments) -> list[tuple[str, str, list[int]]]:
    return [(place.kind, place.name, place.ranks) for place in find_places(*arguments)]


def test_hosts_then_groups_then_rails() -> None:
    hosts = rows({0: "a", 1: "a", 2: "b", 3: "b"})
    groups = windows(
        Communicator((0, 3), "mesh_tp"),
        Communicator((0, 1, 2, 3), "default_pg"),  # all ranks are no set
        Communicator((1, 2), "7"),  # a number is no name
        Communicator((0, 1), "pipeline", point_to_point=True),
    )
    assert found(groups, hosts) == [
        ("host", "a", [0, 1]),
        ("host", "b", [2, 3]),
        ("group", "mesh_tp", [0, 3]),
        ("rail", "0", [0, 2]),
        ("rail", "1", [1, 3]),
    ]


def test_a_lost_rank_is_in_no_set_and_moves_no_other() -> None:
    assert found(windows(), rows({0: "a", 1: "a", 2: "a", 3: "b", 4: "b", 5: "b"}, lost=(1,))) == [
        ("host", "a", [0, 2]),
        ("host", "b", [3, 4, 5]),
        ("rail", "0", [0, 3]),
        ("rail", "2", [2, 5]),
    ]


def test_hosts_of_different_sizes_have_no_rails() -> None:
    assert found(windows(), rows({0: "a", 1: "a", 2: "b"})) == [("host", "a", [0, 1])]


def test_parts_of_a_host_and_adapters_from_where_the_devices_sit() -> None:
    """Two hosts of four devices: two NUMA nodes each, NVLink in pairs across them, one adapter for two devices."""
    hosts = rows({r: "ab"[r // 4] for r in range(8)})
    records = [
        RankRecord(
            rank=r, local_rank=r % 4, world_size=8, host="ab"[r // 4], pid=1, attempt=0, window=0,
            device_uuid=f"gpu-{r}",
            place=DevicePlace(numa=r % 4 // 2, nics=[f"mlx5_{r % 2}"], nvlink=[f"GPU-{r ^ 2}"]),
        )
        for r in range(8)
    ]  # fmt: skip
    places = found(windows(), hosts, records)
    assert places == [
        ("host", "a", [0, 1, 2, 3]),
        ("host", "b", [4, 5, 6, 7]),
        ("numa", "0 of host a", [0, 1]),
        ("numa", "1 of host a", [2, 3]),
        ("numa", "0 of host b", [4, 5]),
        ("numa", "1 of host b", [6, 7]),
        ("nvlink", "a", [0, 2]),
        ("nvlink", "a", [1, 3]),
        ("nvlink", "b", [4, 6]),
        ("nvlink", "b", [5, 7]),
        ("adapter", "mlx5_0", [0, 2, 4, 6]),
        ("adapter", "mlx5_1", [1, 3, 5, 7]),
        ("rail", "0", [0, 4]),
        ("rail", "1", [1, 5]),
        ("rail", "2", [2, 6]),
        ("rail", "3", [3, 7]),
    ]
    # of one device a host and adapter, the adapter names the rail, and no set is told twice
    pairs = rows({0: "a", 1: "a", 2: "b", 3: "b"})
    for record in records[:4]:
        record.host = "ab"[record.rank // 2]
        record.place = DevicePlace(numa=0, nics=[f"mlx5_{record.rank % 2}"])
    assert found(windows(), pairs, records[:4]) == [
        ("host", "a", [0, 1]),
        ("host", "b", [2, 3]),
        ("adapter", "mlx5_0", [0, 2]),
        ("adapter", "mlx5_1", [1, 3]),
    ]


def test_ranks_at_one_position_of_a_dimension_of_the_mesh() -> None:
    """GIVEN a mesh of two stages, two replicas and two tensor-parallel ranks, as torch describes its groups
    THEN a stage, a replica and a tensor position have a name, though no group has the four ranks of any."""
    mesh = (
        *(Group("1", "mesh_pp", (r, r + 4)) for r in range(4)),
        *(Group("2", "mesh_dp", (r, r + 2)) for r in (0, 1, 4, 5)),
        *(Group("3", "mesh_tp", (r, r + 1)) for r in (0, 2, 4, 6)),
        Group("0", "default_pg", tuple(range(8))),
        *(Group("9", "undefined", pair) for pair in ((0, 7), (1, 6))),  # new_group without a description
        *(Group("8", "overlapping", pair) for pair in ((0, 3), (3, 5))),
        *(Group("7", "uneven", some) for some in ((0, 5), (1, 2, 4))),
    )
    calls = [Communicator((0, 2), "mesh_dp"), Communicator((1, 3), "mesh_dp")]
    assert found(windows(*calls, groups=mesh), rows(dict.fromkeys(range(8), "a"))) == [
        ("mesh", "0 of mesh_dp", [0, 1, 4, 5]),
        ("mesh", "1 of mesh_dp", [2, 3, 6, 7]),
        ("mesh", "0 of mesh_pp", [0, 1, 2, 3]),
        ("mesh", "1 of mesh_pp", [4, 5, 6, 7]),
        ("mesh", "0 of mesh_tp", [0, 2, 4, 6]),
        ("mesh", "1 of mesh_tp", [1, 3, 5, 7]),
        ("group", "mesh_dp", [0, 2]),
        ("group", "mesh_dp", [1, 3]),
    ]
