// A = A^T in place (A is n x n, row-major, without padding): square_inplace.cu with the 128-bit accesses of
// vectorised.cu, and all reads of both tiles in flight at once.
//
// Tile: a block of 16 x 16 threads owns two tiles of 16V x 16V elements (V of them fill 16 bytes) across the diagonal,
// which transpose/pairs.cuh assigns to it, and each thread a square of V x V in either. The squares wait in registers,
// so that one tile of shared memory serves both, one after the other: each is transposed and written to the other's
// place.
// Preconditions: square; A begins on 16 bytes; the grid of pairs.cuh. T is any type of the element's width.
// Limit: memory bandwidth, each element read once and written once. With 16-bit elements the two squares take 64
// registers. Where n is not a multiple of V, elements move one by one, and only shared memory is accessed by vectors.
#include "transpose/pairs.cuh"
#include "transpose/vectors.cuh"

template <class T, unsigned GROUP>
__global__ void __launch_bounds__(SIDE *SIDE) transpose_vectorised_inplace(T *a, unsigned n) {
  __shared__ uint4 tile[SIDE * V<T> * SIDE];
  const auto [row0, col0] = pair_of_tiles<SIDE * V<T>, GROUP>(n);
  if (row0 < col0) return;  // another block has the pair
  const unsigned x = threadIdx.x * V<T>, y = threadIdx.y * V<T>;
  const bool pair = row0 != col0;
  Vector<T> lower[V<T>] = {}, upper[V<T>] = {};
  load_square(lower, a, row0 + y, col0 + x, n, n);
  if (pair) load_square(upper, a, col0 + y, row0 + x, n, n);
  turn_square(tile, lower);
  __syncthreads();  // the lower tile is transposed, and both are read before either is written
  store_tile(a, tile, col0, row0, n, n);
  if (!pair) return;
  __syncthreads();  // the tile is free for the upper one
  turn_square(tile, upper);
  __syncthreads();  // the upper tile is transposed
  store_tile(a, tile, row0, col0, n, n);
}
