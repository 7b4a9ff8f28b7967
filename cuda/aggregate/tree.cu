// The sum of w gradients by a tree, as in Caffe: in each pass half of them are added to the others, until one is left.
// A step of the weights goes down the same tree: in each pass those that have the new weights copy them to as many.
//
// Tile: a thread has packs of V neighbours, a whole grid apart, of the row that blockIdx.y counts.
// Preconditions: every row begins at V elements' width, at most 16 bytes, and n is a multiple of V; rows are n apart.
// Limit: memory; a pass reads two elements and writes one, so that all of them move some 3 w elements for each of the
// sum, where one pass over all gradients would move w + 1.
#include "aggregate/packs.cuh"

namespace {

// What rows y and y + half add up to, y counted by the grid; the second may lie past the last of `rows`.
template <unsigned V, class T>
__device__ __forceinline__ Pack<T, V> pair(const T *from, size_t n, unsigned rows, unsigned half) {
  Pack<T, V> sum = load_pack<V>(from + blockIdx.y * n);
  if (blockIdx.y + half < rows) add_pack<V>(sum, load_pack<V>(from + (blockIdx.y + half) * n));
  return sum;
}

}  // namespace

// to[y] = from[y] + from[y + half], where `to` may be `from`.
template <class T, unsigned V, unsigned THREADS>
__global__ void __launch_bounds__(THREADS)
    aggregate_pairs(const T *from, T *to, size_t n, unsigned rows, unsigned half) {
  const Packs<V, THREADS> own;
  for (size_t at = own.first; at < n; at += own.step)
    store_pack<V>(to + blockIdx.y * n + at, pair<V>(from + at, n, rows, half));
}

// The last pair, and the step that it makes of the weights, which the first worker has then.
template <class T, unsigned V, unsigned THREADS>
__global__ void __launch_bounds__(THREADS)
    aggregate_pairs_update(const T *__restrict__ from, T *__restrict__ weights, T *__restrict__ replicas, size_t n,
                           float lr) {
  const Packs<V, THREADS> own;
  for (size_t at = own.first; at < n; at += own.step) {
    const Pack<T, V> pack = stepped<V>(weights + at, pair<V>(from + at, n, 2, 1), lr);
    store_pack<V>(weights + at, pack);
    store_pack<V>(replicas + at, pack);
  }
}

// replicas[have + y] = replicas[y].
template <class T, unsigned V, unsigned THREADS>
__global__ void __launch_bounds__(THREADS) aggregate_spread(T *replicas, size_t n, unsigned have) {
  const Packs<V, THREADS> own;
  for (size_t at = own.first; at < n; at += own.step)
    store_pack<V>(replicas + (blockIdx.y + have) * n + at, load_pack<V>(replicas + blockIdx.y * n + at));
}
