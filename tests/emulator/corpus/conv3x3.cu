// 3 x 3 convolution with a halo in shared memory and the filter in constant memory.
// bug 1 (uninitialised-read): the halo's last column is not loaded
// bug 2 (race, uninitialised-read): no barrier follows the loads
// bug 3 (out-of-bounds): the top edge is not guarded
// bug 4 (wrong): the filter is applied upside down
__constant__ float filter[9];

extern "C" __global__ void conv3x3(const float *in, float *out, int h, int w) {
  constexpr int W = 32, H = 8, HALO = (W + 2) * (H + 2);
  __shared__ float tile[H + 2][W + 2];
  const int x0 = blockIdx.x * W, y0 = blockIdx.y * H;
  for (int i = threadIdx.y * W + threadIdx.x; i < HALO; i += W * H) {
    const int row = i / (W + 2), col = i % (W + 2), y = y0 + row - 1, x = x0 + col - 1;
    if (BUG == 1 && col == W + 1) continue;
    const bool inside = x >= 0 && x < w && (BUG == 3 || y >= 0) && y < h;
    tile[row][col] = inside ? in[y * w + x] : 0.0f;
  }
#if BUG != 2
  __syncthreads();
#endif
  const int x = x0 + threadIdx.x, y = y0 + threadIdx.y;
  if (x >= w || y >= h) return;
  float sum = 0.0f;
  for (int i = 0; i < 9; ++i) sum += filter[BUG == 4 ? 8 - i : i] * tile[threadIdx.y + i / 3][threadIdx.x + i % 3];
  out[y * w + x] = sum;
}
