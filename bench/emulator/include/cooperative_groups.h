// Cooperative groups: blocks, tiles of a warp, lanes that have converged, clusters and the grid (`cooperative=True`).
#pragma once
#include "emulator.h"

namespace cooperative_groups {

namespace emulated {

template <class> constexpr bool never = false;

EMU_INLINE unsigned rank_in_block() { return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x; }
EMU_INLINE unsigned block_size() { return blockDim.x * blockDim.y * blockDim.z; }
EMU_INLINE unsigned blocks() { return gridDim.x * gridDim.y * gridDim.z; }
EMU_INLINE unsigned block_number() { return (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x; }

// Returns the lane that has this rank among the lanes of a mask.
inline unsigned lane_of(unsigned mask, unsigned rank) {
  for (unsigned lane = 0; lane < 32; ++lane)
    if (mask >> lane & 1 && rank-- == 0) return lane;
  return 32;
}
inline unsigned ranks_of(unsigned mask, unsigned lanes) {
  unsigned ranks = 0, rank = 0;
  for (unsigned lane = 0; lane < 32; ++lane)
    if (mask >> lane & 1) ranks |= (lanes >> lane & 1) << rank++;
  return ranks;
}

}  // namespace emulated

// Lanes of a warp, given by their mask; the groups below differ in how they are made.
struct Lanes {
  unsigned mask, meta_rank = 0, meta_size = 1;

  EMU_INLINE void sync(EMU_SITE) const { __syncwarp(mask, site); }
  EMU_INLINE unsigned size() const { return unsigned(__popc(mask)); }
  EMU_INLINE unsigned num_threads() const { return size(); }
  EMU_INLINE unsigned thread_rank() const { return unsigned(__popc(mask & ((1u << emu::lane()) - 1))); }
  EMU_INLINE unsigned meta_group_rank() const { return meta_rank; }
  EMU_INLINE unsigned meta_group_size() const { return meta_size; }
  template <class T> T shfl(T value, unsigned rank, EMU_SITE) const {
    return emu::shuffle(mask, value, int(emulated::lane_of(mask, rank % size())), site);
  }
  template <class T> T shfl_up(T value, unsigned by, EMU_SITE) const {
    const unsigned rank = thread_rank();
    return emu::shuffle(mask, value, int(emulated::lane_of(mask, rank < by ? rank : rank - by)), site);
  }
  template <class T> T shfl_down(T value, unsigned by, EMU_SITE) const {
    const unsigned rank = thread_rank();
    return emu::shuffle(mask, value, int(emulated::lane_of(mask, rank + by < size() ? rank + by : rank)), site);
  }
  template <class T> T shfl_xor(T value, unsigned ranks, EMU_SITE) const {
    const unsigned other = thread_rank() ^ ranks;
    return emu::shuffle(mask, value, int(emulated::lane_of(mask, other < size() ? other : thread_rank())), site);
  }
  bool any(int p, EMU_SITE) const { return __any_sync(mask, p, site); }
  bool all(int p, EMU_SITE) const { return __all_sync(mask, p, site); }
  unsigned ballot(int p, EMU_SITE) const { return emulated::ranks_of(mask, __ballot_sync(mask, p, site)); }
  template <class T> unsigned match_any(T value, EMU_SITE) const {
    return emulated::ranks_of(mask, __match_any_sync(mask, value, site));
  }
  template <class T> unsigned match_all(T value, int &all, EMU_SITE) const {
    return emulated::ranks_of(mask, __match_all_sync(mask, value, &all, site));
  }
};

struct coalesced_group : Lanes {};

struct thread_block {
  EMU_INLINE static void sync(EMU_SITE) { emu::block_barrier(site); }
  EMU_INLINE static unsigned size() { return emulated::block_size(); }
  EMU_INLINE static unsigned num_threads() { return size(); }
  EMU_INLINE static unsigned thread_rank() { return emulated::rank_in_block(); }
  EMU_INLINE static uint3 thread_index() { return threadIdx; }
  EMU_INLINE static uint3 group_index() { return blockIdx; }
  EMU_INLINE static dim3 group_dim() { return blockDim; }
  EMU_INLINE static dim3 dim_threads() { return blockDim; }
};

template <unsigned Size, class Parent = void> struct thread_block_tile : Lanes {
  static_assert(Size <= 32, "the emulator has no thread_block_tile of more than 32 threads");
  EMU_INLINE static constexpr unsigned size() { return Size; }
  EMU_INLINE static constexpr unsigned num_threads() { return Size; }
};

// The untyped group of older code: lanes of a warp or, if their mask is 0, the block.
struct thread_group {
  Lanes lanes{0};

  EMU_INLINE thread_group(thread_block) {}
  EMU_INLINE thread_group(Lanes lanes) : lanes(lanes) {}
  EMU_INLINE void sync(EMU_SITE) const { lanes.mask ? lanes.sync(site) : emu::block_barrier(site); }
  EMU_INLINE unsigned size() const { return lanes.mask ? lanes.size() : emulated::block_size(); }
  EMU_INLINE unsigned num_threads() const { return size(); }
  EMU_INLINE unsigned thread_rank() const { return lanes.mask ? lanes.thread_rank() : emulated::rank_in_block(); }
};

struct grid_group {
  EMU_INLINE void sync(EMU_SITE) const { emu::grid_barrier(site); }
  EMU_INLINE bool is_valid() const { return true; }
  EMU_INLINE unsigned block_rank() const { return emulated::block_number(); }
  EMU_INLINE unsigned num_blocks() const { return emulated::blocks(); }
  EMU_INLINE dim3 group_dim() const { return gridDim; }
  EMU_INLINE dim3 dim_blocks() const { return gridDim; }
  EMU_INLINE uint3 block_index() const { return blockIdx; }
  EMU_INLINE unsigned long long size() const { return 1ull * emulated::blocks() * emulated::block_size(); }
  EMU_INLINE unsigned long long num_threads() const { return size(); }
  EMU_INLINE unsigned long long thread_rank() const {
    return 1ull * emulated::block_number() * emulated::block_size() + emulated::rank_in_block();
  }
};

struct cluster_group {
  EMU_INLINE static void sync(EMU_SITE) { emu::cluster_barrier(site); }
  EMU_INLINE static unsigned block_rank() { return emu::cluster_rank(); }
  EMU_INLINE static unsigned num_blocks() { return emu::cluster_size(); }
  EMU_INLINE static unsigned num_threads() { return num_blocks() * emulated::block_size(); }
  EMU_INLINE static unsigned thread_rank() { return block_rank() * emulated::block_size() + emulated::rank_in_block(); }
  EMU_INLINE static dim3 dim_blocks() { return {num_blocks(), 1, 1}; }
  EMU_INLINE static dim3 block_index() { return {block_rank(), 0, 0}; }
  EMU_INLINE static dim3 dim_threads() { return {num_blocks() * blockDim.x, blockDim.y, blockDim.z}; }
  struct arrival_token {};
  EMU_INLINE static arrival_token barrier_arrive() { return {}; }
  EMU_INLINE static void barrier_wait(arrival_token && = {}, EMU_SITE) { emu::cluster_barrier(site); }
  template <class T> EMU_INLINE static T *map_shared_rank(T *address, int rank, EMU_SITE) {
    return static_cast<T *>(emu::map_shared(address, unsigned(rank), site));
  }
  EMU_INLINE static unsigned query_shared_rank(const void *address, EMU_SITE) {
    return emu::shared_address(address, site) >> 24;
  }
};

EMU_INLINE thread_block this_thread_block() { return {}; }
EMU_INLINE grid_group this_grid() { return {}; }
EMU_INLINE cluster_group this_cluster() { return {}; }
inline coalesced_group coalesced_threads(EMU_SITE) { return {{emu::converged(site)}}; }

template <class Group> EMU_INLINE void sync(const Group &group, EMU_SITE) { group.sync(site); }
EMU_INLINE void __syncgroup(const thread_group &group, EMU_SITE) { group.sync(site); }

namespace emulated {

// Cuts the block, or a group of lanes, into parts of `size`, and returns the lanes of the running thread's part.
inline Lanes part(unsigned size) {
  const unsigned first = lane_of(EMU_FULL_WARP, emu::lane() / size * size);
  const unsigned mask = (size == 32 ? EMU_FULL_WARP : (1u << size) - 1) << first;
  return {mask, rank_in_block() / size, (block_size() + size - 1) / size};
}
inline Lanes part(const Lanes &whole, unsigned size) {
  const unsigned rank = whole.thread_rank(), number = rank / size;
  unsigned mask = 0;
  for (unsigned i = number * size; i < min((number + 1) * size, whole.size()); ++i) mask |= 1u << lane_of(whole.mask, i);
  return {mask, number, (whole.size() + size - 1) / size};
}

}  // namespace emulated

template <unsigned Size> thread_block_tile<Size, thread_block> tiled_partition(const thread_block &) {
  return {emulated::part(Size)};
}
template <unsigned Size, unsigned Of, class Parent>
thread_block_tile<Size, thread_block_tile<Of, Parent>> tiled_partition(const thread_block_tile<Of, Parent> &tile) {
  return {emulated::part(tile, Size)};
}
inline thread_group tiled_partition(const thread_group &group, unsigned size) {
  return group.lanes.mask ? emulated::part(group.lanes, size) : emulated::part(size);
}
inline coalesced_group tiled_partition(const coalesced_group &group, unsigned size) {
  return {emulated::part(group, size)};
}
template <class Group> coalesced_group labeled_partition(const Group &group, int label, EMU_SITE) {
  return {{__match_any_sync(group.mask, label, site)}};
}
template <class Group> coalesced_group binary_partition(const Group &group, bool predicate, EMU_SITE) {
  return {{__match_any_sync(group.mask, int(predicate), site)}};
}

template <class T> struct plus {
  EMU_INLINE T operator()(T a, T b) const { return a + b; }
};
template <class T> struct less {
  EMU_INLINE T operator()(T a, T b) const { return b < a ? b : a; }
};
template <class T> struct greater {
  EMU_INLINE T operator()(T a, T b) const { return a < b ? b : a; }
};
template <class T> struct bit_and {
  EMU_INLINE T operator()(T a, T b) const { return a & b; }
};
template <class T> struct bit_or {
  EMU_INLINE T operator()(T a, T b) const { return a | b; }
};
template <class T> struct bit_xor {
  EMU_INLINE T operator()(T a, T b) const { return a ^ b; }
};

namespace emulated {

// A scan over lanes by rank: the result before a lane, up to and including it, and over all lanes.
template <class T, class Operation> struct Running {
  T value, before, upto, all;
  Operation *operation;

  static void run(emu::Lanes<Running> warp) {
    Running *last = nullptr;
    warp.each([&](unsigned, Running &me) {
      me.before = last ? last->upto : T{};
      me.upto = last ? (*me.operation)(last->upto, me.value) : me.value;
      last = &me;
    });
    warp.each([&](unsigned, Running &me) { me.all = last->upto; });
  }
};
template <class T, class Operation>
inline Running<T, Operation> running(const Lanes &group, T value, Operation &operation, emu::Site site) {
  Running<T, Operation> payload{value, {}, {}, {}, &operation};
  emu::collective<Running<T, Operation>>(group.mask, payload, site);
  return payload;
}

}  // namespace emulated

template <class Group, class T, class Operation> T reduce(const Group &group, T value, Operation operation, EMU_SITE) {
  return emulated::running(group, value, operation, site).all;
}
template <class Group, class T, class Operation = plus<T>>
T inclusive_scan(const Group &group, T value, Operation operation = {}, EMU_SITE) {
  return emulated::running(group, value, operation, site).upto;
}
template <class Group, class T, class Operation = plus<T>>
T exclusive_scan(const Group &group, T value, Operation operation = {}, EMU_SITE) {
  return emulated::running(group, value, operation, site).before;
}
template <class Group, class Function, class... Args>
void invoke_one(const Group &group, Function function, Args... args) {
  if (group.thread_rank() == 0) function(args...);
}

}  // namespace cooperative_groups

namespace emu {

// Copies the running thread's share, in the widest units that divide both addresses and the length.
inline void copy_share(void *to, const void *from, size_t bytes, unsigned rank, unsigned threads, Site site) {
  unsigned width = 16;
  while (width > 1 && (size_t(to) | size_t(from) | bytes) % width) width /= 2;
  for (size_t at = size_t(rank) * width; at < bytes; at += size_t(threads) * width)
    copy_async(static_cast<char *>(to) + at, static_cast<const char *>(from) + at, width, width, site);
}

}  // namespace emu

namespace cooperative_groups {

template <class Group> void memcpy_async(const Group &group, void *to, const void *from, size_t bytes, EMU_SITE) {
  emu::copy_share(to, from, bytes, unsigned(group.thread_rank()), unsigned(group.size()), site);
  emu::commit_copies();
}
template <unsigned Stages, class Group> void wait_prior(const Group &group, EMU_SITE) {
  emu::wait_copies(Stages, site);
  group.sync(site);
}
template <class Group> void wait(const Group &group, EMU_SITE) { wait_prior<0>(group, site); }

}  // namespace cooperative_groups
