// C = alpha op(A) op(B) + beta C for FP32 A and B on tensor cores, about as exact as in FP32: x = big + small, both in
// TF32, and a product is small big + big small + big big. The term small small, below 2^-22 of it, is dropped.
//
// Tile, pipeline and preconditions: gemm/mma.cuh; the layouts as in gemm/mma_tf32.cu.
// Sums: tensor cores truncate what they add to an accumulator. Such errors all point towards zero and grow with k,
// whereas rounding errors grow with its square root: over some thousand additions they would be far above those of
// FP32. Each product of depth 8 therefore starts from zero, with the small terms first while there is nothing large to
// truncate them, and is added to the sums in FP32, which rounds to nearest. This also makes the chain of additions 8
// times shorter than that of a dot product in FP32.
// Limit: three tensor-core products for one; additions and splitting run beside them. Infinities, and the last 2^115
// below them, which TF32 rounds up to infinity, become NaN as they are split.
#include "gemm/mma.cuh"
#include "gemm/mma_arithmetic.cuh"
