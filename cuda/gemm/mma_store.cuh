// How a warp's sums are stored to C. mma.sync leaves two neighbours in a lane, which as 16-bit elements would fill half
// a sector. A row of the warp's tile therefore goes through shared memory, and leaves in packs of 16 bytes from
// neighbouring lanes.
#pragma once
#include "common.cuh"
#include "gemm/pack.cuh"

// 16 rows of a warp's tile, WN columns wide. PITCH puts the four rows that are written at once into different banks.
template <int WN>
struct Stripe {
  static constexpr unsigned PITCH = WN + 8, FLOATS = 16 * PITCH;

  // Writes the sums of the products of 16 x 16, each two accumulators of m16n8k16 or m16n8k8 side by side.
  static __device__ __forceinline__ void put(float *stripe, const float (&sums)[WN / 16][2][4]) {
    const unsigned lane_id = threadIdx.x % 32;
    float *mine = stripe + lane_id / 4 * PITCH + lane_id % 4 * 2;
#pragma unroll
    for (int j = 0; j < WN / 8; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float *pair = &sums[j / 2][j % 2][2 * half];
        *reinterpret_cast<float2 *>(mine + half * 8 * PITCH + 8 * j) = make_float2(pair[0], pair[1]);
      }
  }

  // Scales and stores the stripe, whose first element is at row0, col0 of C, V elements at once: V > 1 requires ldc and
  // n to be multiples of V, so that a pack lies wholly inside C or wholly outside. C is not read where beta is 0.
  template <int V, class T>
  static __device__ __forceinline__ void store(const float *stripe, T *c, unsigned row0, unsigned col0, unsigned m,
                                               unsigned n, unsigned ldc, float alpha, float beta) {
    constexpr unsigned ACROSS = WN / V < 32 ? WN / V : 32, ROWS = 32 / ACROSS;  // lanes in a row, rows at once
    const unsigned lane_id = threadIdx.x % 32;
#pragma unroll
    for (unsigned i = lane_id / ACROSS; i < 16; i += ROWS)
#pragma unroll
      for (unsigned j = lane_id % ACROSS * V; j < WN; j += ACROSS * V) {
        if (row0 + i >= m || col0 + j >= n) continue;
        auto *to = reinterpret_cast<Pack<T, V> *>(&c[offset<Op::N>(row0 + i, col0 + j, ldc)]);
        const auto products = *reinterpret_cast<const Pack<float, V> *>(&stripe[i * PITCH + j]);
        Pack<T, V> values;
        if (beta != 0.0f) values = *to;
#pragma unroll
        for (int e = 0; e < V; ++e)
          values.e[e] = T(beta == 0.0f ? alpha * products.e[e] : alpha * products.e[e] + beta * float(values.e[e]));
        *to = values;
      }
  }
};
