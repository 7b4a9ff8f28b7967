// C = alpha op(A) op(B) + beta C for FP32 A and B on tensor cores, about as exact as in FP32: x = big + small, both in
// TF32, and a product is small big + big small + big big. What is dropped, small small, is below 2^-22 of it.
//
// Tile, pipeline and preconditions: gemm/mma.cuh; the layouts as in gemm/mma_tf32.cu.
// Sums: tensor cores truncate what they add to an accumulator. Such errors all point towards zero and grow as k does,
// where those of rounding grow as its root: over some thousand additions they would be far above FP32's own. Each
// product of depth 8 therefore starts from zero, the small terms first while nothing large is there to cut them, and
// joins the sums by an addition in FP32, which rounds to nearest. That also makes the chain of additions 8 times
// shorter than a dot product's in FP32.
// Limit: three products of tensor cores for one; additions and splitting run beside them. Infinities, and the last 2^115
// below them, which TF32 rounds up to infinity, become NaN as they are split.
#include "gemm/mma.cuh"
#include "gemm/mma_arithmetic.cuh"
