// Groups of rows of A and C, one after another, each times an op(B) of its own: C = alpha A op(B) + beta C on the tensor
// cores of Hopper, warp-specialised (gemm/wgmma_specialised.cuh). Sizes of groups are arguments, as cuBLAS has them.
//
// Tile: as in gemm/wgmma_persistent.cu, except that all rows of a cluster belong to one group. A table holds where each
// group's rows and tiles end; threads find the group of a tile by bisection. A group's last tile may also load rows of
// the next group, which are multiplied but not stored.
// Store: by TMA, except for 64 rows in which a group other than the last ends: from registers, row by row.
// Preconditions: sm_90a; stored rows of A, B and C begin at multiples of 16 bytes, and those of C end there.
// Limit: the tensor cores, while groups have rows for whole tiles; of small groups, reading B.
#include "gemm/store.cuh"
#include "gemm/wgmma_specialised.cuh"

constexpr unsigned MOST_GROUPS = 256;

struct Groups {
  unsigned count, rows[MOST_GROUPS], tiles[MOST_GROUPS];  // ends of each group
};

// Where the tiles' rows lie, as if those of each group filled whole tiles of TALL rows.
template <unsigned TALL>
struct GroupRows {
  const Groups &groups;

  // A row of C, and the end of its group.
  struct Place {
    unsigned group, row, end;
  };

  __device__ __forceinline__ Place at(unsigned padded_row) const {
    const unsigned tile = padded_row / TALL;
    unsigned group = 0;
    for (unsigned left = groups.count; left > 0;) {  // the first group whose tiles end after this one
      const unsigned half = left / 2;
      const bool is_after = groups.tiles[group + half] <= tile;
      if (is_after) group += half + 1;
      left = is_after ? left - half - 1 : half;
    }
    const unsigned row = group > 0 ? groups.rows[group - 1] : 0, first = group > 0 ? groups.tiles[group - 1] : 0;
    return {group, row + padded_row - first * TALL, groups.rows[group]};
  }
};

// What the tiles are loaded from: rows of A, and the matrix of B that belongs to their group.
template <class T, unsigned BN, Op op_b, unsigned TALL>
struct GroupedMatrices {
  using Type = T;
  using A = OperandTile<T, BM, true>;
  using B = OperandTile<T, BN, op_b == Op::T>;
  static constexpr int REGISTERS = 40;  // of a thread that loads
  const TensorMap &map_a, &map_b;
  const GroupRows<TALL> rows;

  struct Place {
    unsigned row0, col0, k0, group;
  };
  __device__ __forceinline__ Place at(unsigned row0, unsigned col0, const Slices::Part &) const {
    const auto found = rows.at(row0);
    return {found.row, col0, 0, found.group};
  }

  template <unsigned SHARE, unsigned CLUSTER>
  __device__ __forceinline__ void load(Place &place, unsigned a, unsigned b, unsigned barrier) const {
    A::template load<BM>(a, map_a, place.row0, place.k0, 0, barrier);
    B::template load<SHARE, CLUSTER>(b, map_b, place.col0, place.k0, place.group, barrier);
    place.k0 += A::DEPTH;
  }
};

template <class Out, unsigned BN, unsigned TALL>
struct GroupedStore {
  const TileStore<Out, BN> tile;
  const GroupRows<TALL> rows;
  Out *c;

  __device__ __forceinline__ void put(const float (&sums)[BN / 2], unsigned row0, unsigned col0, unsigned) const {
    const auto place = rows.at(row0);
    if (place.row >= place.end) return;
    if (place.row + WARPGROUP_ROWS <= place.end || place.end == tile.m) {  // past C's last row the TMA stores nothing
      tile.put(sums, place.row, col0, 0);
    } else {
      PairStore<Out>{c, place.end, tile.n, tile.ldc, 0, tile.alpha, tile.beta}.put(sums, place.row, col0, 0);
    }
  }
  __device__ __forceinline__ void finish() const { tile.finish(); }
};

template <class T, class Out, unsigned BN, unsigned STAGES, unsigned CLUSTER, Op op_b>
__global__ void __launch_bounds__(3 * WARPGROUP, 1)
    gemm_wgmma_grouped(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
                       const __grid_constant__ TensorMap map_c, Out *c, unsigned m, unsigned n, unsigned k, float alpha,
                       float beta, unsigned ldc, const __grid_constant__ Groups groups) {
  constexpr unsigned TALL = CLUSTER * BM;
  using Source = GroupedMatrices<T, BN, op_b, TALL>;
  using Work = SpecialisedOn<Source, BN, STAGES, CLUSTER>;
  using Store = TileStore<Out, BN>;
  __shared__ unsigned long long arrived[STAGES], free[STAGES];
  DYN_SHARED(unsigned char, smem);
  const unsigned tiles = aligned_to_atom(smem), steps = (k + Work::A::DEPTH - 1) / Work::A::DEPTH;
  unsigned char *buffers = smem + (tiles - ptx::smem_address(smem)) + STAGES * Work::SLOT_BYTES;
  const GroupRows<TALL> rows{groups};
  const Work work{{map_a, map_b, rows},
                  {groups.tiles[groups.count - 1], (n + BN - 1) / BN},
                  {steps, steps, 1},
                  1,
                  tiles,
                  ptx::smem_address(arrived),
                  ptx::smem_address(free)};
  work.run(Plainly{}, [&](unsigned warpgroup) {
    unsigned char *own = buffers + warpgroup * Store::BUFFERS * Store::BUFFER_BYTES;
    return GroupedStore<Out, BN, TALL>{{{map_c, c, m, n, ldc, 0, alpha, beta, own, warpgroup + 1}}, rows, c};
  });
}
