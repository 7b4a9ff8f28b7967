"""Globs over the ids of kernels."""

import pytest

from kernelmark.bench.plan.globs import matches


@pytest.mark.parametrize(
    ("name", "glob", "does"),
    [
        ("gemm/own.tuned@BM=16", "gemm/own.tuned", True),
        ("gemm/own.tuned@BM=16", "*.tuned@BM=*", True),
        ("gemm/own.tuned@BM=16", "*@BM=32", False),
        ("gemm/own.tuned", "gemm/own.tuned@*", False),
    ],
)
def test_a_glob_without_a_tile_matches_rows_of_every_tile(name, glob, does):
    assert matches(name, (glob,)) is does
