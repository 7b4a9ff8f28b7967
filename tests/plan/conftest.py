"""Fixtures of the tests of planning."""

from collections.abc import Callable

import pytest

from kernelmark import kernel
from kernelmark.bench.plan.kernel import Kernel
from kernelmark.bench.plan.suites import Suite, load_suite


@pytest.fixture
def load(registry, tmp_path) -> Callable[[str], Suite]:
    """Return a function that loads the text of a suite, from `mine.toml`."""
    path = tmp_path / "mine.toml"

    def of(text: str) -> Suite:
        path.write_text(text)
        return load_suite(path, registry)

    return of


@pytest.fixture
def dummy(registry) -> Callable[..., Kernel]:
    """Return a function that declares a kernel `gemm/own.<name>`, which does nothing, and returns it."""

    def of(name: str, **options: object) -> Kernel:
        kernel("gemm", provider="own", device="cpu", name=name, **options)(lambda problem, x: lambda: None)
        return registry.kernels[f"gemm/own.{name}"]

    return of
