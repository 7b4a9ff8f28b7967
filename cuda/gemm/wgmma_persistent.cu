// C = alpha op(A) op(B) + beta C on the tensor cores of Hopper, warp-specialised: one warpgroup only loads tiles, two
// only multiply, and a grid as large as the device iterates over all tiles of C, so that the next tile's operands
// arrive while this one's results are stored.
//
// Tile: a cluster of CLUSTER blocks owns CLUSTER tiles of C below each other, a block 128 x BN, a multiplying warpgroup
// 64 rows of them. The blocks of a cluster need the same columns of op(B): each loads its share of them into all
// blocks. Tiles are taken in the order of gemm/tileorder.cuh, those of a batch one product after another.
// Ring: STAGES slots of tiles (gemm/wgmma.cuh). Barrier `arrived` completes when a slot's bytes have landed, `free`
// when all warpgroups that read the slot, including those of the cluster's other blocks, have done so.
// Results are stored by TMA through shared memory, 64 rows x 128 bytes at a time, never past C's edges
// (gemm/store.cuh).
// Preconditions: sm_90a; stored rows of A, B and C begin at multiples of 16 bytes. T = float is multiplied as TF32, and
// takes A and B along k only.
// Limit: the tensor cores, or the power that they may draw, while there are enough tiles for the device.
#include "gemm/store.cuh"
#include "gemm/tileorder.cuh"
#include "gemm/wgmma.cuh"

constexpr unsigned CONSUMERS = 2, BM = CONSUMERS * WARPGROUP_ROWS;  // warpgroups that multiply

// A slot of the ring, and the parity of its phase.
template <unsigned STAGES>
struct Turn {
  unsigned slot = 0, parity = 0;
  __device__ __forceinline__ void next() {
    if (++slot == STAGES) slot = 0, parity ^= 1;
  }
};

template <class T, class Out, unsigned BN, unsigned STAGES, unsigned CLUSTER, Op op_a, Op op_b>
struct Persistent {
  using A = OperandTile<T, BM, op_a == Op::N>;
  using B = OperandTile<T, BN, op_b == Op::T>;
  static constexpr unsigned SLOT_BYTES = A::BYTES + B::BYTES, SHARE = BN / CLUSTER;  // columns of op(B) a block loads
  static_assert(SHARE % BOX == 0, "a block's share of op(B) is whole boxes");
  const TensorMap &map_a, &map_b;
  TileOrder order;
  unsigned products, steps;
  unsigned tiles, arrived, free;  // addresses in shared memory

  __device__ __forceinline__ void initialise() const {
    ptx::tma_prefetch(&map_a);
    ptx::tma_prefetch(&map_b);
    for (unsigned stage = 0; stage < STAGES; ++stage) {
      ptx::mbarrier_init(arrived + 8 * stage, 1);
      ptx::mbarrier_init(free + 8 * stage, CONSUMERS * CLUSTER);
    }
    ptx::fence_mbarrier_init();
  }

  // One thread's work: fills each slot once it is free.
  __device__ __forceinline__ void produce(unsigned rank) const {
    Turn<STAGES> turn;
    for (unsigned index = first(); index < order.count(products); index += stride()) {
      const TileOrder::Tile tile = order.at(index);
      const unsigned row0 = (tile.row * CLUSTER + rank) * BM, col0 = tile.col * BN + rank * SHARE;
      for (unsigned step = 0; step < steps; ++step, turn.next()) {
        const unsigned barrier = arrived + 8 * turn.slot, a = tiles + turn.slot * SLOT_BYTES;
        const unsigned b = a + A::BYTES + rank * SHARE * ROW_BYTES;
        ptx::mbarrier_wait(free + 8 * turn.slot, turn.parity ^ 1);  // in the first round all are free
        ptx::mbarrier_arrive_expect_tx(barrier, SLOT_BYTES);
        A::template load<BM>(a, map_a, row0, step * A::DEPTH, tile.product, barrier);
        B::template load<SHARE, CLUSTER>(b, map_b, col0, step * A::DEPTH, tile.product, barrier);
      }
    }
  }

  // A warpgroup's work: 64 rows of each of the block's tiles.
  __device__ __forceinline__ void consume(unsigned rank, unsigned warpgroup, const TileStore<Out, BN> &store) const {
    Turn<STAGES> turn;
    for (unsigned index = first(); index < order.count(products); index += stride()) {
      const TileOrder::Tile tile = order.at(index);
      const unsigned row0 = (tile.row * CLUSTER + rank) * BM + warpgroup * WARPGROUP_ROWS;
      float sums[BN / 2];
      multiply(sums, turn, warpgroup);
      store.put(sums, row0, tile.col * BN, tile.product);
    }
    store.finish();
  }

 private:
  static __device__ __forceinline__ unsigned first() { return blockIdx.x / CLUSTER; }
  static __device__ __forceinline__ unsigned stride() { return gridDim.x / CLUSTER; }

  __device__ __forceinline__ void multiply(float (&sums)[BN / 2], Turn<STAGES> &turn, unsigned warpgroup) const {
    unsigned last = 0;
    for (unsigned step = 0; step < steps; ++step, turn.next()) {
      const unsigned slot = tiles + turn.slot * SLOT_BYTES;
      ptx::mbarrier_wait(arrived + 8 * turn.slot, turn.parity);
      start_product<T, A, B>(sums, slot + warpgroup * WARPGROUP_ROWS * ROW_BYTES, slot + A::BYTES, step == 0);
      ptx::wgmma_wait<1>();  // the previous step has read its slot
      if (step > 0) release(last);
      last = turn.slot;
    }
    ptx::wgmma_wait<0>();
    release(last);
  }

  // Notifies this block, and those that load into this one too, that this warpgroup has read the slot: a wait is for
  // the product of all its warps, so that a thread for each block can do that.
  __device__ __forceinline__ void release(unsigned slot) const {
    if (threadIdx.x % WARPGROUP >= CLUSTER) return;
    if constexpr (CLUSTER == 1) {
      ptx::mbarrier_arrive(free + 8 * slot);
    } else {
      ptx::mbarrier_arrive_cluster(free + 8 * slot, threadIdx.x % WARPGROUP);
    }
  }
};

// A barrier of all threads of the cluster.
template <unsigned CLUSTER>
__device__ __forceinline__ void synchronise() {
  if constexpr (CLUSTER == 1) {
    __syncthreads();
  } else {
    ptx::cluster_sync();
  }
}

template <class T, class Out, unsigned BN, unsigned STAGES, unsigned CLUSTER, Op op_a, Op op_b>
__global__ void __launch_bounds__(3 * WARPGROUP, 1)
    gemm_wgmma_persistent(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
                          const __grid_constant__ TensorMap map_c, const Out *c, unsigned m, unsigned n, unsigned k,
                          unsigned products, float alpha, float beta, unsigned ldc, long long stride_c) {
  using Work = Persistent<T, Out, BN, STAGES, CLUSTER, op_a, op_b>;
  using Store = TileStore<Out, BN>;
  __shared__ unsigned long long arrived[STAGES], free[STAGES];
  DYN_SHARED(unsigned char, smem);
  const unsigned tiles = aligned_to_atom(smem), warpgroup = warpgroup_index();
  const unsigned rank = blockIdx.x % CLUSTER;  // in its cluster
  const Work work{map_a,
                  map_b,
                  {(m + CLUSTER * BM - 1) / (CLUSTER * BM), (n + BN - 1) / BN},
                  products,
                  (k + Work::A::DEPTH - 1) / Work::A::DEPTH,
                  tiles,
                  ptx::smem_address(arrived),
                  ptx::smem_address(free)};

  if (threadIdx.x == 0) work.initialise();
  synchronise<CLUSTER>();  // the barriers are initialised, also for copies from other blocks
  if (warpgroup == CONSUMERS) {
    ptx::setmaxnreg_dec<40>();
    if (threadIdx.x == CONSUMERS * WARPGROUP) work.produce(rank);
    __syncwarp();
  } else {
    ptx::setmaxnreg_inc<232>();
    unsigned char *buffers = smem + (tiles - ptx::smem_address(smem)) + STAGES * Work::SLOT_BYTES +
                             warpgroup * Store::BUFFERS * Store::BUFFER_BYTES;
    work.consume(rank, warpgroup, Store{map_c, c, m, n, ldc, stride_c, alpha, beta, buffers, warpgroup + 1});
  }
  synchronise<CLUSTER>();  // no block leaves while others may still arrive at its barriers
}
