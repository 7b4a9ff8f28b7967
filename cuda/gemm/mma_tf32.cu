// C = alpha op(A) op(B) + beta C for FP32 A and B on tensor cores in TF32, by mma.sync.m16n8k8 with sums in FP32.
//
// Tile, pipeline and preconditions: gemm/mma.cuh. Operands are rounded to TF32 in registers, to the nearest: mma.sync
// by itself would cut off 13 bits, and double the error of the operands. An operand that is stored along the width is
// read word by word, since ldmatrix turns 16-bit elements only; free of bank conflicts, but four instructions for one.
// Limit: the issue of mma.sync, as in gemm/mma.cu, at half of its rate.
#include "gemm/mma.cuh"
#include "gemm/mma_arithmetic.cuh"
