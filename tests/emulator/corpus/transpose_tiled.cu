// B = A^T through a padded tile.
// bug 1 (race, uninitialised-read): no barrier between filling and reading the tile
// bug 2 (out-of-bounds): the column guard lets col == n through
// bug 3 (out-of-bounds, uninitialised-read): the tile is read one row too far
// bug 4 (wrong, out-of-bounds): B is written with the leading dimension of A
// bug 5 (wrong): the tile is not transposed
// bug 6 (race): two blocks write the same tile
template <class T>
__global__ void transpose(const T *a, T *b, int m, int n) {
  constexpr int TILE = 32, ROWS = 8;
  __shared__ T tile[TILE][TILE + 1];
  const int tx = threadIdx.x, ty = threadIdx.y, block = BUG == 6 ? blockIdx.x / 2 : blockIdx.x;
  int x = block * TILE + tx, y = blockIdx.y * TILE + ty;
  for (int j = 0; j < TILE; j += ROWS)
    if ((BUG == 2 ? x <= n : x < n) && y + j < m) tile[ty + j][tx] = a[(y + j) * n + x];
#if BUG != 1
  __syncthreads();
#endif
  x = blockIdx.y * TILE + tx;
  y = block * TILE + ty;
  for (int j = 0; j < TILE; j += ROWS)
    if (x < m && y + j < n)
      b[(y + j) * (BUG == 4 ? n : m) + x] = BUG == 5 ? tile[ty + j][tx] : tile[tx + (BUG == 3 ? 1 : 0)][ty + j];
}
