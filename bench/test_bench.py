"""The test that `pytest --benchmark-only` collects, one item for each case."""

from typing import Any

import pytest

from kernelmark.bench.pytest_hooks import VIRTUAL_CLOCK
from kernelmark.bench.pytest_session import BenchmarkItem


@pytest.mark.filterwarnings("ignore:Benchmark fixture was not used")  # by a case that fails or is skipped
@pytest.mark.benchmark(timer=VIRTUAL_CLOCK)
def test_kernel(km_case: BenchmarkItem, km_measure: Any, benchmark: Any) -> None:
    """Verify and time a case. The verification decides whether the test passes; pytest-benchmark shows the time."""
    km_measure(km_case, benchmark)
