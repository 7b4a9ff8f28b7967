"""Commands in this process, on a store with made-up runs."""

import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest

from bench.cli import main
from compared_runs import LOOSE, STEADY, add, begin

DISTURBED = "others took 0.98 CPUs during 60 % of the sampling"


class Called(NamedTuple):
    """What a command printed, and its exit status."""

    status: int
    out: str
    err: str


@pytest.fixture
def called(tmp_path, monkeypatch, capsys) -> Callable[..., Called]:
    """Call a command in this test's folder, in this process: most of a process's time goes into imports."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))

    def call(*words: str) -> Called:
        monkeypatch.setattr(sys, "argv", ["kernelmark", *words])
        status: object = 0
        try:
            main()
        except SystemExit as left:
            status = left.code
        return Called(int(str(status or 0)), *capsys.readouterr())

    return call


@pytest.fixture
def two_runs(store):
    """Runs `20260101-old` (`base`, complete) and `20260201-new` (partial) in the store, closed; returns its path."""
    begin(store, "20260101-old", name="base", started_at="2026-01-01T10:00:00+00:00", planned=2)
    begin(store, "20260201-new", started_at="2026-02-01T10:00:00+00:00", planned=3)
    for run_id in store.run_ids():
        add(store, run_id, "m3n5/f32", STEADY, disturbed=DISTURBED)
    add(store, "20260101-old", "m9n5/f32", LOOSE)
    add(store, "20260201-new", "m9n5/f32", status="wrong", disturbed=DISTURBED)
    store.close()
    return str(store.path)
