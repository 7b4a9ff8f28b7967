// The code of a block of 256 neighbours: a signed byte for each, in units of a float, the largest magnitude over 127.
// The 1024 bytes of a block travel as 260.
#pragma once
#include "aggregate/elements.cuh"

struct Int8 {
  static constexpr unsigned BLOCK = 256, WORDS = 64, SCALES = 1;

  // Stores the code of x, and leaves the quantisation error in x. A lane has two words, of four elements each, the
  // first in the lowest byte. x: 0 where the lane has no element.
  static __device__ __forceinline__ void encode(float (&x)[BLOCK / 32], size_t, unsigned *words, float *scales) {
    float largest = 0.0f;
#pragma unroll
    for (const float element : x) largest = fmaxf(largest, fabsf(element));
#pragma unroll
    for (unsigned lanes = 16; lanes > 0; lanes /= 2)
      largest = fmaxf(largest, __shfl_xor_sync(EVERY_LANE, largest, lanes));
    const float inverse = largest > 1e-30f ? 127.0f / largest : 0.0f;  // the quotient of a tiny one would overflow
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

  // Decodes the lane's elements, and adds them to x.
  static __device__ __forceinline__ void add(float (&x)[BLOCK / 32], const unsigned *words, const float *scales) {
    const unsigned own[] = {words[lane_id()], words[32 + lane_id()]};
    const float scale = *scales;
#pragma unroll
    for (unsigned k = 0; k < BLOCK / 32; ++k) x[k] += scale * float(static_cast<signed char>(own[k / 4] >> k % 4 * 8));
  }
};
