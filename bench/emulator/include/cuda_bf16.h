// __nv_bfloat16 and __nv_bfloat162 under the names of NVIDIA's header, based on emu/narrow.h.
#pragma once
#include "emu/narrow.h"

using __nv_bfloat16 = emu::Narrow<emu::Bfloat16>;
using __nv_bfloat162 = emu::Narrow2<emu::Bfloat16>;
using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;

EMU_INLINE float __bfloat162float(__nv_bfloat16 x) { return float(x); }
EMU_INLINE __nv_bfloat16 __float2bfloat16(float x) { return __nv_bfloat16(x); }
EMU_INLINE __nv_bfloat16 __float2bfloat16_rn(float x) { return __nv_bfloat16(x); }
EMU_INLINE __nv_bfloat16 __double2bfloat16(double x) { return __nv_bfloat16(x); }
EMU_INLINE unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }
EMU_INLINE __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) { return __nv_bfloat16::from_bits(bits); }
EMU_INLINE __nv_bfloat162 make_bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
EMU_INLINE __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
EMU_INLINE __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 x) { return {x, x}; }
EMU_INLINE __nv_bfloat162 __float2bfloat162_rn(float x) { return {__nv_bfloat16(x), __nv_bfloat16(x)}; }
EMU_INLINE __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {__nv_bfloat16(x), __nv_bfloat16(y)}; }
EMU_INLINE __nv_bfloat162 __float22bfloat162_rn(float2 v) { return {__nv_bfloat16(v.x), __nv_bfloat16(v.y)}; }
EMU_INLINE float2 __bfloat1622float2(__nv_bfloat162 v) { return {float(v.x), float(v.y)}; }
EMU_INLINE __nv_bfloat16 __low2bfloat16(__nv_bfloat162 v) { return v.x; }
EMU_INLINE __nv_bfloat16 __high2bfloat16(__nv_bfloat162 v) { return v.y; }
EMU_INLINE __nv_bfloat162 __low2bfloat162(__nv_bfloat162 v) { return {v.x, v.x}; }
EMU_INLINE __nv_bfloat162 __high2bfloat162(__nv_bfloat162 v) { return {v.y, v.y}; }
EMU_INLINE __nv_bfloat162 __lows2bfloat162(__nv_bfloat162 a, __nv_bfloat162 b) { return {a.x, b.x}; }
EMU_INLINE __nv_bfloat162 __highs2bfloat162(__nv_bfloat162 a, __nv_bfloat162 b) { return {a.y, b.y}; }
EMU_INLINE __nv_bfloat162 __lowhigh2highlow(__nv_bfloat162 v) { return {v.y, v.x}; }
EMU_INLINE float __low2float(__nv_bfloat162 v) { return float(v.x); }
EMU_INLINE float __high2float(__nv_bfloat162 v) { return float(v.y); }
