// Cached loads, bit operations and single-precision intrinsics.
#pragma once
#include <cmath>

#include "keywords.h"

#define EMU_LOAD(name) \
  template <class T> EMU_INLINE T name(const T *address) { return *address; }
EMU_LOAD(__ldg)
EMU_LOAD(__ldca)
EMU_LOAD(__ldcg)
EMU_LOAD(__ldcs)
EMU_LOAD(__ldlu)
EMU_LOAD(__ldcv)
#undef EMU_LOAD

#define EMU_STORE(name) \
  template <class T> EMU_INLINE void name(T *address, std::type_identity_t<T> value) { *address = value; }
EMU_STORE(__stwb)
EMU_STORE(__stcg)
EMU_STORE(__stcs)
EMU_STORE(__stwt)
#undef EMU_STORE

EMU_INLINE int __popc(unsigned x) { return __builtin_popcount(x); }
EMU_INLINE int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
EMU_INLINE int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
EMU_INLINE int __ffs(int x) { return __builtin_ffs(x); }
inline unsigned __brev(unsigned x) {
  unsigned reversed = 0;
  for (int bit = 0; bit < 32; ++bit) reversed |= (x >> bit & 1) << (31 - bit);
  return reversed;
}
EMU_INLINE unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  shift &= 31;
  return shift ? high << shift | low >> (32 - shift) : high;
}
EMU_INLINE unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  shift &= 31;
  return shift ? low >> shift | high << (32 - shift) : low;
}
EMU_INLINE unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned shift) {
  return shift < 32 ? __funnelshift_l(low, high, shift) : low;
}
EMU_INLINE unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned shift) {
  return shift < 32 ? __funnelshift_r(low, high, shift) : high;
}
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  unsigned permuted = 0;
  for (int byte = 0; byte < 4; ++byte) {
    const unsigned chosen = selector >> 4 * byte & 7;
    permuted |= ((chosen < 4 ? x : y) >> (chosen & 3) * 8 & 0xff) << 8 * byte;
  }
  return permuted;
}
EMU_INLINE int __mul24(int a, int b) { return ((a << 8) >> 8) * ((b << 8) >> 8); }
EMU_INLINE unsigned __umulhi(unsigned a, unsigned b) { return unsigned((unsigned long long)a * b >> 32); }
EMU_INLINE int __float_as_int(float x) { return __builtin_bit_cast(int, x); }
EMU_INLINE unsigned __float_as_uint(float x) { return __builtin_bit_cast(unsigned, x); }
EMU_INLINE float __int_as_float(int x) { return __builtin_bit_cast(float, x); }
EMU_INLINE float __uint_as_float(unsigned x) { return __builtin_bit_cast(float, x); }
EMU_INLINE int __float2int_rn(float x) { return int(std::nearbyint(x)); }
EMU_INLINE int __float2int_rz(float x) { return int(x); }
EMU_INLINE float __int2float_rn(int x) { return float(x); }

EMU_INLINE float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
EMU_INLINE double __fma_rn(double a, double b, double c) { return std::fma(a, b, c); }
EMU_INLINE float __fadd_rn(float a, float b) { return a + b; }
EMU_INLINE float __fmul_rn(float a, float b) { return a * b; }
EMU_INLINE float __fdividef(float a, float b) { return a / b; }
EMU_INLINE float __frcp_rn(float x) { return 1.0f / x; }
EMU_INLINE float __fsqrt_rn(float x) { return std::sqrt(x); }
EMU_INLINE float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
EMU_INLINE float __expf(float x) { return std::exp(x); }
EMU_INLINE float __logf(float x) { return std::log(x); }
EMU_INLINE float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
EMU_INLINE void sincospif(float x, float *s, float *c) {
  *s = float(std::sin(M_PI * double(x)));
  *c = float(std::cos(M_PI * double(x)));
}
using std::fma, std::fmaf, std::sqrt, std::fabs, std::abs;

#define EMU_MIN_MAX(T)                                                \
  constexpr EMU_INLINE T min(T a, T b) { return b < a ? b : a; }      \
  constexpr EMU_INLINE T max(T a, T b) { return a < b ? b : a; }
EMU_MIN_MAX(int)
EMU_MIN_MAX(unsigned)
EMU_MIN_MAX(long)
EMU_MIN_MAX(unsigned long)
EMU_MIN_MAX(long long)
EMU_MIN_MAX(unsigned long long)
EMU_MIN_MAX(float)
EMU_MIN_MAX(double)
#undef EMU_MIN_MAX
