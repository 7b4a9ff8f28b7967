"""The CPU's clock."""

import gc

import pytest

from kernelmark.bench.measure.timing import CpuClock, call_overhead


def test_the_overhead_of_an_empty_call_is_positive_and_small() -> None:
    assert 0 < call_overhead(CpuClock()) < 1e-5


def test_garbage_collection_is_given_back_after_a_sample_that_raises() -> None:
    def explode() -> None:
        assert not gc.isenabled()
        raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"):
        CpuClock().time([explode])
    assert gc.isenabled()
