"""Convolution as an implicit matrix product (implicit GEMM), whose columns are never stored."""
