// B (n x m) = A^T (A is m x n, both row-major, without padding): one thread per element.
//
// Tile: none; thread (x, y) of the grid moves A[y][x] to B[x][y]. T is any type of the element's width.
// Preconditions: A and B do not overlap.
// Limit: a warp reads 32 neighbours and writes them to 32 rows, one sector of 32 bytes for each element.
#include "common.cuh"

template <class T>
__global__ void __launch_bounds__(256)
    transpose_naive(const T *__restrict__ a, T *__restrict__ b, unsigned m, unsigned n) {
  const unsigned row = blockIdx.y * blockDim.y + threadIdx.y;
  const unsigned col = blockIdx.x * blockDim.x + threadIdx.x;
  if (row < m && col < n) b[offset<Op::T>(row, col, m)] = a[offset<Op::N>(row, col, n)];
}
