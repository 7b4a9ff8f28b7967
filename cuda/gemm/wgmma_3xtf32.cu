// C = alpha A B^T + beta C for FP32 A and B on the tensor cores of Hopper, about as exact as in FP32: x = big + small,
// both in TF32, and a product is small big + big small + big big (gemm/mma_3xtf32.cu). Warp-specialised
// (gemm/wgmma_specialised.cuh).
//
// wgmma reads both operands from shared memory and ignores the last 13 bits of each element: the slots of the ring, as
// they have arrived, are the big parts. These are thus cut off, not rounded, and need not be written back; the dropped
// term, small small, can be 2^-20 of a product, four times as much as in gemm/mma_3xtf32.cu. While a step's products
// run, the multiplying warpgroups write the next slot's small parts to one of three further slots, each for its own
// rows of A and for half of B. REGISTERS: rows of A are split in registers, from which wgmma takes them too.
// Sums: each step's products start from zero, with the small terms first, and are added to the sums in FP32
// (gemm/wgmma_promoted.cuh), for the reason that gemm/mma_3xtf32.cu has.
// Preconditions: sm_90a; A and B are stored along k, and stored rows of A, B and C begin at multiples of 16 bytes.
// Limit: shared memory, from which three products and the split read; then the tensor cores, at a third of their rate.
// Infinities become NaN as they are split.
#include "gemm/wgmma_promoted.cuh"
#include "ptx.cuh"

constexpr unsigned SMALL_SLOTS = 3;  // for what the big parts leave out

// The small part of x: the 13 bits that TF32 cuts off, themselves in TF32.
__device__ __forceinline__ float cut_off(float x) {
  return __uint_as_float(ptx::to_tf32(x - __uint_as_float(__float_as_uint(x) & 0xffffe000)));
}

// Writes the small parts of BYTES of a tile; all threads of a warpgroup call it.
template <unsigned BYTES>
__device__ __forceinline__ void write_cut_off(unsigned char *to, const unsigned char *from) {
#pragma unroll
  for (unsigned first = 0; first < BYTES; first += WARPGROUP * sizeof(float4)) {
    const unsigned at = first + threadIdx.x % WARPGROUP * sizeof(float4);
    const float4 x = *reinterpret_cast<const float4 *>(from + at);
    *reinterpret_cast<float4 *>(to + at) = make_float4(cut_off(x.x), cut_off(x.y), cut_off(x.z), cut_off(x.w));
  }
}

// Multiplies a slice in three products, after both multiplying warpgroups have split each slot. tiles: where the ring
// is. Small parts have three slots: while this warpgroup writes those of a step, those of the step before are
// multiplied, and the other warpgroup may still multiply those of the step before that.
template <unsigned STAGES>
struct InThreeProducts {
  unsigned char *tiles;
  unsigned next = 0;  // slot for small parts

  template <class Work, int SUMS>
  __device__ __forceinline__ void operator()(const Work &work, float (&sums)[SUMS], unsigned steps, Turn<STAGES> &turn,
                                             const Patch &patch) {
    InTurn<3>::multiply(work, sums, steps, turn, [&](float(&product)[SUMS], const Turn<STAGES> &now) {
      const unsigned big = now.slot * Work::SLOT_BYTES, small = (STAGES + next) * Work::SLOT_BYTES;
      work.wait(now);
      split<Work>(small, big, patch.warpgroup);
      ptx::fence_proxy_async();
      ptx::named_barrier_sync(1, CONSUMERS * WARPGROUP);  // both have split it; products of two steps ago are done
      multiply<Work>(product, work.tiles + small, work.tiles + big, true, patch.warpgroup);
      multiply<Work>(product, work.tiles + big, work.tiles + small, false, patch.warpgroup);
      multiply<Work>(product, work.tiles + big, work.tiles + big, false, patch.warpgroup);
      next = next == SMALL_SLOTS - 1 ? 0 : next + 1;
      return AsTheyAre{};
    });
  }

 private:
  // This warpgroup's rows of A, and its half of B.
  template <class Work>
  __device__ __forceinline__ void split(unsigned small, unsigned big, unsigned warpgroup) const {
    constexpr unsigned A_SHARE = Work::A::BYTES / CONSUMERS, B_SHARE = Work::B::BYTES / CONSUMERS;
    const unsigned a = warpgroup * A_SHARE, b = Work::A::BYTES + warpgroup * B_SHARE;
    write_cut_off<A_SHARE>(tiles + small + a, tiles + big + a);
    write_cut_off<B_SHARE>(tiles + small + b, tiles + big + b);
  }

  // Starts the product of A in one slot and B in another.
  template <class Work, int SUMS>
  static __device__ __forceinline__ void multiply(float (&product)[SUMS], unsigned slot_a, unsigned slot_b, bool first,
                                                  unsigned warpgroup) {
    start_product<float, typename Work::A, typename Work::B>(
        product, slot_a + warpgroup * WARPGROUP_ROWS * ROW_BYTES, slot_b + Work::A::BYTES, first);
  }
};

// The same with A split in registers: shared memory is read less, and has the small parts of B alone, in one slot for
// each slot of the ring. A thread holds the rows of A of two steps, and two arrays of products, each of half of the
// columns: one is added to the sums while the tensor cores fill the other.
template <unsigned STAGES>
struct FromRegisters {
  static constexpr unsigned PRODUCTS = ROW_BYTES / WGMMA_BYTES;  // of a step
  struct Rows {
    unsigned big[PRODUCTS][4], small[PRODUCTS][4];
  };
  unsigned char *tiles;

  template <class Work, int SUMS>
  __device__ __forceinline__ void operator()(const Work &work, float (&sums)[SUMS], unsigned steps, Turn<STAGES> &turn,
                                             const Patch &patch) const {
    Rows even, odd;
    float left[SUMS / 2], right[SUMS / 2];
#pragma unroll
    for (int i = 0; i < SUMS; ++i) sums[i] = right[i / 2] = 0.0f;
    const auto add = [&](const float(&products)[SUMS / 2], int first) {
#pragma unroll
      for (int i = 0; i < SUMS / 2; ++i) sums[first + i] += products[i];
    };
    unsigned last = STAGES;  // none
    const auto next = [&](Rows &rows) {
      const unsigned small = work.tiles + prepare(work, rows, turn, patch.warpgroup);
      const unsigned big = work.tiles + turn.slot * Work::SLOT_BYTES + Work::A::BYTES;
      start<Work>(left, rows, big, small);
      ptx::wgmma_wait<1>();
      if (last < STAGES) work.release(last);
      add(right, SUMS / 2);
      start<Work>(right, rows, big + Work::B::BYTES / 2, small + Work::B::BYTES / 2);
      ptx::wgmma_wait<1>();
      add(left, 0);
      last = turn.slot;
      turn.next();
    };
    const auto finish = [&] {
      ptx::wgmma_wait<0>();
      work.release(last);
      add(right, SUMS / 2);
    };
    // Whole pairs of steps, and a separate end for each case: otherwise ptxas serialises all products (C7514).
    for (; steps > 1; steps -= 2) {
      next(even);
      next(odd);
    }
    if (steps == 1) {
      next(even);
      finish();
    } else {
      finish();
    }
  }

 private:
  // Splits a step, once it has arrived. Returns where the small parts of B begin.
  template <class Work>
  __device__ __forceinline__ unsigned prepare(const Work &work, Rows &rows, const Turn<STAGES> &turn,
                                              unsigned warpgroup) const {
    constexpr unsigned SHARE = Work::B::BYTES / CONSUMERS;
    const unsigned from = turn.slot * Work::SLOT_BYTES, small = STAGES * Work::SLOT_BYTES + turn.slot * Work::B::BYTES;
    work.wait(turn);
    write_cut_off<SHARE>(tiles + small + warpgroup * SHARE, tiles + from + Work::A::BYTES + warpgroup * SHARE);
    const unsigned row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;  // of the block
    const unsigned own = from + row * ROW_BYTES + row % 8 * 16 + threadIdx.x % 4 * unsigned(sizeof(float));
#pragma unroll
    for (unsigned i = 0; i < 4 * PRODUCTS; ++i) {  // four k to each 16 bytes, which are swizzled
      const float x = *reinterpret_cast<const float *>(tiles + (own ^ i / 2 * 16) + i % 2 * 8 * ROW_BYTES);
      rows.big[i / 4][i % 4] = __float_as_uint(x);
      rows.small[i / 4][i % 4] = __float_as_uint(cut_off(x));
    }
    ptx::fence_proxy_async();
    ptx::named_barrier_sync(1, CONSUMERS * WARPGROUP);  // both have split the slot
    return small;
  }

  // Starts the three products of rows and half of the columns as one group. big, small: of B.
  template <class Work, int SUMS>
  static __device__ __forceinline__ void start(float (&products)[SUMS], const Rows &rows, unsigned big,
                                               unsigned small) {
    const auto multiply = [&](const unsigned(&a)[PRODUCTS][4], unsigned long long b, bool first) {
#pragma unroll
      for (unsigned i = 0; i < PRODUCTS; ++i) {
        ptx::wgmma_tf32(products, a[i], b + i * Work::B::ADVANCE, !first || i > 0);
      }
    };
    ptx::wgmma_fence();
    multiply(rows.small, Work::B::descriptor(big), true);
    multiply(rows.big, Work::B::descriptor(small), false);
    multiply(rows.big, Work::B::descriptor(big), false);
    ptx::wgmma_commit();
  }
};

template <unsigned BN, unsigned STAGES, unsigned CLUSTER, bool REGISTERS>
__global__ void __launch_bounds__(3 * WARPGROUP, 1)
    gemm_wgmma_3xtf32(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, float *c,
                      unsigned m, unsigned n, unsigned k, unsigned products, float alpha, float beta, unsigned ldc,
                      long long stride_c) {
  using Work = Specialised<float, BN, STAGES, CLUSTER, Op::N, Op::T>;
  __shared__ unsigned long long arrived[STAGES], free[STAGES];
  DYN_SHARED(unsigned char, smem);
  const unsigned tiles = aligned_to_atom(smem), steps = (k + Work::A::DEPTH - 1) / Work::A::DEPTH;
  const Work work{map_a,
                  map_b,
                  {(m + CLUSTER * BM - 1) / (CLUSTER * BM), (n + BN - 1) / BN},
                  {steps, steps, 1},
                  products,
                  tiles,
                  ptx::smem_address(arrived),
                  ptx::smem_address(free)};
  unsigned char *ring = smem + (tiles - ptx::smem_address(smem));
  const auto store_of = [&](unsigned) { return PairStore<float>{c, m, n, ldc, stride_c, alpha, beta}; };
  if constexpr (REGISTERS) {
    work.run(FromRegisters<STAGES>{ring}, store_of);
  } else {
    work.run(InThreeProducts<STAGES>{ring}, store_of);
  }
}
