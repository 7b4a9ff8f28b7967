// What the warp-specialised wgmma kernels share: one warpgroup only loads tiles, two only multiply, and a grid as large
// as the device iterates over all tiles of C, so that the next tile's operands arrive while this one's results are
// stored.
//
// Tile: a cluster of CLUSTER blocks owns CLUSTER tiles of C below each other, a block ROWS x BN, a multiplying
// warpgroup half of the rows. The blocks of a cluster need the same columns of op(B): each loads its share of them into
// all blocks. Tiles are taken in the order of gemm/tileorder.cuh, those of a slice of k one after another, and then
// those of the next slice, or of the batch's next product.
// Ring: STAGES slots of tiles (gemm/wgmma.cuh). Barrier `arrived` completes when a slot's bytes have landed, `free`
// when all warpgroups that read the slot, including those of the cluster's other blocks, have done so.
#pragma once
#include "gemm/tileorder.cuh"
#include "gemm/wgmma.cuh"

constexpr unsigned CONSUMERS = 2, BM = CONSUMERS * WARPGROUP_ROWS;  // warpgroups that multiply
constexpr int BLOCK_REGISTERS = 3 * 168;  // of a thread of each warpgroup, as the compiler assigns them

// A slot of the ring, and the parity of its phase.
template <unsigned STAGES>
struct Turn {
  unsigned slot = 0, parity = 0;
  __device__ __forceinline__ void next() {
    if (++slot == STAGES) slot = 0, parity ^= 1;
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

// Slices of k, each `depth` steps deep except the last. A unit is one slice of one product.
struct Slices {
  unsigned steps, depth, count;

  struct Part {
    unsigned product, first, end;  // steps
  };

  __device__ __forceinline__ Part at(unsigned unit) const {
    const unsigned first = unit % count * depth;
    return {unit / count, first, min(first + depth, steps)};
  }
};

// A multiplying warpgroup's part of C: half of the block's rows, from row0 on, and BN columns from col0 on.
struct Patch {
  unsigned warpgroup, row0, col0, product;
};

// What the tiles are loaded from: the matrices of a batch. conv/implicit_wgmma.cuh has others.
template <class T, unsigned BN, Op op_a, Op op_b>
struct Matrices {
  using Type = T;
  using A = OperandTile<T, BM, op_a == Op::N>;
  using B = OperandTile<T, BN, op_b == Op::T>;
  static constexpr int REGISTERS = 40;  // of a thread that loads
  const TensorMap &map_a, &map_b;

  // The next step of a slice: where its rows of A, its columns of op(B) and its part of k begin.
  struct Place {
    unsigned row0, col0, k0, product;
  };
  __device__ __forceinline__ Place at(unsigned row0, unsigned col0, const Slices::Part &part) const {
    return {row0, col0, part.first * A::DEPTH, part.product};
  }

  // Starts the loads of a step: all of A's tile, and SHARE columns of B's for each block of the cluster.
  template <unsigned SHARE, unsigned CLUSTER>
  __device__ __forceinline__ void load(Place &place, unsigned a, unsigned b, unsigned barrier) const {
    A::template load<BM>(a, map_a, place.row0, place.k0, place.product, barrier);
    B::template load<SHARE, CLUSTER>(b, map_b, place.col0, place.k0, place.product, barrier);
    place.k0 += A::DEPTH;
  }
};

// The default of `beside` in run(): the other warps of the loading warpgroup do nothing.
struct Idle {
  template <class Work>
  __device__ __forceinline__ void operator()(const Work &) const {}
};

template <class Source, unsigned BN, unsigned STAGES, unsigned CLUSTER>
struct SpecialisedOn {
  using Type = typename Source::Type;
  using A = typename Source::A;
  using B = typename Source::B;
  static constexpr unsigned SLOT_BYTES = A::BYTES + B::BYTES, SHARE = BN / CLUSTER;  // columns of op(B) a block loads
  static constexpr unsigned ROWS = A::BYTES / ROW_BYTES, SUMS = ROWS * BN / (CONSUMERS * WARPGROUP);  // of a thread
  static_assert(SHARE % BOX == 0, "a block's share of op(B) is whole boxes");
  Source source;
  TileOrder order;  // whose products are units here
  Slices slices;
  unsigned units;                 // of all products
  unsigned tiles, arrived, free;  // addresses in shared memory

  // The work of all threads. multiply computes the sums of a slice in a multiplying warpgroup, and store_of(warpgroup)
  // returns the object that stores them. The warps of the loading warpgroup that load nothing call beside(*this).
  template <class Multiply, class StoreOf, class Beside = Idle>
  __device__ __forceinline__ void run(const Multiply &multiply, const StoreOf &store_of,
                                      const Beside &beside = Beside{}) const {
    const unsigned warpgroup = warpgroup_index(), rank = blockIdx.x % CLUSTER;  // in its cluster
    if (threadIdx.x == 0) initialise();
    synchronise<CLUSTER>();  // the barriers are initialised, also for copies from other blocks
    if (warpgroup == CONSUMERS) {
      ptx::setmaxnreg_dec<Source::REGISTERS>();
      if (threadIdx.x == CONSUMERS * WARPGROUP) produce(rank);
      if (threadIdx.x >= CONSUMERS * WARPGROUP + 32) beside(*this);
      __syncwarp();
    } else {
      ptx::setmaxnreg_inc<(BLOCK_REGISTERS - Source::REGISTERS) / CONSUMERS>();
      consume(rank, warpgroup, multiply, store_of(warpgroup));
    }
    synchronise<CLUSTER>();  // no block leaves while others may still arrive at its barriers
  }

  __device__ __forceinline__ void wait(const Turn<STAGES> &turn) const {
    ptx::mbarrier_wait(arrived + 8 * turn.slot, turn.parity);
  }

  // The tiles of this block's cluster, of `order.count(units)`.
  static __device__ __forceinline__ unsigned first() { return blockIdx.x / CLUSTER; }
  static __device__ __forceinline__ unsigned stride() { return gridDim.x / CLUSTER; }

  // Notifies every block of the cluster, since each loads into this one, that this warpgroup has read the slot. A wait
  // covers the products of all four warps, so that one thread for each block can do this.
  __device__ __forceinline__ void release(unsigned slot) const {
    if (threadIdx.x % WARPGROUP >= CLUSTER) return;
    if constexpr (CLUSTER == 1) {
      ptx::mbarrier_arrive(free + 8 * slot);
    } else {
      ptx::mbarrier_arrive_cluster(free + 8 * slot, threadIdx.x % WARPGROUP);
    }
  }

 private:
  __device__ __forceinline__ void initialise() const {
    ptx::tma_prefetch(&source.map_a);
    ptx::tma_prefetch(&source.map_b);
    for (unsigned stage = 0; stage < STAGES; ++stage) {
      ptx::mbarrier_init(arrived + 8 * stage, 1);
      ptx::mbarrier_init(free + 8 * stage, CONSUMERS * CLUSTER);
    }
    ptx::fence_mbarrier_init();
  }

  // One thread's work: fills each slot once it is free.
  __device__ __forceinline__ void produce(unsigned rank) const {
    Turn<STAGES> turn;
    for (unsigned index = first(); index < order.count(units); index += stride()) {
      const TileOrder::Tile tile = order.at(index);
      const Slices::Part part = slices.at(tile.product);
      const unsigned row0 = (tile.row * CLUSTER + rank) * ROWS, col0 = tile.col * BN + rank * SHARE;
      auto place = source.at(row0, col0, part);
      for (unsigned step = part.first; step < part.end; ++step, turn.next()) {
        const unsigned barrier = arrived + 8 * turn.slot, a = tiles + turn.slot * SLOT_BYTES;
        const unsigned b = a + A::BYTES + rank * SHARE * ROW_BYTES;
        ptx::mbarrier_wait(free + 8 * turn.slot, turn.parity ^ 1);  // in the first round all are free
        ptx::mbarrier_arrive_expect_tx(barrier, SLOT_BYTES);
        source.template load<SHARE, CLUSTER>(place, a, b, barrier);
      }
    }
  }

  // A warpgroup's work: half of the rows of each of the block's tiles.
  template <class Multiply, class Store>
  __device__ __forceinline__ void consume(unsigned rank, unsigned warpgroup, Multiply multiply,
                                          const Store &store) const {
    Turn<STAGES> turn;
    for (unsigned index = first(); index < order.count(units); index += stride()) {
      const TileOrder::Tile tile = order.at(index);
      const Slices::Part part = slices.at(tile.product);
      const unsigned row0 = (tile.row * CLUSTER + rank) * ROWS + warpgroup * (ROWS / CONSUMERS);
      typename Element<Type>::Sum sums[SUMS];
      multiply(*this, sums, part.end - part.first, turn, Patch{warpgroup, row0, tile.col * BN, tile.product});
      store.put(sums, row0, tile.col * BN, tile.product);
    }
    store.finish();
  }
};

template <class T, unsigned BN, unsigned STAGES, unsigned CLUSTER, Op op_a, Op op_b>
using Specialised = SpecialisedOn<Matrices<T, BN, op_a, op_b>, BN, STAGES, CLUSTER>;

// A slice as the tensor cores multiply it, while the next slot arrives.
struct Plainly {
  template <class Work, class Sum, int SUMS, unsigned STAGES>
  __device__ __forceinline__ void operator()(const Work &work, Sum (&sums)[SUMS], unsigned steps, Turn<STAGES> &turn,
                                             const Patch &patch) const {
    unsigned last = 0;
    for (unsigned step = 0; step < steps; ++step, turn.next()) {
      const unsigned slot = work.tiles + turn.slot * Work::SLOT_BYTES;
      work.wait(turn);
      start_product<typename Work::Type, typename Work::A, typename Work::B>(
          sums, slot + patch.warpgroup * WARPGROUP_ROWS * ROW_BYTES, slot + Work::A::BYTES, step == 0);
      ptx::wgmma_wait<1>();  // the previous step has read its slot
      if (step > 0) work.release(last);
      last = turn.slot;
    }
    ptx::wgmma_wait<0>();
    work.release(last);
  }
};
