// A = A^T for square A: a block swaps the tile pair (x, y), (y, x), x >= y.
// bug 1 (race, uninitialised-read): no barrier between reading and writing
// bug 2 (race): each pair is swapped by two blocks
// bug 3 (wrong): tiles on the diagonal are left as they are
extern "C" __global__ void transpose_inplace(float *a, int n) {
  constexpr int TILE = 16;
  __shared__ float upper[TILE][TILE + 1], lower[TILE][TILE + 1];
  if (BUG != 2 && blockIdx.x < blockIdx.y) return;
  if (BUG == 3 && blockIdx.x == blockIdx.y) return;
  const int tx = threadIdx.x, ty = threadIdx.y;
  const int x = blockIdx.x * TILE + tx, y = blockIdx.y * TILE + ty;
  const int mirror_x = blockIdx.y * TILE + tx, mirror_y = blockIdx.x * TILE + ty;
  if (x < n && y < n) upper[ty][tx] = a[y * n + x];
  if (mirror_x < n && mirror_y < n) lower[ty][tx] = a[mirror_y * n + mirror_x];
#if BUG != 1
  __syncthreads();
#endif
  if (mirror_x < n && mirror_y < n) a[mirror_y * n + mirror_x] = upper[tx][ty];
  if (blockIdx.x != blockIdx.y && x < n && y < n) a[y * n + x] = lower[tx][ty];
}
