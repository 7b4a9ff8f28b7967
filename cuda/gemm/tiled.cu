// C = alpha op(A) op(B) + beta C: T x T tiles of A and B staged through shared memory.
//
// Tile: a block of T x T threads owns T x T elements of C, thread (x, y) the element [y][x] of the tile; blockIdx.z
// counts the products of a strided batch. The block iterates along k in steps of T: load two tiles, wait, multiply,
// wait. Each element of A and B is read n/T and m/T times from memory instead of n and m times.
// Preconditions: none; ragged edges are filled with zeros, which add nothing. All four layouts: threadIdx.x always runs
// along the rows as stored, so that loads coalesce, and the column of padding keeps the transposed stores of a tile
// free of bank conflicts.
// Limit: two shared-memory loads for each multiply-add, so that shared-memory bandwidth is the limit before arithmetic.
#include "common.cuh"

// tile[i][j] = op(X)[row0 + i][col0 + j], zero outside of the rows x cols elements of op(X).
template <int T, Op op>
__device__ __forceinline__ void load_tile(float (&tile)[T][T + 1], const float *__restrict__ x, unsigned row0,
                                          unsigned col0, unsigned rows, unsigned cols, unsigned ld) {
  const unsigned i = op == Op::N ? threadIdx.y : threadIdx.x;
  const unsigned j = op == Op::N ? threadIdx.x : threadIdx.y;
  const bool inside = row0 + i < rows && col0 + j < cols;
  tile[i][j] = inside ? x[offset<op>(row0 + i, col0 + j, ld)] : 0.0f;
}

template <int T, Op op_a, Op op_b>
__global__ void __launch_bounds__(T *T)
    sgemm_tiled(const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ c, unsigned m, unsigned n,
                unsigned k, float alpha, float beta, unsigned lda, unsigned ldb, unsigned ldc, long long stride_a,
                long long stride_b, long long stride_c) {
  __shared__ float smem_a[T][T + 1];
  __shared__ float smem_b[T][T + 1];
  const unsigned row0 = blockIdx.y * T, col0 = blockIdx.x * T;
  a += blockIdx.z * stride_a;
  b += blockIdx.z * stride_b;
  c += blockIdx.z * stride_c;
  float sum = 0.0f;
  for (unsigned k0 = 0; k0 < k; k0 += T) {
    load_tile<T, op_a>(smem_a, a, row0, k0, m, k, lda);
    load_tile<T, op_b>(smem_b, b, k0, col0, k, n, ldb);
    __syncthreads();  // the tiles are complete
#pragma unroll
    for (int i = 0; i < T; ++i) sum += smem_a[threadIdx.y][i] * smem_b[i][threadIdx.x];
    __syncthreads();  // all threads have read the tiles before the next ones overwrite them
  }
  const unsigned row = row0 + threadIdx.y, col = col0 + threadIdx.x;
  if (row < m && col < n) store_scaled(&c[offset<Op::N>(row, col, ldc)], sum, alpha, beta);
}
