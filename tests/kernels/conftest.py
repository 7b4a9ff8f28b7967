"""Fixtures: kernels use all threads on small problems, too, and FFTW spends little time on plans."""

import pytest

from support.kernels import DIRECTIONS


@pytest.fixture(autouse=True)
def _threads_on_every_problem(monkeypatch):
    from kernelmark.kernels import _fftw, _worth

    monkeypatch.setattr(_worth, "pays", lambda problem, threads, compiled: True)
    monkeypatch.setattr(_fftw, "PLANNING_S", 1e-3)


@pytest.fixture(params=DIRECTIONS)
def direction(request):
    """Each direction of a convolution."""
    return str(request.param)
