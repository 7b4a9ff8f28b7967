// __half and __half2 under the names of NVIDIA's header, based on emu/narrow.h.
#pragma once
#include "emu/math.h"
#include "emu/narrow.h"

using __half = emu::Narrow<emu::Binary16>;
using __half2 = emu::Narrow2<emu::Binary16>;
using half = __half;
using half2 = __half2;

EMU_INLINE float __half2float(__half x) { return float(x); }
EMU_INLINE __half __float2half(float x) { return __half(x); }
EMU_INLINE __half __float2half_rn(float x) { return __half(x); }
EMU_INLINE __half __double2half(double x) { return __half(x); }
EMU_INLINE __half __int2half_rn(int x) { return __half(x); }
EMU_INLINE unsigned short __half_as_ushort(__half x) { return x.bits; }
EMU_INLINE __half __ushort_as_half(unsigned short bits) { return __half::from_bits(bits); }
EMU_INLINE __half2 make_half2(__half x, __half y) { return {x, y}; }
EMU_INLINE __half2 __halves2half2(__half x, __half y) { return {x, y}; }
EMU_INLINE __half2 __half2half2(__half x) { return {x, x}; }
EMU_INLINE __half2 __float2half2_rn(float x) { return {__half(x), __half(x)}; }
EMU_INLINE __half2 __floats2half2_rn(float x, float y) { return {__half(x), __half(y)}; }
EMU_INLINE __half2 __float22half2_rn(float2 v) { return {__half(v.x), __half(v.y)}; }
EMU_INLINE float2 __half22float2(__half2 v) { return {float(v.x), float(v.y)}; }
EMU_INLINE __half __low2half(__half2 v) { return v.x; }
EMU_INLINE __half __high2half(__half2 v) { return v.y; }
EMU_INLINE float __low2float(__half2 v) { return float(v.x); }
EMU_INLINE float __high2float(__half2 v) { return float(v.y); }
EMU_INLINE short __half_as_short(__half x) { return short(x.bits); }
EMU_INLINE __half __short_as_half(short bits) { return __half::from_bits(uint16_t(bits)); }
EMU_INLINE int __half2int_rn(__half x) { return __float2int_rn(float(x)); }
EMU_INLINE int __half2int_rz(__half x) { return __float2int_rz(float(x)); }
EMU_INLINE unsigned __half2uint_rn(__half x) { return __float2uint_rn(float(x)); }
EMU_INLINE __half __uint2half_rn(unsigned x) { return __half(x); }
EMU_INLINE __half2 __low2half2(__half2 v) { return {v.x, v.x}; }
EMU_INLINE __half2 __high2half2(__half2 v) { return {v.y, v.y}; }
EMU_INLINE __half2 __lows2half2(__half2 a, __half2 b) { return {a.x, b.x}; }
EMU_INLINE __half2 __highs2half2(__half2 a, __half2 b) { return {a.y, b.y}; }
EMU_INLINE __half2 __lowhigh2highlow(__half2 v) { return {v.y, v.x}; }
