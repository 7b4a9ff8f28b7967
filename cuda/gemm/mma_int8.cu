// C = A B^T of 8-bit integers on tensor cores, by mma.sync.m16n8k32 with sums in 32 bits, which must hold every sum.
// alpha is 1 and beta 0.
//
// Tile, pipeline and preconditions: gemm/mma.cuh. A and B are stored along k, since ldmatrix turns no bytes. 16 bytes
// are copied at once where the leading dimensions of A and B are multiples of 16; otherwise 4 bytes or, where one is no
// multiple of 4, single elements through registers, which is slow.
// Limit: the issue of mma.sync, as in 16 bits (gemm/mma.cu).
#include "gemm/mma.cuh"
#include "gemm/mma_arithmetic.cuh"
