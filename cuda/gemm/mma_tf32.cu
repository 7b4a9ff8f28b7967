// C = alpha op(A) op(B) + beta C for FP32 A and B on tensor cores in TF32, by mma.sync.m16n8k8 with sums in FP32.
//
// Tile, pipeline and preconditions: gemm/mma.cuh. Operands are rounded to the nearest TF32 in registers: mma.sync by
// itself would cut off 13 bits, and double the error of the operands. An operand that is stored along the width is read
// word by word, since ldmatrix transposes 16-bit elements only; this has no bank conflicts, but takes four instructions
// instead of one.
// Limit: the issue of mma.sync, as in gemm/mma.cu, at half of its rate.
#include "gemm/mma.cuh"
#include "gemm/mma_arithmetic.cuh"
