"""The host memory that can be had, as control groups limit it."""

from pathlib import Path

import pytest

from kernelmark.bench.measure import memory


@pytest.fixture
def control_groups(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of control groups, of which this process is in the root."""
    groups = tmp_path / "groups"
    groups.mkdir()
    (tmp_path / "own").write_text("0::/\n")
    monkeypatch.setattr(memory, "CGROUP", groups)
    monkeypatch.setattr(memory, "OWN_GROUPS", tmp_path / "own")
    return groups


def test_memory_is_limited_by_the_control_group(control_groups: Path) -> None:
    (control_groups / "memory.max").write_text("1000000\n")
    (control_groups / "memory.current").write_text("400000\n")
    assert memory.available_bytes() == 600_000
    (control_groups / "memory.max").write_text("max\n")
    free = memory.available_bytes()
    assert free is None or free > 600_000


def test_what_a_control_group_holds_of_inactive_files_can_be_had(control_groups: Path) -> None:
    (control_groups / "memory.max").write_text("1000000\n")
    (control_groups / "memory.current").write_text("900000\n")
    (control_groups / "memory.stat").write_text("anon 300000\ninactive_file 500000\n")
    assert memory.available_bytes() == 600_000


def test_the_narrowest_limit_of_nested_control_groups_of_either_version_counts(control_groups: Path) -> None:
    memory.OWN_GROUPS.write_text("4:cpu,memory:/outer/inner\n0::/\n")
    for folder, limit in (("memory", 10**9), ("memory/outer", 800_000), ("memory/outer/inner", 900_000)):
        (control_groups / folder).mkdir()
        (control_groups / folder / "memory.limit_in_bytes").write_text(f"{limit}\n")
        (control_groups / folder / "memory.usage_in_bytes").write_text("300000\n")
        (control_groups / folder / "memory.oom_control").write_text("under_oom 0\noom_kill 2\n")
    kills = memory.kills_by_system()
    (control_groups / "memory/outer/memory.oom_control").write_text("under_oom 0\noom_kill 3\n")
    assert (memory.available_bytes(), memory.whole_bytes()) == (500_000, 800_000)
    assert memory.kills_by_system() == kills + 1
