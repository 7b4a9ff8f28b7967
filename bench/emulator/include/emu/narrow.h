// 16-bit floating point: storage, rounding, arithmetic in float (double for the fused multiply-add) and rounding back.
#pragma once
#include <cmath>
#include <cstring>

#include "keywords.h"

namespace emu {

// Removes the lowest `cut` bits, and rounds to nearest, ties to even.
EMU_INLINE uint32_t round_off(uint32_t bits, unsigned cut) {
  const uint32_t half = 1u << (cut - 1), rest = bits & ((1u << cut) - 1), whole = bits >> cut;
  return whole + (rest > half || (rest == half && (whole & 1)));
}

struct Binary16 {
  EMU_INLINE static uint16_t encode(float value) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, value), magnitude = bits & 0x7fffffff;
    const auto sign = uint16_t(bits >> 16 & 0x8000);
    if (magnitude > 0x7f800000) return 0x7fff;               // every NaN, as the device does
    if (magnitude >= 0x477ff000) return sign | 0x7c00;       // rounds to 65536 or more
    if (magnitude < 0x33000000) return sign;                 // less than half of the least subnormal
    if (magnitude >= 0x38800000) return sign | uint16_t(round_off(magnitude - 0x38000000, 13));
    const unsigned cut = 126 - (magnitude >> 23);            // subnormal: units of 2^-24
    return sign | uint16_t(round_off((magnitude & 0x7fffff) | 0x800000, cut));
  }
  EMU_INLINE static float decode(uint16_t bits) {
    const uint32_t sign = uint32_t(bits & 0x8000) << 16, exponent = bits >> 10 & 31, mantissa = bits & 1023;
    if (exponent == 31) return __builtin_bit_cast(float, sign | 0x7f800000 | mantissa << 13);
    if (exponent) return __builtin_bit_cast(float, sign | (exponent + 112) << 23 | mantissa << 13);
    const float magnitude = float(mantissa) * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  }
};

struct Bfloat16 {
  EMU_INLINE static uint16_t encode(float value) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, value);
    if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff;
    return uint16_t(round_off(bits, 16));
  }
  EMU_INLINE static float decode(uint16_t bits) { return __builtin_bit_cast(float, uint32_t(bits) << 16); }
};

// Rounds to odd, so that a second rounding to fewer bits gives the result of a single rounding.
EMU_INLINE float to_odd(double value) {
  const float nearest = float(value);
  if (double(nearest) == value || !std::isfinite(nearest)) return nearest;
  auto bits = __builtin_bit_cast(uint32_t, nearest);
  const bool away = std::fabs(double(nearest)) > std::fabs(value);
  bits -= away;  // towards zero
  return __builtin_bit_cast(float, bits | 1);
}

template <class Format> struct alignas(2) Narrow {
  uint16_t bits;

  Narrow() = default;
  EMU_INLINE Narrow(float value) : bits(Format::encode(value)) {}
  EMU_INLINE Narrow(double value) : bits(Format::encode(to_odd(value))) {}
  EMU_INLINE Narrow(int value) : Narrow(double(value)) {}
  EMU_INLINE Narrow(unsigned value) : Narrow(double(value)) {}
  EMU_INLINE operator float() const { return Format::decode(bits); }
  EMU_INLINE static Narrow from_bits(uint16_t bits) {
    Narrow made;
    made.bits = bits;
    return made;
  }
  EMU_INLINE Narrow &operator+=(Narrow other) { return *this = Narrow(float(*this) + float(other)); }
  EMU_INLINE Narrow &operator-=(Narrow other) { return *this = Narrow(float(*this) - float(other)); }
  EMU_INLINE Narrow &operator*=(Narrow other) { return *this = Narrow(float(*this) * float(other)); }
};

template <class Format> struct alignas(4) Narrow2 {
  Narrow<Format> x, y;
};

#define EMU_ARITHMETIC(symbol)                                                            \
  template <class F> EMU_INLINE Narrow<F> operator symbol(Narrow<F> a, Narrow<F> b) {     \
    return Narrow<F>(float(a) symbol float(b));                                           \
  }                                                                                       \
  template <class F> EMU_INLINE Narrow2<F> operator symbol(Narrow2<F> a, Narrow2<F> b) {  \
    return {a.x symbol b.x, a.y symbol b.y};                                              \
  }
EMU_ARITHMETIC(+)
EMU_ARITHMETIC(-)
EMU_ARITHMETIC(*)
EMU_ARITHMETIC(/)
#undef EMU_ARITHMETIC
template <class F> EMU_INLINE Narrow<F> operator-(Narrow<F> a) { return Narrow<F>::from_bits(a.bits ^ 0x8000); }

#define EMU_COMPARISON(symbol) \
  template <class F> EMU_INLINE bool operator symbol(Narrow<F> a, Narrow<F> b) { return float(a) symbol float(b); }
EMU_COMPARISON(<)
EMU_COMPARISON(>)
EMU_COMPARISON(<=)
EMU_COMPARISON(>=)
EMU_COMPARISON(==)
EMU_COMPARISON(!=)
#undef EMU_COMPARISON

}  // namespace emu

template <class F> using EmuNarrow = emu::Narrow<F>;
template <class F> using EmuNarrow2 = emu::Narrow2<F>;

// The functions of CUDA that __half and __nv_bfloat16 share.
#define EMU_BINARY(name, name2, expression)                                                                \
  template <class F> EMU_INLINE EmuNarrow<F> name(EmuNarrow<F> a, EmuNarrow<F> b) { return expression; }   \
  template <class F> EMU_INLINE EmuNarrow2<F> name2(EmuNarrow2<F> a, EmuNarrow2<F> b) {                    \
    return {name(a.x, b.x), name(a.y, b.y)};                                                               \
  }
EMU_BINARY(__hadd, __hadd2, a + b)
EMU_BINARY(__hsub, __hsub2, a - b)
EMU_BINARY(__hmul, __hmul2, a *b)
EMU_BINARY(__hdiv, __h2div, a / b)
// If one operand is a NaN, these return the other; std::fmax returns a NaN if the operand is a signalling NaN.
EMU_BINARY(__hmax, __hmax2, a != a || a < b ? b : a)
EMU_BINARY(__hmin, __hmin2, a != a || b < a ? b : a)
#undef EMU_BINARY

// The product of two 16-bit numbers is exact in double; the sum is rounded to double, then to 16 bits.
template <class F> EMU_INLINE EmuNarrow<F> __hfma(EmuNarrow<F> a, EmuNarrow<F> b, EmuNarrow<F> c) {
  return EmuNarrow<F>(double(float(a)) * double(float(b)) + double(float(c)));
}
template <class F> EMU_INLINE EmuNarrow2<F> __hfma2(EmuNarrow2<F> a, EmuNarrow2<F> b, EmuNarrow2<F> c) {
  return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}
template <class F> EMU_INLINE EmuNarrow<F> __hneg(EmuNarrow<F> a) { return -a; }
template <class F> EMU_INLINE EmuNarrow<F> __habs(EmuNarrow<F> a) { return EmuNarrow<F>::from_bits(a.bits & 0x7fff); }
template <class F> EMU_INLINE EmuNarrow2<F> __hneg2(EmuNarrow2<F> a) { return {-a.x, -a.y}; }
#define EMU_UNARY(name, expression)                                                                                 \
  template <class F> EMU_INLINE EmuNarrow<F> h##name(EmuNarrow<F> a) {                                                \
    const float x = float(a);                                                                                         \
    return EmuNarrow<F>(float(expression));                                                                           \
  }                                                                                                                   \
  template <class F> EMU_INLINE EmuNarrow2<F> h2##name(EmuNarrow2<F> a) { return {h##name(a.x), h##name(a.y)}; }
EMU_UNARY(exp, std::exp(x))
EMU_UNARY(exp2, std::exp2(x))
EMU_UNARY(log, std::log(x))
EMU_UNARY(log2, std::log2(x))
EMU_UNARY(sqrt, std::sqrt(x))
EMU_UNARY(rsqrt, 1.0f / std::sqrt(x))
EMU_UNARY(rcp, 1.0f / x)
EMU_UNARY(sin, std::sin(x))
EMU_UNARY(cos, std::cos(x))
EMU_UNARY(tanh, std::tanh(x))
EMU_UNARY(floor, std::floor(x))
EMU_UNARY(ceil, std::ceil(x))
EMU_UNARY(rint, std::nearbyint(x))
#undef EMU_UNARY
template <class F> EMU_INLINE EmuNarrow2<F> __habs2(EmuNarrow2<F> a) { return {__habs(a.x), __habs(a.y)}; }
template <class F> EMU_INLINE bool __hge(EmuNarrow<F> a, EmuNarrow<F> b) { return a >= b; }
template <class F> EMU_INLINE bool __hle(EmuNarrow<F> a, EmuNarrow<F> b) { return a <= b; }
template <class F> EMU_INLINE bool __hne(EmuNarrow<F> a, EmuNarrow<F> b) { return a != b; }
template <class F> EMU_INLINE int __hisinf(EmuNarrow<F> a) { return std::isinf(float(a)) ? float(a) < 0 ? -1 : 1 : 0; }
template <class F> EMU_INLINE bool __hlt(EmuNarrow<F> a, EmuNarrow<F> b) { return a < b; }
template <class F> EMU_INLINE bool __hgt(EmuNarrow<F> a, EmuNarrow<F> b) { return a > b; }
template <class F> EMU_INLINE bool __heq(EmuNarrow<F> a, EmuNarrow<F> b) { return a == b; }
template <class F> EMU_INLINE bool __hisnan(EmuNarrow<F> a) { return std::isnan(float(a)); }
