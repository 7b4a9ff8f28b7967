"""Threads are tested on small problems, where they would not pay."""

import pytest


@pytest.fixture(autouse=True)
def _threads_on_every_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    from kernelmark.kernels import _worth

    monkeypatch.setattr(_worth, "pays", lambda problem, threads, compiled: True)
