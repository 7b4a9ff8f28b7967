// B (n x m) = A^T (A is m x n, both row-major, without padding): through a tile in shared memory, so that a warp both
// reads and writes neighbours.
//
// Tile: a block of TILE x ROWS threads owns TILE x TILE elements, each thread TILE / ROWS of them: it reads down the
// tile's columns in A and writes down those of the transposed tile in B. The column of padding puts the elements of a
// tile's column into different banks.
// Preconditions: A and B do not overlap; ROWS divides TILE. T is any type of the element's width.
// Limit: memory bandwidth; with 2-byte elements a warp fills half of a 128-byte line, which costs on both sides.
#include "common.cuh"

template <class T, int TILE, int ROWS>
__global__ void __launch_bounds__(TILE *ROWS)
    transpose_tiled(const T *__restrict__ a, T *__restrict__ b, unsigned m, unsigned n) {
  static_assert(TILE % ROWS == 0, "ROWS divides TILE");
  constexpr int PAD = (4 + sizeof(T) - 1) / sizeof(T);  // a word: half of one would leave two rows in one bank
  __shared__ T tile[TILE][TILE + PAD];
  const unsigned x = threadIdx.x, row0 = blockIdx.y * TILE, col0 = blockIdx.x * TILE;
#pragma unroll
  for (unsigned y = threadIdx.y; y < TILE; y += ROWS)
    if (row0 + y < m && col0 + x < n) tile[y][x] = a[offset<Op::N>(row0 + y, col0 + x, n)];
  __syncthreads();  // the tile is complete
#pragma unroll
  for (unsigned y = threadIdx.y; y < TILE; y += ROWS)
    if (col0 + y < n && row0 + x < m) b[offset<Op::N>(col0 + y, row0 + x, m)] = tile[x][y];
}
