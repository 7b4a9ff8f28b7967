// Shared by the TF32 kernels that pass rows to wgmma in registers. wgmma reads TF32 from shared memory only where it is
// stored along k, but rows that come from registers may have been stored either way.
#pragma once
#include "gemm/wgmma_specialised.cuh"

constexpr unsigned SQUARE = ROW_BYTES / sizeof(float), SQUARE_BYTES = SQUARE * ROW_BYTES;  // side and bytes of a box
constexpr unsigned STEP_PRODUCTS = ROW_BYTES / WGMMA_BYTES;
using Fragments = unsigned[STEP_PRODUCTS][4];  // 64 rows of a step, in a warpgroup

// The tile of an operand that is not stored along k: boxes of SQUARE k x SQUARE of the extent, of which a k has 128
// bytes, in the 128-byte swizzle.
template <unsigned EXTENT>
struct AcrossTile {
  static constexpr unsigned DEPTH = SQUARE, BYTES = EXTENT * ROW_BYTES;

  // Starts the copy of PART of the extent, as OperandTile does.
  template <unsigned PART, int CLUSTER = 1>
  static __device__ __forceinline__ void load(unsigned to, const TensorMap &map, unsigned extent, unsigned k0,
                                              unsigned product, unsigned barrier) {
#pragma unroll
    for (unsigned i = 0; i < PART / SQUARE; ++i) {
      copy_box<CLUSTER>(to + i * SQUARE_BYTES, map, extent + i * SQUARE, k0, product, barrier);
    }
  }
};

// Loads 64 rows of such a tile, from row0 on. The four lanes of a quad have neighbouring k; every other lane loads its
// two k in the other order, so that the lanes of a warp access different banks.
__device__ __forceinline__ void load_rows(Fragments &rows, const unsigned char *tile, unsigned row0) {
  const unsigned row = row0 + SumPlace::row(0), k = threadIdx.x % 4;
  const bool swaps = k % 2 == 1;
  const unsigned first = swaps ? k + 4 : k;
  const unsigned char *box = tile + row / SQUARE * SQUARE_BYTES;
  const unsigned at = first * ROW_BYTES + (row % SQUARE * unsigned(sizeof(float)) ^ first * 16);
  constexpr unsigned DOWN = 8 * sizeof(float), ON = 4 * ROW_BYTES ^ 4 * 16;  // eight rows, and four k, further
#pragma unroll
  for (unsigned i = 0; i < STEP_PRODUCTS; ++i) {
    const unsigned char *from = box + i * 8 * ROW_BYTES;
#pragma unroll
    for (unsigned half = 0; half < 2; ++half) {
      const unsigned x = *reinterpret_cast<const unsigned *>(from + (at ^ half * DOWN));
      const unsigned y = *reinterpret_cast<const unsigned *>(from + (at ^ half * DOWN ^ ON));
      rows[i][half] = swaps ? y : x;
      rows[i][2 + half] = swaps ? x : y;
    }
  }
}

// Starts the product of a step as one group: these rows, and all columns of B's tile.
template <class B, int SUMS>
__device__ __forceinline__ void start_product_of(const Fragments &rows, unsigned b, float (&sums)[SUMS], bool first) {
  const unsigned long long from_b = B::descriptor(b);
  ptx::wgmma_fence();
#pragma unroll
  for (unsigned i = 0; i < STEP_PRODUCTS; ++i) ptx::wgmma_tf32(sums, rows[i], from_b + i * B::ADVANCE, !first || i > 0);
  ptx::wgmma_commit();
}
