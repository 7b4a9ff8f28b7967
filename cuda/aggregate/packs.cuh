// What aggregations of whole gradients share: storage types by name, and the packs that a thread of a grid has.
#pragma once
#include "common.cuh"
#include "gemm/pack.cuh"

// Storage types by their names in problem ids.
namespace real {
using f64 = double;
using f32 = float;
}  // namespace real

namespace {

// The first elements of the packs of V that a thread has: from `first`, `step` apart.
template <unsigned V, unsigned THREADS>
struct Packs {
  size_t first, step;

  __device__ __forceinline__ Packs()
      : first((size_t(blockIdx.x) * THREADS + threadIdx.x) * V), step(size_t(gridDim.x) * THREADS * V) {}
};

template <unsigned V, class T>
__device__ __forceinline__ Pack<T, V> load_pack(const T *from) {
  return *reinterpret_cast<const Pack<T, V> *>(from);
}

template <unsigned V, class T>
__device__ __forceinline__ void store_pack(T *to, const Pack<T, V> &pack) {
  *reinterpret_cast<Pack<T, V> *>(to) = pack;
}

template <unsigned V, class T>
__device__ __forceinline__ void add_pack(Pack<T, V> &to, const Pack<T, V> &pack) {
#pragma unroll
  for (unsigned v = 0; v < V; ++v) to.e[v] += pack.e[v];
}

// weights - lr x sum, where the weights begin at `weights`.
template <unsigned V, class T>
__device__ __forceinline__ Pack<T, V> stepped(const T *weights, const Pack<T, V> &sum, float lr) {
  Pack<T, V> pack = load_pack<V>(weights);
#pragma unroll
  for (unsigned v = 0; v < V; ++v) pack.e[v] -= T(lr) * sum.e[v];
  return pack;
}

}  // namespace
