// C = A B, one element a thread, tiles of A and B staged through shared memory.
// bug 1 (race, uninitialised-read): no barrier between filling a tile and reading it
// bug 2 (race): no barrier between reading a tile and filling it again
// bug 3 (out-of-bounds): the row guard lets row == m through
// bug 4 (uninitialised-read): the inner loop runs one past the tile
// bug 5 (early-exit): threads outside leave before a barrier that the others wait at
// bug 6 (barrier-divergence): half of the threads wait at another barrier
// bug 7 (wrong, out-of-bounds): the leading dimension of B is k
// bug 8 (out-of-bounds): the store has no column guard
// bug 9 (uninitialised-read): C is accumulated into without having been cleared
// bug 10 (wrong): the last, ragged tile of k is left out
// bug 11 (write-to-input): the zero padding is written into A itself
// bug 12 (not-written): the last row of C is left out
// bug 13 (deadlock): half a warp waits at a __syncwarp for the other half, which waits at the barrier
constexpr int T = 16;

extern "C" __global__ void sgemm(float *a, const float *b, float *c, int m, int n, int k) {
  __shared__ float smem_a[T][T + 1];
  __shared__ float smem_b[T][T];
  const int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * T + y, col = blockIdx.x * T + x;
  const int ldb = BUG == 7 ? k : n, rows = BUG == 3 ? m + 1 : m, width = BUG == 4 ? T + 1 : T;
  float sum = 0.0f;
  for (int k0 = 0; k0 + (BUG == 10 ? T - 1 : 0) < k; k0 += T) {
    smem_a[y][x] = row < rows && k0 + x < k ? a[row * k + k0 + x] : 0.0f;
    smem_b[y][x] = k0 + y < k && col < n ? b[(k0 + y) * ldb + col] : 0.0f;
#if BUG == 11
    if (row < m && k0 + x == k - 1) a[row * k + k0 + x] = 0.0f;
#endif
#if BUG == 6
    if (y < 8)
      __syncthreads();
    else
      __syncthreads();
#elif BUG != 1
    __syncthreads();
#endif
    for (int i = 0; i < width; ++i) sum += smem_a[y][i] * smem_b[i % T][x];
#if BUG != 2
    __syncthreads();
#endif
#if BUG == 5
    if (row >= m) return;
#endif
#if BUG == 13
    if (y == 3) __syncwarp();
#endif
  }
  if (row >= (BUG == 12 ? m - 1 : m) || (BUG != 8 && col >= n)) return;
#if BUG == 9
  c[row * n + col] += sum;
#else
  c[row * n + col] = sum;
#endif
}
