// What the wgmma kernels share: tiles of operands in shared memory, filled by the TMA, read by wgmma.
//
// A tile is what one step along k needs of an operand: EXTENT rows of op(A) or columns of op(B), 128 bytes of k deep,
// in the 128-byte swizzle of TMA and wgmma. It lies there as the operand is stored, never transposed:
//   ALONG_K   one box of EXTENT rows, each 128 bytes of k;
//   else      boxes of 64 x 64 elements, each row 128 bytes along the extent (16-bit types only).
// In both, 64 rows or columns of the extent take 8192 bytes: the part of a tile from row or column i on begins at byte
// 128 i. Past the operand's edges the TMA writes zeros, which add nothing.
#pragma once
#include "gemm/element.cuh"
#include "gemm/wgmma_descriptor.cuh"
#include "ptx_hopper.cuh"

constexpr unsigned ROW_BYTES = 128;             // of the swizzle
constexpr unsigned ATOM_BYTES = 8 * ROW_BYTES;  // after which its pattern repeats; tiles are aligned to it
constexpr unsigned WGMMA_BYTES = 32;            // bytes of k in one wgmma
constexpr unsigned WARPGROUP = 128;             // threads
constexpr unsigned WARPGROUP_ROWS = 64;         // rows of C in one wgmma
constexpr unsigned BOX = 64;                    // elements on each side of a box that is not along k

// Starts the copy of a box from x, y and z on. CLUSTER > 1: to all blocks of the cluster.
template <int CLUSTER>
__device__ __forceinline__ void copy_box(unsigned to, const TensorMap &map, unsigned x, unsigned y, unsigned z,
                                         unsigned barrier) {
  if constexpr (CLUSTER == 1) {
    ptx::tma_load(to, &map, x, y, z, barrier);
  } else {
    ptx::tma_load_multicast(to, &map, x, y, z, barrier, (1 << CLUSTER) - 1);
  }
}

template <class T, unsigned EXTENT, bool ALONG_K>
struct OperandTile {
  static_assert(ALONG_K || sizeof(T) == 2, "wgmma takes operands of 32 and 8 bits stored along k alone");
  static constexpr unsigned DEPTH = ROW_BYTES / sizeof(T), BYTES = EXTENT * ROW_BYTES;
  static constexpr int MN_MAJOR = !ALONG_K;

  // Starts the copy of PART of the extent, from `extent` on, to `to`, where the part begins.
  template <unsigned PART, int CLUSTER = 1>
  static __device__ __forceinline__ void load(unsigned to, const TensorMap &map, unsigned extent, unsigned k0,
                                              unsigned product, unsigned barrier) {
    if constexpr (ALONG_K) {
      copy_box<CLUSTER>(to, map, k0, extent, product, barrier);
    } else {
#pragma unroll
      for (unsigned i = 0; i < PART / BOX; ++i) {
        copy_box<CLUSTER>(to + i * BOX * ROW_BYTES, map, extent + i * BOX, k0, product, barrier);
      }
    }
  }

  // The descriptor of what the first wgmma of a step reads from the part of a tile at `from`; each next one is ADVANCE
  // more. Along k, a tile is one box, and the distance between boxes is not used.
  static constexpr unsigned ADVANCE = (ALONG_K ? WGMMA_BYTES : WGMMA_BYTES / sizeof(T) * ROW_BYTES) / 16;
  static __device__ __forceinline__ unsigned long long descriptor(unsigned from) {
    return wgmma_descriptor(from, ALONG_K ? 16 : BOX * ROW_BYTES, ATOM_BYTES);
  }
};

// Starts the product of a step's tiles as one group: 64 rows of A's tile from `a` on, all of B's. The first step of a
// sum does not read `d`.
template <class T, class A, class B, class Sum, int SUMS>
__device__ __forceinline__ void start_product(Sum (&d)[SUMS], unsigned a, unsigned b, bool first) {
  const unsigned long long from_a = A::descriptor(a), from_b = B::descriptor(b);
  ptx::wgmma_fence();
#pragma unroll
  for (unsigned kk = 0; kk < ROW_BYTES / WGMMA_BYTES; ++kk) {
    Element<T>::template wgmma<A::MN_MAJOR, B::MN_MAJOR>(d, from_a + kk * A::ADVANCE, from_b + kk * B::ADVANCE,
                                                         !first || kk > 0);
  }
  ptx::wgmma_commit();
}

// Where a thread's sums lie in the 64 rows of its warpgroup: d[4 j] and d[4 j + 1] in row(0), columns 8 j + column()
// and the next, d[4 j + 2] and d[4 j + 3] in the same columns of row(1).
struct SumPlace {
  static __device__ __forceinline__ unsigned row(unsigned half) {
    return threadIdx.x % WARPGROUP / 32 * 16 + threadIdx.x % 32 / 4 + 8 * half;
  }
  static __device__ __forceinline__ unsigned column() { return threadIdx.x % 4 * 2; }
};

// Stores a warpgroup's sums, from row0 and col0 on: a quad of lanes 32 bytes of a row of FP32, or 16 of a shorter type.
template <class Out>
struct PairStore {
  Out *c;
  unsigned m, n, ldc;
  long long stride;  // of a batch
  float alpha, beta;

  template <int SUMS>
  __device__ __forceinline__ void put(const float (&sums)[SUMS], unsigned row0, unsigned col0, unsigned product) const {
    Out *own = c + product * stride;
#pragma unroll
    for (unsigned i = 0; i < SUMS / 2; ++i) {  // pairs of neighbours
      const unsigned row = row0 + SumPlace::row(i % 2), col = col0 + i / 2 * 8 + SumPlace::column();
      const unsigned inside = pair_inside(row, col, m, n);
      store_scaled_pair(own + offset<Op::N>(row, col, ldc), make_float2(sums[2 * i], sums[2 * i + 1]), inside, alpha,
                        beta);
    }
  }
  __device__ __forceinline__ void finish() const {}
};

// The thread's warpgroup, broadcast from one lane: the compiler then keeps what depends on it in uniform registers,
// from which wgmma takes its descriptors.
__device__ __forceinline__ unsigned warpgroup_index() {
  return __shfl_sync(0xffffffff, threadIdx.x / WARPGROUP, 0);
}

// The first address in dynamic shared memory to which a tile may be aligned; the launch asks for ATOM_BYTES more.
__device__ __forceinline__ unsigned aligned_to_atom(const void *smem) {
  return (ptx::smem_address(smem) + ATOM_BYTES - 1) / ATOM_BYTES * ATOM_BYTES;
}
