// Barriers, fences, shuffles, votes and warp reductions.
#pragma once
#include "keywords.h"

EMU_INLINE void __syncthreads(EMU_SITE) { emu::block_barrier(site); }
EMU_INLINE int __syncthreads_count(int p, EMU_SITE) { return emu::block_reduce(emu::Reduction::count, p, site); }
EMU_INLINE int __syncthreads_and(int p, EMU_SITE) { return emu::block_reduce(emu::Reduction::all, p, site); }
EMU_INLINE int __syncthreads_or(int p, EMU_SITE) { return emu::block_reduce(emu::Reduction::any, p, site); }

// Fibers are sequentially consistent, so a fence does nothing, and a missing fence is not detected.
EMU_INLINE void __threadfence() {}
EMU_INLINE void __threadfence_block() {}
EMU_INLINE void __threadfence_system() {}

EMU_INLINE void __nanosleep(unsigned) { emu::yield(); }
[[noreturn]] inline void __trap(EMU_SITE) { emu::trap(site); }
// Returns the lanes that have arrived here when no thread of the block can continue elsewhere.
inline unsigned __activemask(EMU_SITE) { return emu::converged(site); }
EMU_INLINE long long clock64() { return emu::clock(); }
EMU_INLINE int clock() { return int(emu::clock()); }
EMU_INLINE size_t __cvta_generic_to_shared(const void *pointer, EMU_SITE) { return emu::shared_address(pointer, site); }
EMU_INLINE void *__cvta_shared_to_generic(size_t address, EMU_SITE) {
  return emu::shared_pointer(unsigned(address), site);
}
EMU_INLINE size_t __cvta_generic_to_global(const void *pointer) { return size_t(pointer); }
EMU_INLINE unsigned __isShared(const void *pointer) { return emu::is_shared(pointer); }
EMU_INLINE unsigned __isGlobal(const void *pointer) { return !emu::is_shared(pointer); }

constexpr unsigned EMU_FULL_WARP = 0xffffffffu;

namespace emu {

template <class Payload> struct Lanes {
  void **lanes;
  unsigned present;

  bool has(unsigned lane) const { return lane < 32 && present >> lane & 1; }
  Payload &operator[](unsigned lane) const { return *static_cast<Payload *>(lanes[lane]); }
  template <class F> void each(F f) const {
    for (unsigned lane = 0; lane < 32; ++lane)
      if (has(lane)) f(lane, (*this)[lane]);
  }
};

// Waits for the lanes of `mask`; the last to arrive runs `Body::run(Lanes<Payload>)` over all payloads.
template <class Body, class Payload>
inline void collective(unsigned mask, Payload &payload, Site site, bool orders_memory = false) {
  warp_collective(
      mask, &payload,
      [](void **lanes, unsigned present) { Body::run(Lanes<Payload>{lanes, present}); }, orders_memory, site);
}

struct Nothing {};
struct Synchronise {
  static void run(Lanes<Nothing>) {}
};

template <class T> struct Shuffled {
  T in, out;
  int source;
  Site site;
};
template <class T> struct Shuffle {
  static void run(Lanes<Shuffled<T>> warp) {
    warp.each([&](unsigned, Shuffled<T> &me) {
      if (warp.has(me.source)) {
        me.out = warp[me.source].in;
      } else {
        __builtin_memset(&me.out, 0xff, sizeof(T));
        misuse("shuffle", "the source lane does not take part in the shuffle, so the value is undefined", me.site);
      }
    });
  }
};
template <class T> inline T shuffle(unsigned mask, T value, int source, Site site) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
  if constexpr (sizeof(T) == 8) {  // as two registers
    struct Halves { unsigned low, high; } halves = __builtin_bit_cast(Halves, value);
    halves = {shuffle(mask, halves.low, source, site), shuffle(mask, halves.high, source, site)};
    return __builtin_bit_cast(T, halves);
  } else {
    Shuffled<T> payload{value, value, source, site};
    collective<Shuffle<T>>(mask, payload, site);
    return payload.out;
  }
}

struct Vote {
  unsigned predicate, ballot;
};
struct Ballot {
  static void run(Lanes<Vote> warp) {
    unsigned ballot = 0;
    warp.each([&](unsigned lane, Vote &vote) { ballot |= vote.predicate << lane; });
    warp.each([&](unsigned, Vote &vote) { vote.ballot = ballot; });
  }
};
inline unsigned ballot(unsigned mask, bool predicate, Site site) {
  Vote vote{predicate, 0};
  collective<Ballot>(mask, vote, site);
  return vote.ballot;
}

template <class T> struct Matched {
  T value;
  unsigned mask;
};
template <class T> struct Match {
  static void run(Lanes<Matched<T>> warp) {
    warp.each([&](unsigned, Matched<T> &me) {
      me.mask = 0;
      warp.each([&](unsigned other, Matched<T> &it) { me.mask |= unsigned(it.value == me.value) << other; });
    });
  }
};

template <class T, class Operation> struct Reduce {
  static void run(Lanes<T> warp) {
    T result = warp[unsigned(__builtin_ctz(warp.present))];
    const unsigned rest = warp.present & (warp.present - 1);
    Lanes<T>{warp.lanes, rest}.each([&](unsigned, T &value) { result = Operation{}(result, value); });
    warp.each([&](unsigned, T &value) { value = result; });
  }
};

}  // namespace emu

inline void __syncwarp(unsigned mask = EMU_FULL_WARP, EMU_SITE) {
  emu::Nothing nothing;
  emu::collective<emu::Synchronise>(mask, nothing, site, true);
}

template <class T> inline T __shfl_sync(unsigned mask, T value, int source, int width = 32, EMU_SITE) {
  const int segment = int(emu::lane()) & ~(width - 1);
  return emu::shuffle(mask, value, segment | (source & (width - 1)), site);
}
template <class T> inline T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32, EMU_SITE) {
  const int lane = int(emu::lane()), end = (lane & ~(width - 1)) + width, source = lane ^ lanes;
  return emu::shuffle(mask, value, source < end ? source : lane, site);
}
template <class T> inline T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32, EMU_SITE) {
  const int lane = int(emu::lane()), end = (lane & ~(width - 1)) + width, source = lane + int(by);
  return emu::shuffle(mask, value, source < end ? source : lane, site);
}
template <class T> inline T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32, EMU_SITE) {
  const int lane = int(emu::lane()), begin = lane & ~(width - 1), source = lane - int(by);
  return emu::shuffle(mask, value, source >= begin ? source : lane, site);
}

inline unsigned __ballot_sync(unsigned mask, int p, EMU_SITE) { return emu::ballot(mask, p != 0, site); }
inline int __any_sync(unsigned mask, int p, EMU_SITE) { return emu::ballot(mask, p != 0, site) != 0; }
inline int __all_sync(unsigned mask, int p, EMU_SITE) { return emu::ballot(mask, p == 0, site) == 0; }
template <class T> inline unsigned __match_any_sync(unsigned mask, T value, EMU_SITE) {
  emu::Matched<T> payload{value, 0};
  emu::collective<emu::Match<T>>(mask, payload, site);
  return payload.mask;
}

template <class T> inline unsigned __match_all_sync(unsigned mask, T value, int *all, EMU_SITE) {
  const unsigned same = __match_any_sync(mask, value, site);
  *all = same == mask;
  return *all ? mask : 0;
}

#define EMU_WARP_REDUCTION(name, T, expression)                       \
  inline T __reduce_##name##_sync(unsigned mask, T value, EMU_SITE) { \
    struct Operation {                                                \
      T operator()(T a, T b) const { return expression; }             \
    };                                                                \
    emu::collective<emu::Reduce<T, Operation>>(mask, value, site);    \
    return value;                                                     \
  }
EMU_WARP_REDUCTION(add, unsigned, a + b)
EMU_WARP_REDUCTION(add, int, a + b)
EMU_WARP_REDUCTION(min, unsigned, a < b ? a : b)
EMU_WARP_REDUCTION(min, int, a < b ? a : b)
EMU_WARP_REDUCTION(max, unsigned, a < b ? b : a)
EMU_WARP_REDUCTION(max, int, a < b ? b : a)
EMU_WARP_REDUCTION(and, unsigned, a &b)
EMU_WARP_REDUCTION(or, unsigned, a | b)
EMU_WARP_REDUCTION(xor, unsigned, a ^ b)
#undef EMU_WARP_REDUCTION
