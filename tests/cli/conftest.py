"""A store with made-up runs, for commands."""

import shutil

import pytest

from kernelmark.bench.record.store import Store
from support.compared import LOOSE, STEADY, add, begin
from support.rows import DISTURBED


@pytest.fixture(scope="session")
def both_runs(tmp_path_factory):
    with Store(tmp_path_factory.mktemp("runs") / "results.db") as store:
        begin(store, "20260101-old", name="base", started_at="2026-01-01T10:00:00+00:00", planned=2)
        begin(store, "20260201-new", started_at="2026-02-01T10:00:00+00:00", planned=3)
        for run_id in store.run_ids():
            add(store, run_id, "m3n5/f32", STEADY, disturbed=DISTURBED)
        add(store, "20260101-old", "m9n5/f32", LOOSE)
        add(store, "20260201-new", "m9n5/f32", status="wrong", disturbed=DISTURBED)
    return store.path


@pytest.fixture
def two_runs(both_runs, tmp_path):
    """The path of a store with the runs `20260101-old` (`base`, complete) and `20260201-new` (partial)."""
    return str(shutil.copy(both_runs, tmp_path / "results.db"))
