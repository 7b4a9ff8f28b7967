// How a warpgroup's sums become C. They go through shared memory, 64 rows x 128 bytes at a time, from where the TMA
// stores whole rows, never past C's edges, while the warpgroup writes the next part into another buffer.
//
// A buffer has the TMA's 128-byte swizzle: the place of each 16 bytes of row r is XORed with r % 8. The eight rows that
// a warp writes at a time then lie in different banks (with FP32, two of them share one).
#pragma once
#include "gemm/wgmma.cuh"

template <class Out>
struct TileStore {
  static constexpr unsigned COLUMNS = ROW_BYTES / sizeof(Out), BUFFER_BYTES = WARPGROUP_ROWS * ROW_BYTES, BUFFERS = 2;
  static constexpr unsigned MINE = WARPGROUP_ROWS * COLUMNS / WARPGROUP;  // sums of a buffer, per thread
  using Pair = typename Element<Out>::Pair;
  const TensorMap &map;
  const Out *c;  // read where beta is not 0
  unsigned m, n, ldc;
  long long stride;  // of a batch
  float alpha, beta;
  unsigned char *buffers;  // BUFFERS of them
  unsigned barrier;        // a named one, of this warpgroup alone
  unsigned turn = 0;

  // Stores the sums of 64 rows from row0 on and of 2 SUMS columns from col0 on; all threads of the warpgroup call it.
  template <unsigned SUMS>
  __device__ __forceinline__ void put(const float (&sums)[SUMS], unsigned row0, unsigned col0, unsigned product) {
#pragma unroll
    for (unsigned part = 0; part < SUMS / MINE; ++part, turn ^= 1) {
      const unsigned col = col0 + part * COLUMNS;
      unsigned char *buffer = buffers + turn * BUFFER_BYTES;
#pragma unroll
      for (unsigned i = 0; i < MINE / 2; ++i) {  // pairs of neighbours
        const unsigned row = SumPlace::row(i % 2), column = i / 2 * 8 + SumPlace::column();
        const float *both = &sums[part * MINE + 2 * i];
        const Pair pair = scaled(both[0], both[1], row0 + row, col + column, product);
        *reinterpret_cast<Pair *>(buffer + swizzled(row, column * sizeof(Out))) = pair;
      }
      ptx::fence_proxy_async();
      if (leads()) ptx::tma_store_wait_read<0>();  // the other buffer is free for what comes next
      ptx::named_barrier_sync(barrier, WARPGROUP);
      if (leads()) {
        ptx::tma_store(&map, ptx::smem_address(buffer), col, row0, product);
        ptx::tma_store_commit();
      }
    }
  }

  // Waits for the stores before the shared memory is released.
  __device__ __forceinline__ void finish() const {
    if (leads()) ptx::tma_store_wait_read<0>();
  }

 private:
  static __device__ __forceinline__ bool leads() { return threadIdx.x % WARPGROUP == 0; }

  static __device__ __forceinline__ unsigned swizzled(unsigned row, unsigned byte) {
    return row * ROW_BYTES + (byte ^ row % 8 * 16);
  }

  __device__ __forceinline__ Pair scaled(float x, float y, unsigned row, unsigned col, unsigned product) const {
    const unsigned inside = pair_inside(row, col, m, n);
    const Out *held = c + product * stride + offset<Op::N>(row, col, ldc);
    return Element<Out>::pair(scaled_pair(held, make_float2(x, y), inside, alpha, beta));
  }
};
