"""Under --benchmark-only the tests are left uncollected rather than skipped one by one."""

from pathlib import Path

import pytest


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave tests/ out when benchmarks are asked for."""
    ours = collection_path.is_relative_to(config.rootpath / "tests")
    return True if ours and config.getoption("benchmark_only", False) else None
