// C = alpha op(A) op(B) + beta C in FP64 on tensor cores, by mma.sync four elements deep: m16n8k4 from compute
// capability 9.0 on, m8n8k4 before. Products are rounded as fused multiply-adds in FP64 are.
//
// Tile, pipeline and preconditions: gemm/mma.cuh. Fragments are read element by element, since ldmatrix has no matrices
// of 8-byte elements; 16 bytes are copied at once where the leading dimensions of A and B are even, otherwise 8.
// Limit: the rate of the tensor cores. In a step of 128 x 128, shared memory is busy for half as many cycles as the
// tensor cores of an H100.
#include "gemm/mma.cuh"
#include "gemm/mma_arithmetic.cuh"
