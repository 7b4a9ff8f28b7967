// Cached loads, bit operations and intrinsics of single and double precision.
#pragma once
#include <math.h>  // not <cmath>, with which exp(float) computes in double

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
EMU_INLINE long long __double_as_longlong(double x) { return __builtin_bit_cast(long long, x); }
EMU_INLINE double __longlong_as_double(long long x) { return __builtin_bit_cast(double, x); }
EMU_INLINE int __double2hiint(double x) { return int(__double_as_longlong(x) >> 32); }
EMU_INLINE int __double2loint(double x) { return int(__double_as_longlong(x)); }
EMU_INLINE double __hiloint2double(int high, int low) {
  return __longlong_as_double((long long)((unsigned long long)unsigned(high) << 32 | unsigned(low)));
}
EMU_INLINE int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
EMU_INLINE int __ffsll(long long x) { return __builtin_ffsll(x); }
EMU_INLINE unsigned long long __brevll(unsigned long long x) {
  return (unsigned long long)__brev(unsigned(x)) << 32 | __brev(unsigned(x >> 32));
}
EMU_INLINE unsigned __umul24(unsigned a, unsigned b) { return (a & 0xffffff) * (b & 0xffffff); }
EMU_INLINE int __mulhi(int a, int b) { return int((long long)a * b >> 32); }
EMU_INLINE unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)((unsigned __int128)a * b >> 64);
}
EMU_INLINE long long __mul64hi(long long a, long long b) { return (long long)((__int128)a * b >> 64); }
EMU_INLINE int __hadd(int a, int b) { return int(((long long)a + b) >> 1); }
EMU_INLINE unsigned __sad(int a, int b, unsigned c) { return c + unsigned(a < b ? (long long)b - a : (long long)a - b); }
EMU_INLINE unsigned __usad(unsigned a, unsigned b, unsigned c) { return c + (a < b ? b - a : a - b); }

namespace emu {

// Returns c plus the products of elements 0 to count - 1 of a (of type A) with the bytes of b (of type B) from byte
// `from` on.
template <class A, class B> EMU_INLINE int dot(int a, int b, int c, int count = 4, int from = 0) {
  unsigned sum = unsigned(c);
  for (int i = 0; i < count; ++i) sum += unsigned(int(A(a >> i * 8 * int(sizeof(A)))) * int(B(b >> (i + from) * 8)));
  return int(sum);
}

// Converts to an integer as the device does: NaN becomes 0 (2^63 in 64 bits), and x out of range the nearest T.
template <class T, class F> EMU_INLINE T saturated(F x) {
  if (x != x) return sizeof(T) == 8 ? T(1ull << 63) : T(0);
  constexpr F end = F(T(1) << (sizeof(T) * 8 - 2)) * (std::is_signed_v<T> ? 2 : 4);
  if (x >= end) return std::is_signed_v<T> ? T(~(T(1) << (sizeof(T) * 8 - 1))) : T(~T(0));
  return x <= (std::is_signed_v<T> ? -end : F(0)) ? (std::is_signed_v<T> ? T(T(1) << (sizeof(T) * 8 - 1)) : T(0)) : T(x);
}

}  // namespace emu

EMU_INLINE int __dp4a(int a, int b, int c) { return emu::dot<signed char, signed char>(a, b, c); }
EMU_INLINE unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
  return unsigned(emu::dot<unsigned char, unsigned char>(int(a), int(b), int(c)));
}
EMU_INLINE int __dp2a_lo(int a, int b, int c) { return emu::dot<short, signed char>(a, b, c, 2); }
EMU_INLINE int __dp2a_hi(int a, int b, int c) { return emu::dot<short, signed char>(a, b, c, 2, 2); }

#define EMU_CONVERSIONS(F, from, T, to)                                                        \
  EMU_INLINE T __##from##2##to##_rn(F x) { return emu::saturated<T>(std::nearbyint(x)); }       \
  EMU_INLINE T __##from##2##to##_rz(F x) { return emu::saturated<T>(std::trunc(x)); }           \
  EMU_INLINE T __##from##2##to##_ru(F x) { return emu::saturated<T>(std::ceil(x)); }            \
  EMU_INLINE T __##from##2##to##_rd(F x) { return emu::saturated<T>(std::floor(x)); }           \
  EMU_INLINE F __##to##2##from##_rn(T x) { return F(x); }
EMU_CONVERSIONS(float, float, int, int)
EMU_CONVERSIONS(float, float, unsigned, uint)
EMU_CONVERSIONS(float, float, long long, ll)
EMU_CONVERSIONS(float, float, unsigned long long, ull)
EMU_CONVERSIONS(double, double, int, int)
EMU_CONVERSIONS(double, double, unsigned, uint)
EMU_CONVERSIONS(double, double, long long, ll)
EMU_CONVERSIONS(double, double, unsigned long long, ull)
#undef EMU_CONVERSIONS
EMU_INLINE float __double2float_rn(double x) { return float(x); }

EMU_INLINE float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
EMU_INLINE double __fma_rn(double a, double b, double c) { return std::fma(a, b, c); }
EMU_INLINE float __fadd_rn(float a, float b) { return a + b; }
EMU_INLINE float __fmul_rn(float a, float b) { return a * b; }
EMU_INLINE float __fsub_rn(float a, float b) { return a - b; }
EMU_INLINE float __fdiv_rn(float a, float b) { return a / b; }
EMU_INLINE double __dadd_rn(double a, double b) { return a + b; }
EMU_INLINE double __dsub_rn(double a, double b) { return a - b; }
EMU_INLINE double __dmul_rn(double a, double b) { return a * b; }
EMU_INLINE double __ddiv_rn(double a, double b) { return a / b; }
EMU_INLINE double __drcp_rn(double x) { return 1.0 / x; }
EMU_INLINE double __dsqrt_rn(double x) { return std::sqrt(x); }
EMU_INLINE float __frsqrt_rn(float x) { return float(1.0 / std::sqrt(double(x))); }
EMU_INLINE float __fdividef(float a, float b) { return a / b; }
EMU_INLINE float __frcp_rn(float x) { return 1.0f / x; }
EMU_INLINE float __fsqrt_rn(float x) { return std::sqrt(x); }
EMU_INLINE float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
EMU_INLINE float __expf(float x) { return std::exp(x); }
EMU_INLINE float __logf(float x) { return std::log(x); }
EMU_INLINE float __exp10f(float x) { return float(std::pow(10.0, double(x))); }
EMU_INLINE float exp10f(float x) { return float(std::pow(10.0, double(x))); }
EMU_INLINE float __log2f(float x) { return std::log2(x); }
EMU_INLINE float __log10f(float x) { return std::log10(x); }
EMU_INLINE float __powf(float x, float y) { return std::pow(x, y); }
EMU_INLINE float __sinf(float x) { return std::sin(x); }
EMU_INLINE float __cosf(float x) { return std::cos(x); }
EMU_INLINE float __tanf(float x) { return std::tan(x); }
EMU_INLINE void __sincosf(float x, float *s, float *c) { *s = std::sin(x), *c = std::cos(x); }
EMU_INLINE float __tanhf(float x) { return std::tanh(x); }
EMU_INLINE float normcdff(float x) { return 0.5f * std::erfc(-x * float(M_SQRT1_2)); }
EMU_INLINE float sinpif(float x) { return float(std::sin(M_PI * double(x))); }
EMU_INLINE float cospif(float x) { return float(std::cos(M_PI * double(x))); }
EMU_INLINE float rsqrt(float x) { return 1.0f / std::sqrt(x); }
EMU_INLINE double rsqrt(double x) { return 1.0 / std::sqrt(x); }
EMU_INLINE float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
EMU_INLINE void sincospif(float x, float *s, float *c) {
  *s = float(std::sin(M_PI * double(x)));
  *c = float(std::cos(M_PI * double(x)));
}
using std::fma, std::fmaf, std::sqrt, std::fabs, std::abs;

#define EMU_MIN_MAX(T)                                           \
  constexpr EMU_INLINE T min(T a, T b) { return b < a ? b : a; } \
  constexpr EMU_INLINE T max(T a, T b) { return a < b ? b : a; }
EMU_MIN_MAX(int)
EMU_MIN_MAX(unsigned)
EMU_MIN_MAX(long)
EMU_MIN_MAX(unsigned long)
EMU_MIN_MAX(long long)
EMU_MIN_MAX(unsigned long long)
#undef EMU_MIN_MAX
// If one operand is a NaN, min and max return the other.
constexpr EMU_INLINE float min(float a, float b) { return b < a || a != a ? b : a; }
constexpr EMU_INLINE float max(float a, float b) { return a < b || a != a ? b : a; }
constexpr EMU_INLINE double min(double a, double b) { return b < a || a != a ? b : a; }
constexpr EMU_INLINE double max(double a, double b) { return a < b || a != a ? b : a; }
template <class A, class B>
  requires(std::is_arithmetic_v<A> && std::is_arithmetic_v<B> && !std::is_same_v<A, B>)
constexpr EMU_INLINE auto min(A a, B b) {
  return min(std::common_type_t<A, B>(a), std::common_type_t<A, B>(b));
}
template <class A, class B>
  requires(std::is_arithmetic_v<A> && std::is_arithmetic_v<B> && !std::is_same_v<A, B>)
constexpr EMU_INLINE auto max(A a, B b) {
  return max(std::common_type_t<A, B>(a), std::common_type_t<A, B>(b));
}
