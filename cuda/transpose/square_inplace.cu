// A = A^T in place (A is n x n, row-major, without padding): a block swaps two tiles across the diagonal.
//
// Tile: a block of TILE x ROWS threads owns the tiles (row, col) and (col, row), row >= col; on the diagonal they are
// one. Nobody else touches them, so both can be read whole before either is written.
// Grid: tiles = ceil(n / TILE); (tiles | 1) x ceil(tiles / 2) blocks are just the tiles on and below the diagonal, the
// triangle's lower part as it stands and its tip folded into the corner that this leaves free.
// Preconditions: square; ROWS divides TILE. T is any type of the element's width.
// Limit: memory bandwidth, each element read once and written once; two tiles of shared memory a block.
#include "common.cuh"

template <class T, int TILE, int ROWS>
__global__ void __launch_bounds__(TILE *ROWS) transpose_square_inplace(T *a, unsigned n) {
  static_assert(TILE % ROWS == 0, "ROWS divides TILE");
  __shared__ T lower[TILE][TILE + 1];
  __shared__ T upper[TILE][TILE + 1];
  const unsigned tiles = (n - 1) / TILE + 1, even = 1 - tiles % 2;
  const bool standing = blockIdx.x >= blockIdx.y + even;
  const unsigned row0 = TILE * (standing ? blockIdx.x - even : tiles - 1 - blockIdx.x);
  const unsigned col0 = TILE * (standing ? blockIdx.y : tiles - even - blockIdx.y);
  const unsigned x = threadIdx.x;
  // Off the diagonal the tile's smaller index, col0, begins a whole tile; only row0's tile can be cut off by the edge.
#pragma unroll
  for (unsigned y = threadIdx.y; y < TILE; y += ROWS) {
    if (row0 + y < n && col0 + x < n) lower[y][x] = a[offset<Op::N>(row0 + y, col0 + x, n)];
    if (row0 != col0 && row0 + x < n) upper[y][x] = a[offset<Op::N>(col0 + y, row0 + x, n)];
  }
  __syncthreads();  // both tiles are read whole before either is written
#pragma unroll
  for (unsigned y = threadIdx.y; y < TILE; y += ROWS) {
    if (col0 + y < n && row0 + x < n) a[offset<Op::N>(col0 + y, row0 + x, n)] = lower[x][y];
    if (row0 != col0 && row0 + y < n) a[offset<Op::N>(row0 + y, col0 + x, n)] = upper[x][y];
  }
}
