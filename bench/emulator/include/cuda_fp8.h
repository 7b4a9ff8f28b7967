// __nv_fp8_e4m3 and __nv_fp8_e5m2 as NVIDIA's header names them: operands of wgmma, without conversions.
#pragma once

struct __nv_fp8_e4m3 {
  unsigned char __x;
};
struct __nv_fp8_e5m2 {
  unsigned char __x;
};
