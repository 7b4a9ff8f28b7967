// C = alpha op(A) op(B) + beta C for 16-bit A and B on tensor cores, by mma.sync.m16n8k16 with sums in FP32: the
// operands come from shared memory through ldmatrix, turned on the way where the layout wants it.
//
// Tile, pipeline and preconditions: gemm/mma.cuh. 16 bytes are copied at once where the leading dimensions of A and B
// are multiples of 8; else 4 bytes or, where one is odd, single elements through registers, which is slow.
// Limit: the issue of mma.sync. On Hopper that reaches about two thirds of the tensor cores' rate, and wgmma the rest.
#include "gemm/mma.cuh"
#include "gemm/mma_arithmetic.cuh"
