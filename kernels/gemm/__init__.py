"""GEMM: C = alpha op(A) op(B) + beta C."""
