"""Fixtures of the tests of planning."""

from collections.abc import Callable

import pytest

from bench.plan.suites import Suite, load_suite


@pytest.fixture
def load(registry, tmp_path) -> Callable[[str], Suite]:
    """Return a function that loads the text of a suite, from `mine.toml`."""
    path = tmp_path / "mine.toml"

    def of(text: str) -> Suite:
        path.write_text(text)
        return load_suite(path, registry)

    return of
