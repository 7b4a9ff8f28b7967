// d = x + k a b by k fused multiply-adds on each of n accumulators, with factors that are read from shared memory as in
// a matrix product: the ceiling of kernels that multiply out of shared memory.
//
// Tile: a block owns 256 x 128 accumulators, a thread every 256th of them, as the 8 x 16 sums of the largest fragment of
// the GEMM ladder (gemm/fragment.cuh). Each step reads 8 + 16 factors for 128 multiply-adds, 6 reads of 16 bytes, one
// step ahead; nothing is copied from global memory and no barrier waits. All factors are a's and b's only value, which
// the compiler cannot know, since they lie in two slots that are read in turn.
// Preconditions: x and d do not overlap; k is at most 2^19, so that every sum is exact (coarse.cuh).
// Limit: issue, shared with the reads: 6 for 128 multiply-adds.
#include "gemm/fragment.cuh"
#include "roofline/coarse.cuh"

namespace {

constexpr int WIDTH_A = 128, WIDTH_B = 256, STEPS = 8;
using Fed = Fragment<WIDTH_A, WIDTH_B, STEPS, 64, 64, 8, 16>;
constexpr unsigned SUMS = 128;

}  // namespace

__global__ void __launch_bounds__(Fed::THREADS, 1)
    ffma_fed(const float *__restrict__ x, const float *__restrict__ a, const float *__restrict__ b,
             float *__restrict__ d, unsigned n, unsigned k) {
  __shared__ __align__(16) float rows_a[2][STEPS][WIDTH_A + PAD];
  __shared__ __align__(16) float rows_b[2][STEPS][WIDTH_B + PAD];
  for (unsigned i = threadIdx.x; i < 2 * STEPS * (WIDTH_A + PAD); i += Fed::THREADS) rows_a[0][0][i] = coarse(*a);
  for (unsigned i = threadIdx.x; i < 2 * STEPS * (WIDTH_B + PAD); i += Fed::THREADS) rows_b[0][0][i] = coarse(*b);
  const unsigned first = blockIdx.x * Fed::THREADS * SUMS + threadIdx.x;
  Fed tile;
  x += first, d += first;
#pragma unroll
  for (unsigned e = 0; e < SUMS; ++e) {
    tile.sums[e / 16][e % 16] = first + e * Fed::THREADS < n ? coarse(x[e * Fed::THREADS]) : 0.0f;
  }
  __syncthreads();  // the factors are in shared memory
  Fed::Factors factors[2];
  unsigned slot = 0;
  Fed::load(factors[0], rows_a[0][0], rows_b[0][0]);
#pragma unroll 1
  for (unsigned step = 0; step < k / STEPS; ++step) {
#pragma unroll
    for (int kk = 0; kk < STEPS; ++kk) {
      if (kk + 1 == STEPS) slot ^= 1;
      Fed::load(factors[(kk + 1) % 2], rows_a[slot][(kk + 1) % STEPS], rows_b[slot][(kk + 1) % STEPS]);
      tile.multiply(factors[kk % 2]);
    }
  }
#pragma unroll 1
  for (unsigned s = 0; s < k % STEPS; ++s) {
    Fed::load(factors[0], rows_a[slot][s], rows_b[slot][s]);
    tile.multiply(factors[0]);
  }
#pragma unroll
  for (unsigned e = 0; e < SUMS; ++e) {
    if (first + e * Fed::THREADS < n) d[e * Fed::THREADS] = tile.sums[e / 16][e % 16];
  }
}
