"""A run to add rows to."""

import pytest

from support.rows import begin


@pytest.fixture
def begun(store):
    """A store with a run that has no rows yet."""
    begin(store)
    return store
