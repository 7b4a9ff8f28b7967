// Functions for the C++ that replaces `asm` statements (bench/emulator/instructions.py). Operands are passed as bits.
#pragma once
#include "../cuda_fp8.h"
#include "../ptx_twins.h"
#include "atomics.h"

namespace emu::ptx {

// Returns an operand as another type: with the same bits if the sizes are equal, otherwise converted.
template <class T, class F> EMU_INLINE T as(const F &from) {
  if constexpr (std::is_pointer_v<F>)
    return T(uintptr_t(from));
  else if constexpr (sizeof(T) == sizeof(F) && std::is_trivially_copyable_v<F>)
    return __builtin_bit_cast(T, from);
  else
    return T(from);
}
template <class To, class T> EMU_INLINE void put(To &to, T value) { to = as<To>(value); }
// Joins registers into one, and splits one into several: `mov.b64 %0, {%1, %2}`.
template <class T, class F, size_t n> EMU_INLINE T joined(const F (&parts)[n]) {
  static_assert(sizeof(T) == sizeof(F) * n, "the emulator has no mov between registers of these sizes");
  T whole;
  __builtin_memcpy(&whole, parts, sizeof(T));
  return whole;
}
template <unsigned parts, unsigned number, class T> EMU_INLINE auto piece(T whole) {
  using Word = std::conditional_t<sizeof(T) / parts == 4, unsigned,
                                  std::conditional_t<sizeof(T) / parts == 2, unsigned short, unsigned char>>;
  return Word(as<std::conditional_t<sizeof(T) == 8, unsigned long long, unsigned>>(whole) >> number * 8 * sizeof(Word));
}

template <class T> EMU_INLINE T *shared(unsigned long long address, Site site) {
  return static_cast<T *>(shared_pointer(unsigned(address), site));
}
template <class T> EMU_INLINE T *cluster(unsigned long long address, Site site) {
  return static_cast<T *>(cluster_pointer(unsigned(address), site));
}
template <class T> EMU_INLINE T *generic(unsigned long long address, Site) { return reinterpret_cast<T *>(address); }

// N elements that one access moves.
template <class T, int N> struct alignas(sizeof(T) * N) Vector {
  T e[N];
};
template <class T, int N> EMU_INLINE Vector<T, N> load(const T *from) {
  return *reinterpret_cast<const Vector<T, N> *>(from);
}
template <class T, int N> EMU_INLINE void store(T *to, Vector<T, N> value) {
  *reinterpret_cast<Vector<T, N> *>(to) = value;
}

EMU_INLINE unsigned lanes_below() { return (1u << lane()) - 1; }
EMU_INLINE unsigned warp_of_block() {
  return ((threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x) / 32;
}

EMU_INLINE unsigned bits_of_field(unsigned x, unsigned from, unsigned count) {
  return from > 31 ? 0 : x >> from & (count > 31 ? ~0u : (1u << count) - 1);
}
EMU_INLINE unsigned insert(unsigned field, unsigned into, unsigned from, unsigned count) {
  const unsigned mask = (count > 31 ? ~0u : (1u << count) - 1) << from;
  return (into & ~mask) | (field << from & mask);
}
EMU_INLINE unsigned table(unsigned a, unsigned b, unsigned c, unsigned truth) {
  unsigned result = 0;
  for (unsigned bit = 0; bit < 32; ++bit)
    result |= (truth >> ((a >> bit & 1) << 2 | (b >> bit & 1) << 1 | (c >> bit & 1)) & 1) << bit;
  return result;
}
// The full product, twice as wide as its factors; its upper half; sums and differences with carries.
template <class T> using Twice = std::conditional_t<sizeof(T) == 8, __int128, std::conditional_t<sizeof(T) == 4, long long, int>>;
template <class T> using Wide = std::conditional_t<std::is_signed_v<T>, Twice<T>, std::make_unsigned_t<Twice<T>>>;
template <class T> EMU_INLINE Wide<T> wide(T a, T b) { return Wide<T>(a) * Wide<T>(b); }
template <class T> EMU_INLINE T high(T a, T b) { return T(wide(a, b) >> sizeof(T) * 8); }
template <class T> EMU_INLINE T sum(T a, T b, bool in, bool &out) {
  using Bits = std::make_unsigned_t<T>;
  Bits half, whole;
  out = __builtin_add_overflow(Bits(a), Bits(b), &half) | __builtin_add_overflow(half, Bits(in), &whole);
  return T(whole);
}
template <class T> EMU_INLINE T difference(T a, T b, bool in, bool &out) {
  using Bits = std::make_unsigned_t<T>;
  Bits half, whole;
  out = __builtin_sub_overflow(Bits(a), Bits(b), &half) | __builtin_sub_overflow(half, Bits(in), &whole);
  return T(whole);
}
template <class T> EMU_INLINE unsigned pair(float high, float low) {
  return unsigned(T(high).bits) << 16 | T(low).bits;
}
// shfl.sync. bounds: the segment mask and the clamp, encoded as in the PTX ISA.
template <int mode> EMU_INLINE unsigned shuffled(unsigned x, unsigned by, unsigned bounds, unsigned mask, bool &in, Site site) {
  const unsigned segment = bounds >> 8 & 31, clamp = bounds & 31, own = lane();
  const int most = int((own & segment) | (clamp & ~segment)), least = int(own & segment);
  const int source = mode == 0 ? int((by & ~segment & 31) | (own & segment)) : mode == 1 ? int(own ^ by)
                     : mode == 2 ? int(own + by) : int(own) - int(by);
  in = mode == 3 ? source >= most : source <= most;
  (void)least;
  return shuffle(mask, x, in ? source : int(own), site);
}

}  // namespace emu::ptx
