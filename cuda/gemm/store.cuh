// How a warpgroup's sums become C: it writes them to buffers of 64 rows x 128 bytes in shared memory, and the TMA
// stores these, each row up to C's edge or the next 16 bytes, while the warpgroup multiplies the next tile. With a
// buffer for each part of a tile it waits once per tile, for stores that had a whole product's time to read theirs.
//
// A buffer has the TMA's 128-byte swizzle: the place of each 16 bytes of row r is XORed with r % 8. The eight rows that
// a warp writes at a time then lie in different banks. With 32-bit elements a row's part is 32 bytes, and half a warp
// writes at a time: of its four rows every other one writes the columns 16 further on first.
#pragma once
#include "gemm/wgmma.cuh"

// What a warpgroup's stores need, and the order of their steps.
template <class Out>
struct PartsStore {
  static constexpr unsigned BUFFER_BYTES = WARPGROUP_ROWS * ROW_BYTES;
  const TensorMap &map;
  const Out *c;  // read where beta is not 0
  unsigned m, n, ldc;
  long long stride;  // of a batch
  float alpha, beta;
  unsigned char *buffers;
  unsigned barrier;  // a named one, of this warpgroup alone

  // Waits for the stores before the shared memory is released.
  __device__ __forceinline__ void finish() const {
    if (leads()) ptx::tma_store_wait_read<0>();
  }

  // Stores PARTS parts, AT_ONCE at a time: fill(i, part) writes a part to place i, store(i, part) stores from there.
  template <unsigned PARTS, unsigned AT_ONCE, class Fill, class Store>
  __device__ __forceinline__ void in_parts(Fill fill, Store store) const {
#pragma unroll
    for (unsigned first = 0; first < PARTS; first += AT_ONCE) {
      if (leads()) ptx::tma_store_wait_read<0>();
      ptx::named_barrier_sync(barrier, WARPGROUP);  // the buffers are free
#pragma unroll
      for (unsigned i = 0; i < AT_ONCE; ++i) {
        fill(i, first + i);
        ptx::fence_proxy_async();  // one for all would do, but lets the compiler mix the parts and spill registers
      }
      ptx::named_barrier_sync(barrier, WARPGROUP);  // and now they are full
      if (!leads()) continue;
#pragma unroll
      for (unsigned i = 0; i < AT_ONCE; ++i) store(i, first + i);
      ptx::tma_store_commit();
    }
  }

  // Starts the store of a buffer to C's columns from col and rows from row on.
  __device__ __forceinline__ void store(unsigned buffer, unsigned col, unsigned row, unsigned product) const {
    ptx::tma_store(&map, ptx::smem_address(buffers + buffer * BUFFER_BYTES), col, row, product);
  }

 private:
  static __device__ __forceinline__ bool leads() { return threadIdx.x % WARPGROUP == 0; }
};

template <class Out, unsigned BN>
struct TileStore : PartsStore<Out> {
  using Base = PartsStore<Out>;
  static constexpr unsigned COLUMNS = ROW_BYTES / sizeof(Out);
  static constexpr unsigned PARTS = BN / COLUMNS, BUFFERS = PARTS < 4 ? PARTS : 4;
  static constexpr unsigned MINE = WARPGROUP_ROWS * COLUMNS / WARPGROUP;  // sums of a buffer, per thread
  using Pair = typename Element<Out>::Pair;
  using Sum = typename Element<Out>::Sum;

  // Stores the sums of 64 rows from row0 on and of BN columns from col0 on; all threads of the warpgroup call it.
  __device__ __forceinline__ void put(const Sum (&sums)[BN / 2], unsigned row0, unsigned col0,
                                      unsigned product) const {
    Base::template in_parts<PARTS, BUFFERS>(
        [&](unsigned i, unsigned part) { fill(i, &sums[part * MINE], row0, col0 + part * COLUMNS, product); },
        [&](unsigned i, unsigned part) { Base::store(i, col0 + part * COLUMNS, row0, product); });
  }

 private:
  // Writes a part of the sums to a buffer, pairs of neighbours at a time.
  __device__ __forceinline__ void fill(unsigned buffer, const Sum *sums, unsigned row0, unsigned col0,
                                       unsigned product) const {
    const bool other = sizeof(Out) == 4 && threadIdx.x / 4 % 2 == 1;
#pragma unroll
    for (unsigned i = 0; i < MINE / 2; ++i) {
      const unsigned j = i ^ 4;  // 16 columns from i, with FP32
      const unsigned row = SumPlace::row(i % 2), column = (other ? j : i) / 2 * 8 + SumPlace::column();
      const Sum x = other ? sums[2 * j] : sums[2 * i], y = other ? sums[2 * j + 1] : sums[2 * i + 1];
      const Pair pair = scaled(x, y, row0 + row, col0 + column, product);
      unsigned char *to = Base::buffers + buffer * Base::BUFFER_BYTES + swizzled(row, column * sizeof(Out));
      *reinterpret_cast<Pair *>(to) = pair;
    }
  }

  static __device__ __forceinline__ unsigned swizzled(unsigned row, unsigned byte) {
    return row * ROW_BYTES + (byte ^ row % 8 * 16);
  }

  __device__ __forceinline__ Pair scaled(Sum x, Sum y, unsigned row, unsigned col, unsigned product) const {
    const unsigned inside = pair_inside(row, col, Base::m, Base::n);
    const Out *held = Base::c + product * Base::stride + offset<Op::N>(row, col, Base::ldc);
    const typename Element<Out>::SumPair sums{x, y};
    return Element<Out>::pair(scaled_pair(held, sums, inside, Base::alpha, Base::beta));
  }
};
