// A signed byte for each of 256 neighbours, in units of a float: their largest magnitude over 127. On the wire a block
// of 1024 bytes has 260.
#pragma once
#include "aggregate/elements.cuh"

struct Int8 {
  static constexpr unsigned BLOCK = 256, WORDS = 64, SCALES = 1;

  // Stores the code of x: a lane has two words, of four elements each, the first in the lowest byte. What it misses
  // stays in x. x: 0 where the lane has no element.
  static __device__ __forceinline__ void encode(float (&x)[BLOCK / 32], size_t, unsigned *words, float *scales) {
    float largest = 0.0f;
#pragma unroll
    for (const float element : x) largest = fmaxf(largest, fabsf(element));
#pragma unroll
    for (unsigned lanes = 16; lanes > 0; lanes /= 2)
      largest = fmaxf(largest, __shfl_xor_sync(EVERY_LANE, largest, lanes));
    const float inverse = largest > 1e-30f ? 127.0f / largest : 0.0f;  // it would overflow
    const float scale = largest / 127.0f;
    unsigned own[2] = {};
#pragma unroll
    for (unsigned k = 0; k < BLOCK / 32; ++k) {
      const int number = __float2int_rn(x[k] * inverse);
      own[k / 4] |= (unsigned(number) & 0xff) << k % 4 * 8;
      x[k] -= scale * float(number);
    }
    words[lane_id()] = own[0];
    words[32 + lane_id()] = own[1];
    if (lane_id() == 0) *scales = scale;
  }

  // Adds what a code holds of the lane's elements.
  static __device__ __forceinline__ void add(float (&x)[BLOCK / 32], const unsigned *words, const float *scales) {
    const unsigned own[] = {words[lane_id()], words[32 + lane_id()]};
    const float scale = *scales;
#pragma unroll
    for (unsigned k = 0; k < BLOCK / 32; ++k) x[k] += scale * float(static_cast<signed char>(own[k / 4] >> k % 4 * 8));
  }
};
