// C = alpha op(A) op(B) + beta C for 16-bit A and B on tensor cores, by the fragments of nvcuda::wmma, the shortest way
// to use them. The compiler chooses where the elements of a fragment lie, so ragged edges and scaling are handled in
// tiles in shared memory.
//
// Tile: a block of four warps owns T x T elements of C, a warp T/2 x T/2 of them in 2 x 2 fragments of 16 x 16;
// blockIdx.z counts the products of a strided batch. The block iterates along k in steps of BK: load two tiles, padded
// with zeros, wait, multiply, wait.
// Preconditions: compute capability 8.0 (BF16); any m, n, k, any leading dimensions. All four layouts: tiles lie in
// shared memory as stored, and fragments are loaded by rows or by columns.
// Limit: threads copy elements one by one, and wait while they do. gemm/mma.cu does neither.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

#include "common.cuh"

namespace wmma = nvcuda::wmma;

constexpr int SIDE = 16;  // of a fragment

// A tile of op(X), ROWS x COLS, as X is stored. Each row ends with 16 bytes of padding, which avoids bank conflicts.
template <Op op, int ROWS, int COLS>
struct Stored {
  static constexpr int LINES = ROWS, LENGTH = COLS, PITCH = LENGTH + 8;
  using Major = wmma::row_major;
};
template <int ROWS, int COLS>
struct Stored<Op::T, ROWS, COLS> {
  static constexpr int LINES = COLS, LENGTH = ROWS, PITCH = LENGTH + 8;
  using Major = wmma::col_major;
};

// Fills the tile whose first element is op(X)[row0][col0], with zeros outside the rows x cols elements of op(X).
template <Op op, int ROWS, int COLS, class T>
__device__ __forceinline__ void load_tile(T *tile, const T *__restrict__ x, unsigned row0, unsigned col0, unsigned rows,
                                          unsigned cols, unsigned ld) {
  using Tile = Stored<op, ROWS, COLS>;
  for (unsigned e = threadIdx.x; e < ROWS * COLS; e += blockDim.x) {
    const unsigned line = e / Tile::LENGTH, at = e % Tile::LENGTH;
    const unsigned row = row0 + (op == Op::N ? line : at), col = col0 + (op == Op::N ? at : line);
    const bool inside = row < rows && col < cols;
    tile[line * Tile::PITCH + at] = inside ? x[offset<op>(row, col, ld)] : T(0.0f);
  }
}

template <class In, class Out, int T, int BK, Op op_a, Op op_b>
__global__ void __launch_bounds__(128)
    gemm_wmma(const In *__restrict__ a, const In *__restrict__ b, Out *c, unsigned m, unsigned n, unsigned k,
              float alpha, float beta, unsigned lda, unsigned ldb, unsigned ldc, long long stride_a, long long stride_b,
              long long stride_c) {
  using TileA = Stored<op_a, T, BK>;
  using TileB = Stored<op_b, BK, T>;
  constexpr int FRAGMENTS = T / 2 / SIDE;  // along each side of a warp's tile
  __shared__ __align__(32) In smem_a[TileA::LINES * TileA::PITCH];
  __shared__ __align__(32) In smem_b[TileB::LINES * TileB::PITCH];
  __shared__ __align__(32) float smem_c[T][T];
  const unsigned row0 = blockIdx.y * T, col0 = blockIdx.x * T;
  const unsigned warp_id = threadIdx.x / 32, warp_m = warp_id / 2 * T / 2, warp_n = warp_id % 2 * T / 2;
  a += blockIdx.z * stride_a;
  b += blockIdx.z * stride_b;
  c += blockIdx.z * stride_c;
  wmma::fragment<wmma::accumulator, SIDE, SIDE, SIDE, float> sums[FRAGMENTS][FRAGMENTS];
  for (auto &row : sums)
    for (auto &sum : row) wmma::fill_fragment(sum, 0.0f);

  for (unsigned k0 = 0; k0 < k; k0 += BK) {
    load_tile<op_a, T, BK>(smem_a, a, row0, k0, m, k, lda);
    load_tile<op_b, BK, T>(smem_b, b, k0, col0, k, n, ldb);
    __syncthreads();  // the tiles are complete
#pragma unroll
    for (int kk = 0; kk < BK; kk += SIDE) {
      wmma::fragment<wmma::matrix_a, SIDE, SIDE, SIDE, In, typename TileA::Major> left[FRAGMENTS];
      wmma::fragment<wmma::matrix_b, SIDE, SIDE, SIDE, In, typename TileB::Major> right;
#pragma unroll
      for (int i = 0; i < FRAGMENTS; ++i)
        wmma::load_matrix_sync(left[i], &smem_a[offset<op_a>(warp_m + SIDE * i, kk, TileA::PITCH)], TileA::PITCH);
#pragma unroll
      for (int j = 0; j < FRAGMENTS; ++j) {
        wmma::load_matrix_sync(right, &smem_b[offset<op_b>(kk, warp_n + SIDE * j, TileB::PITCH)], TileB::PITCH);
#pragma unroll
        for (int i = 0; i < FRAGMENTS; ++i) wmma::mma_sync(sums[i][j], left[i], right, sums[i][j]);
      }
    }
    __syncthreads();  // all threads have read the tiles before the next ones overwrite them
  }

#pragma unroll
  for (int i = 0; i < FRAGMENTS; ++i)
#pragma unroll
    for (int j = 0; j < FRAGMENTS; ++j)
      wmma::store_matrix_sync(&smem_c[warp_m + SIDE * i][warp_n + SIDE * j], sums[i][j], T, wmma::mem_row_major);
  __syncthreads();  // the tile of C is complete
  for (unsigned e = threadIdx.x; e < T * T; e += blockDim.x) {
    const unsigned row = row0 + e / T, col = col0 + e % T;
    if (row >= m || col >= n) continue;
    Out &to = c[offset<Op::N>(row, col, ldc)];
    const float product = alpha * smem_c[e / T][e % T];
    to = Out(beta == 0.0f ? product : product + beta * float(to));
  }
}
