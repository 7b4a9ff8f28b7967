"""Rows of two jobs that come from two machines: their ratio is a quotient of intervals, and labelled so."""

import pytest

from kernelmark.bench.report.contest import faster
from support.rows import put

PROBLEM = "gemm/m64n64k64/f32/NT"


def add(store, kernel, job, **values):
    return put(store, PROBLEM, kernel, 1e-3, {"m": 64, "n": 64, "k": 64}, job=job, **values)


@pytest.mark.parametrize(
    ("own", "other", "remark"),
    [
        ({"host": "one"}, {"host": "two"}, "not measured on one machine"),
        ({"host": "one"}, {"host": "one"}, "not measured in turn"),
        ({"host": "one"}, {}, "not measured in turn"),
        ({"device_uuid": "a"}, {"device_uuid": "b"}, "not measured on one machine"),
        ({"device_name": "a"}, {"device_name": "b"}, "not measured on one machine"),
        ({"device": "cuda", "device_name": "a"}, {"device_name": "b"}, "not measured in turn"),
    ],
)
def test_a_ratio_between_jobs_of_two_machines_is_labelled_so(begun, own, other, remark):
    first, second = add(begun, "gemm/some.a", "first", **own), add(begun, "gemm/some.b", "second", **other)
    ratio = faster(begun, first, second)
    assert ratio.remarks[0] == remark
    assert (ratio.low, ratio.high) == pytest.approx(
        (second.time_s_ci95_low / first.time_s_ci95_high, second.time_s_ci95_high / first.time_s_ci95_low)
    )
    assert ratio.scaled(2.0).over(ratio.plus(1.0)).apart == remark
    assert faster(begun, first, add(begun, "gemm/some.c", "first", **own)).apart == ""
