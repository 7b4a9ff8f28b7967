// The sum of w gradients on the GPU that has them all, in one pass: what MXNet calls aggregation on the device.
//
// Tile: a thread has packs of V neighbours, a whole grid apart. It loads those of ROWS gradients before it adds any, so
// that ROWS loads are in flight, and adds in the order of the workers. aggregate_update also takes a step of the
// weights, and stores them and a copy for every worker.
// Preconditions: every row begins at V elements' width, at most 16 bytes, and n is a multiple of V; rows are n apart.
// Limit: memory; w + 1 elements are moved for each of the sum, or 2 w + 2.
#include "aggregate/packs.cuh"

namespace {

template <class T, unsigned W, unsigned V, unsigned ROWS>
__device__ __forceinline__ Pack<T, V> sum_of(const T *g, size_t n) {
  Pack<T, V> sum = {};
#pragma unroll 1
  for (unsigned row = 0; row < W; row += ROWS) {
    Pack<T, V> loaded[ROWS] = {};
#pragma unroll
    for (unsigned i = 0; i < ROWS; ++i)
      if (row + i < W) loaded[i] = load_pack<V>(g + (row + i) * n);
#pragma unroll
    for (unsigned i = 0; i < ROWS; ++i) add_pack<V>(sum, loaded[i]);
  }
  return sum;
}

}  // namespace

template <class T, unsigned W, unsigned V, unsigned THREADS, unsigned ROWS>
__global__ void __launch_bounds__(THREADS) aggregate_sum(const T *__restrict__ g, T *__restrict__ s, size_t n) {
  const Packs<V, THREADS> own;
  for (size_t at = own.first; at < n; at += own.step) store_pack<V>(s + at, sum_of<T, W, V, ROWS>(g + at, n));
}

template <class T, unsigned W, unsigned V, unsigned THREADS, unsigned ROWS>
__global__ void __launch_bounds__(THREADS)
    aggregate_update(const T *__restrict__ g, T *__restrict__ weights, T *__restrict__ replicas, size_t n, float lr) {
  const Packs<V, THREADS> own;
  for (size_t at = own.first; at < n; at += own.step) {
    const Pack<T, V> pack = stepped<V>(weights + at, sum_of<T, W, V, ROWS>(g + at, n), lr);
    store_pack<V>(weights + at, pack);
    for (unsigned row = 0; row < W; ++row) store_pack<V>(replicas + row * n + at, pack);
  }
}
