// How a warp's sums are stored to C. mma.sync leaves two neighbours in a lane, which as 16-bit elements would fill half
// a sector. A row of the warp's tile therefore goes through shared memory, and leaves in packs of 16 bytes from
// neighbouring lanes.
#pragma once
#include "common.cuh"
#include "gemm/pack.cuh"

// Two neighbours as one access.
__device__ __forceinline__ float2 together(float x, float y) { return make_float2(x, y); }
__device__ __forceinline__ double2 together(double x, double y) { return make_double2(x, y); }
__device__ __forceinline__ int2 together(int x, int y) { return make_int2(x, y); }

// 16 rows of a warp's tile, WN columns wide. PITCH puts the four rows that are written at once into different banks.
template <int WN, class Sum = float>
struct Stripe {
  static constexpr unsigned PITCH = WN + 8, ELEMENTS = 16 * PITCH;

  // Writes the sums of the products of 16 x 16, each two accumulators 16 rows high side by side.
  static __device__ __forceinline__ void put(Sum *stripe, const Sum (&sums)[WN / 16][2][4]) {
    const unsigned lane_id = threadIdx.x % 32;
    Sum *mine = stripe + lane_id / 4 * PITCH + lane_id % 4 * 2;
#pragma unroll
    for (int j = 0; j < WN / 8; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const Sum *pair = &sums[j / 2][j % 2][2 * half];
        const auto both = together(pair[0], pair[1]);
        *reinterpret_cast<decltype(together(Sum(), Sum())) *>(mine + half * 8 * PITCH + 8 * j) = both;
      }
  }

  // Scales and stores the stripe, whose first element is at row0, col0 of C, V elements at once: V > 1 requires ldc and
  // n to be multiples of V, so that a pack lies wholly inside C or wholly outside. C is not read where beta is 0.
  template <int V, class T>
  static __device__ __forceinline__ void store(const Sum *stripe, T *c, unsigned row0, unsigned col0, unsigned m,
                                               unsigned n, unsigned ldc, Sum alpha, Sum beta) {
    constexpr unsigned ACROSS = WN / V < 32 ? WN / V : 32, ROWS = 32 / ACROSS;  // lanes in a row, rows at once
    const unsigned lane_id = threadIdx.x % 32;
#pragma unroll
    for (unsigned i = lane_id / ACROSS; i < 16; i += ROWS)
#pragma unroll
      for (unsigned j = lane_id % ACROSS * V; j < WN; j += ACROSS * V) {
        if (row0 + i >= m || col0 + j >= n) continue;
        auto *to = reinterpret_cast<Pack<T, V> *>(&c[offset<Op::N>(row0 + i, col0 + j, ldc)]);
        const auto products = *reinterpret_cast<const Pack<Sum, V> *>(&stripe[i * PITCH + j]);
        Pack<T, V> values;
        if (beta != 0) values = *to;
#pragma unroll
        for (int e = 0; e < V; ++e)
          values.e[e] = T(beta == 0 ? alpha * products.e[e] : alpha * products.e[e] + beta * Sum(values.e[e]));
        *to = values;
      }
  }
};
