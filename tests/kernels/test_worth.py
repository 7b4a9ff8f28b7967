"""One thread for problems on which several would not pay, whatever was measured on a busy machine."""

from types import SimpleNamespace

import pytest

pytest.importorskip("numba")

from kernelmark.kernels import _worth
from kernelmark.kernels._worth import launch_s, pays, rates, threads_that_pay
from support.kernels import REGISTRY

PAYS = pays  # the fixture of this folder replaces it
TINY, LARGE = "conv/n1c1h2w2k1r1s1/f32/nchw/fprop", "conv/n8c256h56w56k256r3s3pad1/f32/nchw/fprop"


@pytest.mark.parametrize("compiled", [True, False])
def test_threads_pay_on_large_problems_and_not_on_tiny_ones(compiled: bool) -> None:
    found = [PAYS(REGISTRY.problem(text), 2, compiled) for text in (TINY, LARGE)]  # type: ignore[arg-type]
    assert found == [False, True]


def test_a_launch_measured_on_a_busy_machine_leaves_a_large_problem_its_threads(monkeypatch) -> None:
    rates()
    monkeypatch.setattr(_worth, "_time_s", lambda launch: 1.0)
    launch_s.cache_clear()
    try:
        assert launch_s(2, True) == _worth.MOST_S
        assert PAYS(REGISTRY.problem(LARGE), 2, True)  # type: ignore[arg-type]
    finally:
        launch_s.cache_clear()


@pytest.mark.parametrize(("pay", "expected"), [(True, 3), (False, 1)])
def test_a_kernel_is_set_up_for_one_thread_where_several_do_not_pay(pay: bool, expected: int, monkeypatch) -> None:
    monkeypatch.setattr(_worth, "pays", lambda problem, threads, compiled: pay)
    taken: list[int] = []

    @threads_that_pay()
    def set_up(problem, x):
        taken.append(x.threads)
        return lambda: None

    set_up(REGISTRY.problem(TINY), SimpleNamespace(threads=3))
    assert taken == [expected]
