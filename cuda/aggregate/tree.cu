// The sum of w gradients by a tree, as in Caffe: in each pass half of them are added to the others, until one is left.
// New weights go down the same tree: in each pass, every worker that has them copies them to one that does not.
//
// Tile: a thread has packs of V neighbours, a whole grid apart, of the row that blockIdx.y counts.
// Preconditions: every row begins at V elements' width, at most 16 bytes, and n is a multiple of V; rows are n apart.
// Limit: memory; a pass reads two elements and writes one for each sum of two. All passes move about 3 w elements for
// each element of the result, where one pass over all gradients would move w + 1.
#include "aggregate/packs.cuh"

namespace {

// The sum of rows y and y + half, where y is blockIdx.y, or row y alone if the other lies past the last of `rows`.
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

// Adds the last pair, takes a step of the weights with the sum, and copies the new weights to the first worker.
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
