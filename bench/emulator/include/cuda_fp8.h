// __nv_fp8_e4m3 and __nv_fp8_e5m2, single, in pairs and in fours, under the names of NVIDIA's header.
#pragma once
#include "cuda_bf16.h"
#include "cuda_fp16.h"

enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };
using __nv_fp8_storage_t = unsigned char;
using __nv_fp8x2_storage_t = unsigned short;
using __nv_fp8x4_storage_t = unsigned;

namespace emu {

// A format of 8 bits. mantissa: its width. largest: the code of the largest number; above it are infinity and NaN.
template <int mantissa, int bias, unsigned largest, bool has_infinity> struct Byte {
  EMU_INLINE static unsigned char encode(double value, bool saturates = true) {
    const unsigned sign = std::signbit(value) ? 0x80 : 0;
    if (value != value) return (unsigned char)(sign | 0x7f);
    const double x = std::fabs(value);
    const int exponent = x > 0 ? (std::ilogb(x) < 1 - bias ? 1 - bias : std::ilogb(x)) : 1 - bias;
    const double units = std::isinf(x) ? 0x1p30 : std::nearbyint(std::ldexp(x, mantissa - exponent));
    const double code = units + (std::isinf(x) ? 0 : double((exponent + bias - 1) << mantissa));
    if (code > largest) return (unsigned char)(sign | (saturates ? largest : has_infinity ? largest + 1 : 0x7f));
    return (unsigned char)(sign | unsigned(code));
  }
  EMU_INLINE static float decode(unsigned char bits) {
    const unsigned code = bits & 0x7f, exponent = code >> mantissa, rest = code & ((1u << mantissa) - 1);
    float x = exponent ? std::ldexp(float(rest | 1u << mantissa), int(exponent) - bias - mantissa)
                       : std::ldexp(float(rest), 1 - bias - mantissa);
    if (code > largest) x = has_infinity && code == largest + 1 ? __builtin_inff() : __builtin_nanf("");
    return bits & 0x80 ? -x : x;
  }
};
using E4m3 = Byte<3, 7, 0x7e, false>;
using E5m2 = Byte<2, 15, 0x7b, true>;

}  // namespace emu

EMU_INLINE __nv_fp8_storage_t __nv_cvt_float_to_fp8(float x, __nv_saturation_t s, __nv_fp8_interpretation_t kind) {
  return kind == __NV_E4M3 ? emu::E4m3::encode(x, s == __NV_SATFINITE) : emu::E5m2::encode(x, s == __NV_SATFINITE);
}
EMU_INLINE __nv_fp8x2_storage_t __nv_cvt_float2_to_fp8x2(float2 v, __nv_saturation_t s, __nv_fp8_interpretation_t kind) {
  return __nv_fp8x2_storage_t(__nv_cvt_float_to_fp8(v.x, s, kind) | __nv_cvt_float_to_fp8(v.y, s, kind) << 8);
}

#define EMU_FP8(kind, Format)                                                                              \
  struct __nv_fp8_##kind {                                                                                 \
    __nv_fp8_storage_t __x;                                                                                \
    __nv_fp8_##kind() = default;                                                                           \
    template <class T> EMU_INLINE explicit __nv_fp8_##kind(T x) : __x(emu::Format::encode(double(x))) {}   \
    EMU_INLINE explicit operator float() const { return emu::Format::decode(__x); }                        \
    EMU_INLINE explicit operator double() const { return emu::Format::decode(__x); }                       \
    EMU_INLINE explicit operator __half() const { return __half(emu::Format::decode(__x)); }               \
    EMU_INLINE explicit operator __nv_bfloat16() const { return __nv_bfloat16(emu::Format::decode(__x)); } \
  };                                                                                                       \
  struct __nv_fp8x2_##kind {                                                                               \
    __nv_fp8x2_storage_t __x;                                                                              \
    __nv_fp8x2_##kind() = default;                                                                         \
    EMU_INLINE explicit __nv_fp8x2_##kind(float2 v)                                                        \
        : __x(__nv_fp8x2_storage_t(emu::Format::encode(v.x) | emu::Format::encode(v.y) << 8)) {}           \
    EMU_INLINE explicit operator float2() const {                                                          \
      return {emu::Format::decode((unsigned char)__x), emu::Format::decode((unsigned char)(__x >> 8))};    \
    }                                                                                                      \
  };                                                                                                       \
  struct __nv_fp8x4_##kind {                                                                               \
    __nv_fp8x4_storage_t __x;                                                                              \
    __nv_fp8x4_##kind() = default;                                                                         \
    EMU_INLINE explicit __nv_fp8x4_##kind(float4 v)                                                        \
        : __x(emu::Format::encode(v.x) | emu::Format::encode(v.y) << 8 | emu::Format::encode(v.z) << 16 |  \
              unsigned(emu::Format::encode(v.w)) << 24) {}                                                 \
    EMU_INLINE explicit operator float4() const {                                                          \
      return {emu::Format::decode((unsigned char)__x), emu::Format::decode((unsigned char)(__x >> 8)),     \
              emu::Format::decode((unsigned char)(__x >> 16)), emu::Format::decode((unsigned char)(__x >> 24))}; \
    }                                                                                                      \
  };
EMU_FP8(e4m3, E4m3)
EMU_FP8(e5m2, E5m2)
#undef EMU_FP8
