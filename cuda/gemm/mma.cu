// C = alpha op(A) op(B) + beta C for 16-bit A and B on tensor cores, by mma.sync.m16n8k16 with sums in FP32. Operands
// come from shared memory through ldmatrix, which transposes them where the layout requires it.
//
// Tile, pipeline and preconditions: gemm/mma.cuh. 16 bytes are copied at once where the leading dimensions of A and B
// are multiples of 8; otherwise 4 bytes or, where one is odd, single elements through registers, which is slow.
// Limit: the issue of mma.sync. On Hopper it reaches about two thirds of the tensor cores' rate; the rest
// requires wgmma.
#include "gemm/mma.cuh"
#include "gemm/mma_arithmetic.cuh"
