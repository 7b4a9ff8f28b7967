// d = x + k a b by k fused multiply-adds on each of n accumulators, all in registers: the ceiling of scalar arithmetic.
//
// Tile: a block owns 256 x CHAINS accumulators, a thread every 256th of them. The CHAINS accumulators of a thread are
// independent of each other, and those of one warp suffice to cover the latency of a multiply-add (4 cycles, f64 about
// 16).
// Preconditions: x and d do not overlap; k is at most 2^19, so that every sum is exact (coarse.cuh).
// Limit: issue. CHAINS x STEPS multiply-adds share it with a branch, a counter and a comparison: under 1 %.
#include "roofline/coarse.cuh"

namespace {

constexpr unsigned THREADS = 256, CHAINS = 8, STEPS = 64;

// One step of every chain.
template <class T>
__device__ __forceinline__ void step(T (&sums)[CHAINS], T a, T b) {
#pragma unroll
  for (T &sum : sums) sum = fma(a, b, sum);
}

}  // namespace

template <class T>
__global__ void __launch_bounds__(THREADS)
    ffma(const T *__restrict__ x, const T *__restrict__ a, const T *__restrict__ b, T *__restrict__ d, unsigned n,
         unsigned k) {
  const unsigned first = blockIdx.x * THREADS * CHAINS + threadIdx.x;
  const T factor_a = coarse(*a), factor_b = coarse(*b);
  T sums[CHAINS];
  unsigned from = first, to = first;
#pragma unroll
  for (T &sum : sums) {
    sum = from < n ? coarse(x[from]) : T(0);
    from += THREADS;
  }
#pragma unroll 1
  for (unsigned i = 0; i < k / STEPS; ++i) {
#pragma unroll
    for (unsigned s = 0; s < STEPS; ++s) step(sums, factor_a, factor_b);
  }
#pragma unroll 1
  for (unsigned s = 0; s < k % STEPS; ++s) step(sums, factor_a, factor_b);
#pragma unroll
  for (const T &sum : sums) {
    if (to < n) d[to] = sum;
    to += THREADS;
  }
}
