"""Cold is held to hot, and a copy that asks to stay in L2 to one that does not."""

from types import SimpleNamespace

import pytest

from kernelmark.bench.selftest import cold


def test_cold_against_hot_is_the_ratio_of_both_turns():
    assert cold.slower([3.0, 5.0], [2.0, 2.0]) == ("cold: a copy of 1 MB, cold against hot", *_cold("2.00", True))
    assert cold.slower([3.0, 4.9], [2.0, 2.0]).holds is False


def _cold(ratio_: str, holds: bool) -> tuple[str, str, bool]:
    return f"{ratio_} times slower (4e+06 us, hot 2e+06 us)", "at least 2", holds


@pytest.mark.parametrize(("asking", "holds"), [(1.0, True), (0.96, True), (0.9, False)])
def test_a_copy_that_asks_to_stay_in_l2_may_not_be_faster_for_it(asking, holds):
    rows = [SimpleNamespace(interval=SimpleNamespace(median=median)) for median in (1.0, asking)]
    assert cold.persisting(*rows).holds is holds
