// C = A B by nvcuda::wmma, a warp a 16 x 16 tile; A is staged through shared memory.
// bug 1 (race, uninitialised-read): no __syncwarp follows the staging
// bug 2 (wrong): B is read by columns
// bug 3 (wrong): element e of a fragment is taken to lie where the hardware happens to put it
// bug 4 (race): the staging area is refilled while others may still read it
#include <mma.h>

extern "C" __global__ void hgemm(const __half *a, const __half *b, float *c, int n, int k) {
  using namespace nvcuda::wmma;
  __shared__ __align__(32) __half smem_a[16][16];
  fragment<matrix_a, 16, 16, 16, __half, row_major> tile_a;
#if BUG == 2
  fragment<matrix_b, 16, 16, 16, __half, col_major> tile_b;
#else
  fragment<matrix_b, 16, 16, 16, __half, row_major> tile_b;
#endif
  fragment<accumulator, 16, 16, 16, float> sum;
  fill_fragment(sum, 0.0f);
  for (int k0 = 0; k0 < k; k0 += 16) {
    for (int i = threadIdx.x; i < 256; i += 32)
      smem_a[i / 16][i % 16] = a[(blockIdx.y * 16 + i / 16) * k + k0 + i % 16];
#if BUG != 1
    __syncwarp();
#endif
    load_matrix_sync(tile_a, &smem_a[0][0], 16);
    load_matrix_sync(tile_b, b + k0 * n + blockIdx.x * 16, n);
    mma_sync(sum, tile_a, tile_b, sum);
#if BUG != 4
    __syncwarp();
#endif
  }
  for (int e = 0; e < sum.num_elements; ++e) sum.x[e] *= BUG == 3 && e % 4 >= 2 && threadIdx.x / 4 < 4 ? 1.0f : 2.0f;
  store_matrix_sync(c + blockIdx.y * 16 * n + blockIdx.x * 16, sum, n, mem_row_major);
}
