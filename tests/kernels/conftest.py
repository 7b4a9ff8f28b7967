"""Test threads on small problems, on which kernels would use only one."""

import pytest


@pytest.fixture(autouse=True)
def _threads_on_every_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    from kernelmark.kernels import _worth

    monkeypatch.setattr(_worth, "pays", lambda problem, threads, compiled: True)
