// C = A B for whole tiles: register blocking, float4 loads, two buffers in dynamic shared memory, one barrier a step.
// bug 1 (race): the prefetch goes into the buffer that is being read
// bug 2 (race, early-exit): only one lane of each warp waits at the barrier
// bug 3 (misaligned): float4 loads begin one element late
// bug 4 (race): no barrier at the end of a step
// bug 5 (out-of-bounds): the second buffer lies past the shared memory that the launch asked for
// bug 6 (uninitialised-read): the first tile is never loaded
// bug 7 (out-of-bounds): the prefetch runs past the end of k
#include "common.cuh"

template <int BM, int BN, int BK, int TM, int TN>
__global__ void sgemm(const float *a, const float *b, float *c, int n, int k) {
  constexpr int threads = (BM / TM) * (BN / TN);
  DYN_SHARED(float, smem);
  float(*smem_a)[BK][BM] = reinterpret_cast<float(*)[BK][BM]>(smem);
  float(*smem_b)[BK][BN] = reinterpret_cast<float(*)[BK][BN]>(smem + (BUG == 5 ? 4 : 2) * BK * BM);
  const int tid = threadIdx.x, tile_row = tid / (BN / TN) * TM, tile_col = tid % (BN / TN) * TN;
  a += blockIdx.y * BM * k;
  b += blockIdx.x * BN + (BUG == 3 ? 1 : 0);
  c += blockIdx.y * BM * n + blockIdx.x * BN;
  float sums[TM][TN] = {};
  auto load = [&](int buffer, int k0) {
    for (int i = tid; i < BM * BK / 4; i += threads) {
      const int row = i / (BK / 4), col = i % (BK / 4) * 4;
      const float4 v = *reinterpret_cast<const float4 *>(&a[row * k + k0 + col]);
      smem_a[buffer][col][row] = v.x;
      smem_a[buffer][col + 1][row] = v.y;
      smem_a[buffer][col + 2][row] = v.z;
      smem_a[buffer][col + 3][row] = v.w;
    }
    for (int i = tid; i < BK * BN / 4; i += threads) {
      const int row = i / (BN / 4), col = i % (BN / 4) * 4;
      const float4 v = *reinterpret_cast<const float4 *>(&b[(k0 + row) * n + col]);
      *reinterpret_cast<float4 *>(&smem_b[buffer][row][col]) = v;
    }
  };
  if (BUG != 6) load(0, 0);
  __syncthreads();
  for (int k0 = 0, buffer = 0; k0 < k; k0 += BK, buffer ^= 1) {
    if (k0 + BK < (BUG == 7 ? k + BK : k)) load(BUG == 1 ? buffer : buffer ^ 1, k0 + BK);
    for (int i = 0; i < BK; ++i)
      for (int row = 0; row < TM; ++row)
        for (int col = 0; col < TN; ++col)
          sums[row][col] += smem_a[buffer][i][tile_row + row] * smem_b[buffer][i][tile_col + col];
#if BUG == 2
    if (tid % 32 == 0) __syncthreads();
#elif BUG != 4
    __syncthreads();
#endif
  }
  for (int row = 0; row < TM; ++row)
    for (int col = 0; col < TN; col += 4)
      *reinterpret_cast<float4 *>(&c[(tile_row + row) * n + tile_col + col]) =
          make_float4(sums[row][col], sums[row][col + 1], sums[row][col + 2], sums[row][col + 3]);
}
