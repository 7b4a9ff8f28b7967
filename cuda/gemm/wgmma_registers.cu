// C = alpha op(A) op(B) + beta C for FP32 A and B as TF32, of which one is not stored along k, on the tensor cores of
// Hopper, warp-specialised (gemm/wgmma_specialised.cuh).
//
// wgmma reads TF32 from shared memory only where it is stored along k, but it can also take its rows from registers.
// The operand that is not stored along k therefore supplies the rows: op(A) in TT and op(B) in NN, which computes the
// transpose of C. A step's rows are loaded while the products of the step before run on rows in other registers.
// Tile: as there, with the rows of that operand and the columns of the other; results are stored by TMA
// (gemm/store.cuh), those of NN transposed on their way.
// Preconditions: sm_90a; stored rows of A, B and C begin at multiples of 16 bytes, and those of C end there.
// Limit: the tensor cores and shared memory, of which both are busy nearly all the time.
#include "gemm/store.cuh"
#include "gemm/wgmma_rows.cuh"

// What the tiles are loaded from: matrices of which A is stored along its rows, and B along k.
template <unsigned BN>
struct RowsAcross : Matrices<float, BN, Op::N, Op::T> {
  using Base = Matrices<float, BN, Op::N, Op::T>;
  using A = AcrossTile<BM>;

  template <unsigned SHARE, unsigned CLUSTER>
  __device__ __forceinline__ void load(typename Base::Place &place, unsigned a, unsigned b, unsigned barrier) const {
    A::template load<BM>(a, this->map_a, place.row0, place.k0, place.product, barrier);
    Base::B::template load<SHARE, CLUSTER>(b, this->map_b, place.col0, place.k0, place.product, barrier);
    place.k0 += A::DEPTH;
  }
};

// A slice whose rows go through registers. tiles: where the ring is.
struct FromRegisters {
  const unsigned char *tiles;

  template <class Work, int SUMS, unsigned STAGES>
  __device__ __forceinline__ void operator()(const Work &work, float (&sums)[SUMS], unsigned steps, Turn<STAGES> &turn,
                                             const Patch &patch) const {
    const unsigned warpgroup = patch.warpgroup;
    Fragments even, odd;
    unsigned last = 0;
    const auto next = [&](Fragments &rows, bool first) {
      const unsigned slot = turn.slot * Work::SLOT_BYTES;
      work.wait(turn);
      load_rows(rows, tiles + slot, warpgroup * WARPGROUP_ROWS);
      ptx::named_barrier_sync(warpgroup + 1, WARPGROUP);  // one thread gives the slot back for all
      start_product_of<typename Work::B>(rows, work.tiles + slot + Work::A::BYTES, sums, first);
      ptx::wgmma_wait<1>();  // the previous step has read its slot and its registers
      if (!first) work.release(last);
      last = turn.slot;
      turn.next();
    };
    next(even, true);
    unsigned step = 1;
    for (; step + 1 < steps; step += 2) {
      next(odd, false);
      next(even, false);
    }
    if (step < steps) next(odd, false);
    ptx::wgmma_wait<0>();
    work.release(last);
  }
};

// Stores sums whose rows are columns of C, otherwise as TileStore does. A pair of buffers holds 64 rows of C; each
// buffer has half of the columns, which two of the four warps have computed.
template <unsigned BN>
struct TurnedStore : PartsStore<float> {
  static constexpr unsigned PAIRS = BN / BOX, AT_ONCE = PAIRS < 2 ? PAIRS : 2, BUFFERS = 2 * AT_ONCE;
  static constexpr unsigned MINE = BOX / 2;  // sums of a pair, per thread

  __device__ __forceinline__ void put(const float (&sums)[BN / 2], unsigned col0, unsigned row0,
                                      unsigned product) const {
    in_parts<PAIRS, AT_ONCE>(
        [&](unsigned i, unsigned pair) { fill(i, &sums[pair * MINE], row0 + pair * BOX, col0, product); },
        [&](unsigned i, unsigned pair) {
          store(2 * i, col0, row0 + pair * BOX, product);
          store(2 * i + 1, col0 + SQUARE, row0 + pair * BOX, product);
        });
  }

 private:
  // Writes 64 rows of C. The lanes of a warp have eight neighbours of each of four rows, in different banks.
  __device__ __forceinline__ void fill(unsigned pair, const float *sums, unsigned row0, unsigned col0,
                                       unsigned product) const {
#pragma unroll
    for (unsigned i = 0; i < MINE; ++i) {
      const unsigned row = i / 4 * 8 + SumPlace::column() + i % 2, col = SumPlace::row(i % 4 / 2);
      unsigned char *to = buffers + (2 * pair + col / SQUARE) * BUFFER_BYTES + row * ROW_BYTES;
      *reinterpret_cast<float *>(to + (col % SQUARE * unsigned(sizeof(float)) ^ row % 8 * 16)) =
          scaled(sums[i], row0 + row, col0 + col, product);
    }
  }

  __device__ __forceinline__ float scaled(float x, unsigned row, unsigned col, unsigned product) const {
    if (beta == 0.0f || row >= m || col >= n) return alpha * x;
    return alpha * x + beta * c[product * stride + offset<Op::N>(row, col, ldc)];
  }
};

template <unsigned BN, bool TURNED>
struct Results {
  using Store = TileStore<float, BN>;
};
template <unsigned BN>
struct Results<BN, true> {
  using Store = TurnedStore<BN>;
};

// The rows and columns of the product that is computed are those of C or, TURNED, of its transpose.
template <unsigned BN, unsigned STAGES, unsigned CLUSTER, bool TURNED>
__global__ void __launch_bounds__(3 * WARPGROUP, 1)
    gemm_wgmma_registers(const __grid_constant__ TensorMap map_rows, const __grid_constant__ TensorMap map_columns,
                         const __grid_constant__ TensorMap map_c, const float *c, unsigned m, unsigned n, unsigned k,
                         unsigned products, float alpha, float beta, unsigned ldc, long long stride_c) {
  using Work = SpecialisedOn<RowsAcross<BN>, BN, STAGES, CLUSTER>;
  using Store = typename Results<BN, TURNED>::Store;
  __shared__ unsigned long long arrived[STAGES], free[STAGES];
  DYN_SHARED(unsigned char, smem);
  const unsigned tiles = aligned_to_atom(smem), steps = (k + SQUARE - 1) / SQUARE;
  unsigned char *ring = smem + (tiles - ptx::smem_address(smem)), *buffers = ring + STAGES * Work::SLOT_BYTES;
  const unsigned rows = TURNED ? n : m, columns = TURNED ? m : n;
  const Work work{{map_rows, map_columns},
                  {(rows + CLUSTER * BM - 1) / (CLUSTER * BM), (columns + BN - 1) / BN},
                  {steps, steps, 1},
                  products,
                  tiles,
                  ptx::smem_address(arrived),
                  ptx::smem_address(free)};
  work.run(FromRegisters{ring}, [&](unsigned warpgroup) {
    unsigned char *own = buffers + warpgroup * Store::BUFFERS * Store::BUFFER_BYTES;
    return Store{{map_c, c, m, n, ldc, stride_c, alpha, beta, own, warpgroup + 1}};
  });
}
