"""Two runs to compare."""

import pytest

from support.compared import add, begin


@pytest.fixture
def runs(store):
    """A function that fills runs `base` and `new` with medians (or a status) by problem."""

    def fill(base, new, **values):
        for run_id, rows in (("base", base), ("new", new)):
            begin(store, run_id, **(values if run_id == "new" else {}))
            for problem, found in rows.items():
                if isinstance(found, dict):
                    add(store, run_id, problem, **found)
                else:
                    add(store, run_id, problem, found)
        return store

    return fill
