// Storage types, one element at a time: sums are kept in FP32, whatever type the operands are stored as.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

__device__ __forceinline__ float widened(float x) { return x; }
__device__ __forceinline__ float widened(__half x) { return __half2float(x); }
__device__ __forceinline__ float widened(__nv_bfloat16 x) { return __bfloat162float(x); }

// Stores the sum, rounded to nearest.
__device__ __forceinline__ void store_sum(float *to, float sum) { *to = sum; }
__device__ __forceinline__ void store_sum(__half *to, float sum) { *to = __float2half_rn(sum); }
__device__ __forceinline__ void store_sum(__nv_bfloat16 *to, float sum) { *to = __float2bfloat16_rn(sum); }
