"""Fixtures for tests of the store and of imports."""

import json
from functools import partial

import pytest

from kernelmark.bench.cli.stores import _problem
from kernelmark.bench.record.foreign.importing import import_files
from kernelmark.bench.record.store import Store
from kernelmark.bench.run.session import new_run_id


@pytest.fixture
def imported(tmp_path, find):
    """Return a function that imports files and returns each run as (run, {case: (result, dims)})."""

    def of(*paths):
        with_ids = import_files(tmp_path / "results.db", paths, find, new_run_id)
        with Store(tmp_path / "results.db") as store:
            return [(store.run(run.run_id), {r.case: (r, d) for r, d in store.results(run.run_id)}) for run in with_ids]

    return of


@pytest.fixture
def find(registry):
    return partial(_problem, registry)


@pytest.fixture
def refused(tmp_path, find, complaint):
    """Return a function that imports invalid files and returns the error; asserts that no store is left."""

    def of(*paths):
        line = complaint(lambda: import_files(tmp_path / "refused.db", paths, find, new_run_id))
        assert not (tmp_path / "refused.db").exists()
        return line

    return of


@pytest.fixture
def edited(tmp_path):
    """Return a function that copies a JSON file with the value at a place (`benchmarks.0.name`) replaced."""

    def of(path, place, value):
        root = json.loads(path.read_text())
        *parents, last = (int(key) if key.isdigit() else key for key in place.split("."))
        node = root
        for key in parents:
            node = node[key]
        node[last] = value
        (tmp_path / "edited.json").write_text(json.dumps(root))
        return tmp_path / "edited.json"

    return of
