// The code of a block of 512 neighbours: a bit for each, set where it is at least 0, and two floats: the mean of the
// negative ones, and that of the others. The 2048 bytes of a block travel as 72.
#pragma once
#include "aggregate/elements.cuh"

struct OneBit {
  static constexpr unsigned BLOCK = 512, WORDS = 16, SCALES = 2;

  // Stores the code of x, and leaves the quantisation error in x. Bit i of word k is that of element k of lane i.
  // x: 0 where the lane has no element. left: the elements of the row from the block's first on.
  static __device__ __forceinline__ void encode(float (&x)[BLOCK / 32], size_t left, unsigned *words, float *scales) {
    unsigned own = 0, upper_count = 0;
    float lower = 0.0f, upper = 0.0f;
#pragma unroll
    for (unsigned k = 0; k < WORDS; ++k) {
      const unsigned word = __ballot_sync(EVERY_LANE, x[k] >= 0.0f);
      own = lane_id() == k ? word : own;
      upper_count += __popc(word);
      lower += fminf(x[k], 0.0f);
      upper += fmaxf(x[k], 0.0f);
    }
    const unsigned lower_count = BLOCK - upper_count;
    if (left < BLOCK) upper_count -= BLOCK - unsigned(left);  // zeros that no lane has
    lower = lane_sum(lower) / float(max(lower_count, 1u));
    upper = lane_sum(upper) / float(max(upper_count, 1u));
#pragma unroll
    for (float &element : x) element -= element >= 0.0f ? upper : lower;
    if (lane_id() < WORDS) words[lane_id()] = own;
    if (lane_id() < SCALES) scales[lane_id()] = lane_id() == 0 ? lower : upper;
  }

  // Decodes the lane's elements, and adds them to x.
  static __device__ __forceinline__ void add(float (&x)[BLOCK / 32], const unsigned *words, const float *scales) {
    const float lower = scales[0], upper = scales[1];
#pragma unroll
    for (unsigned k = 0; k < WORDS; k += 4) {
      const uint4 four = *reinterpret_cast<const uint4 *>(words + k);
      x[k] += is_set(four.x) ? upper : lower;
      x[k + 1] += is_set(four.y) ? upper : lower;
      x[k + 2] += is_set(four.z) ? upper : lower;
      x[k + 3] += is_set(four.w) ? upper : lower;
    }
  }

 private:
  static __device__ __forceinline__ bool is_set(unsigned bits) { return (bits >> lane_id() & 1) != 0; }
  static __device__ __forceinline__ float lane_sum(float own) {
#pragma unroll
    for (unsigned lanes = 16; lanes > 0; lanes /= 2) own += __shfl_xor_sync(EVERY_LANE, own, lanes);
    return own;
  }
};
