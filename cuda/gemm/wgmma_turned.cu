// C = alpha op(A) op(B) + beta C for FP32 A and B as TF32, neither of which is stored along k (TN), on the tensor cores
// of Hopper, warp-specialised (gemm/wgmma_specialised.cuh).
//
// Rows go through registers (gemm/wgmma_rows.cuh). Columns are turned, that is transposed, in shared memory, in place:
// while a step is multiplied, the three warps that load nothing turn the next step's boxes, 4 x 4 elements per thread.
// Tile: as there, but with 256 rows, 128 of them for each warpgroup, in two halves, so that fewer columns are turned
// for each multiply-add; results are stored by TMA (gemm/store.cuh).
// Ring: barrier `turned` completes when a slot's columns lie along k, for wgmma to read.
// Preconditions: sm_90a; stored rows of A, B and C begin at multiples of 16 bytes, and those of C end there.
// Limit: shared memory. A step of 256 x 128 takes 1408 wavefronts: the TMA writes 256 + 128 of them, rows are read in
// 256, columns turned in 128 + 128 and read by wgmma in 512. The tensor cores need 1024 cycles.
#include "gemm/store.cuh"
#include "gemm/wgmma_rows.cuh"

constexpr unsigned HALVES = 2;   // of a warpgroup's rows
constexpr unsigned TURNERS = 3;  // warps
constexpr unsigned PART = 16;    // columns that a warp turns at a time

// What the tiles are loaded from: matrices that are stored along their rows and columns. A tile of B that has been
// turned lies as if it had been stored along k.
template <unsigned BN>
struct AcrossMatrices : Matrices<float, BN, Op::N, Op::T> {
  using Base = Matrices<float, BN, Op::N, Op::T>;
  using A = AcrossTile<HALVES * BM>;
  static constexpr int REGISTERS = 56;

  template <unsigned SHARE, unsigned CLUSTER>
  __device__ __forceinline__ void load(typename Base::Place &place, unsigned a, unsigned b, unsigned barrier) const {
    A::template load<HALVES * BM>(a, this->map_a, place.row0, place.k0, place.product, barrier);
    AcrossTile<BN>::template load<SHARE, CLUSTER>(b, this->map_b, place.col0, place.k0, place.product, barrier);
    place.k0 += A::DEPTH;
  }
};

// Turns a part of a box: half of its 8 x 8 quads of 4 k x 4 columns, one per lane. Quads (k, column) and (column, k)
// change places. Both have the same k ^ column and thus belong to the same warp, which only overwrites what it has
// read. Eight lanes at a time access all banks, as they read and as they write, since both follow the swizzle.
__device__ __forceinline__ void turn_part(unsigned char *box, unsigned part) {
  const unsigned lane = threadIdx.x % 32, k = lane % 8, column = k ^ (part * 4 + lane / 8);
  const auto place = [](unsigned down, unsigned right) {  // of the first row of a quad
    return down * 4 * ROW_BYTES + (right ^ down % 2 * 4) * 16;
  };
  const auto at = [&](unsigned quad, unsigned row) {
    return reinterpret_cast<float4 *>(box + (quad ^ row * (ROW_BYTES + 16)));
  };
  const unsigned from = place(k, column), to = place(column, k);
  const float4 x = *at(from, 0), y = *at(from, 1), z = *at(from, 2), w = *at(from, 3);
  __syncwarp();  // all lanes have read what is overwritten below
  *at(to, 0) = make_float4(x.x, y.x, z.x, w.x);
  *at(to, 1) = make_float4(x.y, y.y, z.y, w.y);
  *at(to, 2) = make_float4(x.z, y.z, z.z, w.z);
  *at(to, 3) = make_float4(x.w, y.w, z.w, w.w);
}

// All slots of a block's tiles, by warps beside the one that loads. tiles: where the ring is.
template <unsigned BN, unsigned STAGES>
struct TurnColumns {
  unsigned char *tiles;
  unsigned turned;  // address in shared memory

  template <class Work>
  __device__ __forceinline__ void operator()(const Work &work) const {
    Turn<STAGES> now;
    for (unsigned tile = work.first(); tile < work.order.count(work.units); tile += work.stride()) {
      for (unsigned step = 0; step < work.slices.steps; ++step, now.next()) {
        unsigned char *columns = tiles + now.slot * Work::SLOT_BYTES + Work::A::BYTES;
        work.wait(now);
        for (unsigned i = threadIdx.x % WARPGROUP / 32 - 1; i < BN / PART; i += TURNERS) {
          turn_part(columns + i / 2 * SQUARE_BYTES, i % 2);
        }
        ptx::fence_proxy_async();
        __syncwarp();
        if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(turned + 8 * now.slot);
      }
    }
  }
};

// A slice whose rows go through registers, half of them while the products of the other half run.
struct InHalves {
  const unsigned char *tiles;
  unsigned turned;

  template <class Work, int SUMS, unsigned STAGES>
  __device__ __forceinline__ void operator()(const Work &work, float (&sums)[SUMS], unsigned steps, Turn<STAGES> &now,
                                             const Patch &patch) const {
    const unsigned warpgroup = patch.warpgroup;
    auto &halves = reinterpret_cast<float(&)[HALVES][SUMS / HALVES]>(sums);
    Fragments upper, lower;
    unsigned last = 0;
    for (unsigned step = 0; step < steps; ++step, now.next()) {
      const unsigned slot = now.slot * Work::SLOT_BYTES, b = work.tiles + slot + Work::A::BYTES;
      const unsigned row0 = warpgroup * HALVES * WARPGROUP_ROWS;
      work.wait(now);
      load_rows(upper, tiles + slot, row0);
      ptx::mbarrier_wait(turned + 8 * now.slot, now.parity);
      start_product_of<typename Work::B>(upper, b, halves[0], step == 0);
      ptx::wgmma_wait<1>();  // the previous step has read its slot, and registers of the lower half
      if (step > 0) work.release(last);
      load_rows(lower, tiles + slot, row0 + WARPGROUP_ROWS);
      ptx::named_barrier_sync(warpgroup + 1, WARPGROUP);  // one thread gives the slot back for all
      start_product_of<typename Work::B>(lower, b, halves[1], step == 0);
      ptx::wgmma_wait<1>();
      last = now.slot;
    }
    ptx::wgmma_wait<0>();
    work.release(last);
  }
};

// Stores a warpgroup's halves one after another.
template <unsigned BN>
struct HalvesStore : TileStore<float, BN> {
  __device__ __forceinline__ void put(const float (&sums)[HALVES * BN / 2], unsigned row0, unsigned col0,
                                      unsigned product) const {
    const auto &halves = reinterpret_cast<const float(&)[HALVES][BN / 2]>(sums);
#pragma unroll
    for (unsigned i = 0; i < HALVES; ++i) {
      TileStore<float, BN>::put(halves[i], row0 + i * WARPGROUP_ROWS, col0, product);
    }
  }
};

template <unsigned BN, unsigned STAGES, unsigned CLUSTER>
__global__ void __launch_bounds__(3 * WARPGROUP, 1)
    gemm_wgmma_turned(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
                      const __grid_constant__ TensorMap map_c, const float *c, unsigned m, unsigned n, unsigned k,
                      unsigned products, float alpha, float beta, unsigned ldc, long long stride_c) {
  using Work = SpecialisedOn<AcrossMatrices<BN>, BN, STAGES, CLUSTER>;
  using Store = HalvesStore<BN>;
  __shared__ unsigned long long arrived[STAGES], free[STAGES], turned[STAGES];
  DYN_SHARED(unsigned char, smem);
  const unsigned tiles = aligned_to_atom(smem), steps = (k + SQUARE - 1) / SQUARE;
  unsigned char *ring = smem + (tiles - ptx::smem_address(smem)), *buffers = ring + STAGES * Work::SLOT_BYTES;
  const Work work{{map_a, map_b},
                  {(m + CLUSTER * Work::ROWS - 1) / (CLUSTER * Work::ROWS), (n + BN - 1) / BN},
                  {steps, steps, 1},
                  products,
                  tiles,
                  ptx::smem_address(arrived),
                  ptx::smem_address(free)};
  const unsigned along_k = ptx::smem_address(turned);
  if (threadIdx.x == 0) {
    for (unsigned stage = 0; stage < STAGES; ++stage) ptx::mbarrier_init(along_k + 8 * stage, TURNERS);
  }
  const auto store_of = [&](unsigned warpgroup) {
    unsigned char *own = buffers + warpgroup * Store::BUFFERS * Store::BUFFER_BYTES;
    return Store{{{map_c, c, m, n, ldc, stride_c, alpha, beta, own, warpgroup + 1}}};
  };
  work.run(InHalves{ring, along_k}, store_of, TurnColumns<BN, STAGES>{ring, along_k});
}
