// A = A^T in place (A is n x n, row-major, without padding): a block swaps two tiles across the diagonal.
//
// Tile: a block of TILE x ROWS threads owns the tiles (row, col) and (col, row) that transpose/pairs.cuh assigns to it;
// it reads both into shared memory and writes each to the other's place.
// Preconditions: square; ROWS divides TILE; the grid of pairs.cuh. T is any type of the element's width.
// Limit: memory bandwidth, each element read once and written once; two tiles of shared memory per block.
#include "common.cuh"
#include "transpose/pairs.cuh"

template <class T, int TILE, int ROWS, unsigned GROUP>
__global__ void __launch_bounds__(TILE *ROWS) transpose_square_inplace(T *a, unsigned n) {
  static_assert(TILE % ROWS == 0, "ROWS divides TILE");
  constexpr int PAD = (4 + sizeof(T) - 1) / sizeof(T);  // a word: half of one would leave two rows in one bank
  __shared__ T lower[TILE][TILE + PAD];
  __shared__ T upper[TILE][TILE + PAD];
  const auto [row0, col0] = pair_of_tiles<TILE, GROUP>(n);
  if (row0 < col0) return;  // another block has the pair
  const unsigned x = threadIdx.x;
#pragma unroll
  for (unsigned y = threadIdx.y; y < TILE; y += ROWS) {
    if (row0 + y < n && col0 + x < n) lower[y][x] = a[offset<Op::N>(row0 + y, col0 + x, n)];
    if (row0 != col0 && row0 + x < n) upper[y][x] = a[offset<Op::N>(col0 + y, row0 + x, n)];
  }
  __syncthreads();  // both tiles are read completely before either is written
#pragma unroll
  for (unsigned y = threadIdx.y; y < TILE; y += ROWS) {
    if (col0 + y < n && row0 + x < n) a[offset<Op::N>(col0 + y, row0 + x, n)] = lower[x][y];
    if (row0 != col0 && row0 + y < n) a[offset<Op::N>(row0 + y, col0 + x, n)] = upper[x][y];
  }
}
