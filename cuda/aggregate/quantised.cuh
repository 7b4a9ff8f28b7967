// Gradients that travel quantised, with error feedback: w workers encode, the owner of each stripe decodes and adds,
// encodes the sum again, and all decode that.
//
// Tile: a warp owns a block of Code::BLOCK neighbours, and advances by the warps of the grid; blockIdx.y counts the
// workers that encode. A block's code (onebit.cuh, int8.cuh) is Code::WORDS words and Code::SCALES floats, stored in
// scratch by worker, then by block, as it would travel. A block lies in one stripe, whoever owns that stripe.
// Preconditions: n is a multiple of V; rows are n elements apart, and each is aligned to V elements.
// Limit: memory; encoding moves three floats for each element and worker, beside which the codes are small.
#pragma once
#include "aggregate/elements.cuh"

namespace {

// The blocks that a warp of the grid owns: from `first`, `step` apart.
struct Blocks {
  size_t first, step;

  __device__ __forceinline__ Blocks()
      : first((size_t(blockIdx.x) * blockDim.x + threadIdx.x) / 32), step(size_t(gridDim.x) * (blockDim.x / 32)) {}
};

}  // namespace

// Encodes g[y] + e[y] for worker y, and stores the quantisation error in e[y].
template <class Code, unsigned V, unsigned THREADS>
__global__ void __launch_bounds__(THREADS)
    aggregate_encode(const float *__restrict__ g, float *__restrict__ e, unsigned *__restrict__ words,
                     float *__restrict__ scales, size_t n, size_t blocks) {
  g += blockIdx.y * n;
  e += blockIdx.y * n;
  words += blockIdx.y * blocks * Code::WORDS;
  scales += blockIdx.y * blocks * Code::SCALES;
  const Blocks own;
  for (size_t block = own.first; block < blocks; block += own.step) {
    const size_t begin = block * Code::BLOCK, left = n - begin;
    float x[Code::BLOCK / 32] = {};
    add_elements<V>(x, g + begin, left);
    add_elements<V>(x, e + begin, left);
    Code::encode(x, left, words + block * Code::WORDS, scales + block * Code::SCALES);
    store_elements<V>(e + begin, x, left);
  }
}

// Encodes the sum of the codes of w workers and of the owners' residual, row w of e, which becomes the new error.
template <class Code, unsigned V, unsigned THREADS>
__global__ void __launch_bounds__(THREADS)
    aggregate_reduce(const unsigned *__restrict__ words, const float *__restrict__ scales, float *__restrict__ e,
                     unsigned *__restrict__ sum_words, float *__restrict__ sum_scales, size_t n, size_t blocks,
                     unsigned w) {
  e += w * n;
  const Blocks own;
  for (size_t block = own.first; block < blocks; block += own.step) {
    const size_t begin = block * Code::BLOCK, left = n - begin;
    float x[Code::BLOCK / 32] = {};
    add_elements<V>(x, e + begin, left);
    size_t from = block;
    for (unsigned worker = 0; worker < w; ++worker, from += blocks)
      Code::add(x, words + from * Code::WORDS, scales + from * Code::SCALES);
#pragma unroll
    for (unsigned k = 0; k < Code::BLOCK / 32; ++k) x[k] = is_held<V>(k, left) ? x[k] : 0.0f;
    Code::encode(x, left, sum_words + block * Code::WORDS, sum_scales + block * Code::SCALES);
    store_elements<V>(e + begin, x, left);
  }
}

// The sum, as every worker decodes it.
template <class Code, unsigned V, unsigned THREADS>
__global__ void __launch_bounds__(THREADS)
    aggregate_decode(const unsigned *__restrict__ words, const float *__restrict__ scales, float *__restrict__ s,
                     size_t n, size_t blocks) {
  const Blocks own;
  for (size_t block = own.first; block < blocks; block += own.step) {
    float x[Code::BLOCK / 32] = {};
    Code::add(x, words + block * Code::WORDS, scales + block * Code::SCALES);
    store_elements<V>(s + block * Code::BLOCK, x, n - block * Code::BLOCK);
  }
}

// The weights less lr times the sum, and a copy of them for each of w workers.
template <class Code, unsigned V, unsigned THREADS>
__global__ void __launch_bounds__(THREADS)
    aggregate_decode_update(const unsigned *__restrict__ words, const float *__restrict__ scales,
                            float *__restrict__ weights, float *__restrict__ replicas, size_t n, size_t blocks,
                            unsigned w, float lr) {
  const Blocks own;
  for (size_t block = own.first; block < blocks; block += own.step) {
    const size_t begin = block * Code::BLOCK, left = n - begin;
    float x[Code::BLOCK / 32] = {};
    Code::add(x, words + block * Code::WORDS, scales + block * Code::SCALES);
#pragma unroll
    for (float &element : x) element *= -lr;
    add_elements<V>(x, weights + begin, left);
    store_elements<V>(weights + begin, x, left);
    for (unsigned worker = 0; worker < w; ++worker) store_elements<V>(replicas + worker * n + begin, x, left);
  }
}
