// Products with a matrix of columns (im2col.cu) on the pipeline of the GEMM ladder (gemm/pipeline.cuh): one per group,
// and in nchw one per group and image.
//
// Tile: a block owns BM x BN elements of one product; blockIdx.x counts its tiles, row by row. W and V are how many
// floats a load and a store move at once; the plan chooses them by alignment. Operands begin `first` floats into their
// arrays and advance by group and by image.
#pragma once
#include "conv/geometry.cuh"
#include "gemm/pipeline.cuh"

#define COLUMNS_TILE int BM, int BN, int BK, int WM, int WN, int TM, int TN, int STAGES, int W, int V, Op op_a, Op op_b
#define COLUMNS_BOUNDS __launch_bounds__(32 * (BM / WM) * (BN / WN), SGEMM_BLOCKS_PER_SM<TM, TN>)

// C = op(A) op(B); blockIdx.z counts images times groups. loaded_n >= n columns of op(B) may be read: those past n pad
// rows to whole vectors.
template <COLUMNS_TILE>
__global__ void COLUMNS_BOUNDS
    conv_columns_gemm(const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ c, unsigned m,
                      unsigned n, unsigned k, unsigned loaded_n, unsigned lda, unsigned ldb, unsigned ldc,
                      unsigned tiles_across, unsigned groups, long long first_a, long long first_b, long long first_c,
                      long long group_a, long long group_b, long long group_c, long long image_a, long long image_b,
                      long long image_c) {
  using Loop = Pipeline<BM, BN, BK, WM, WN, TM, TN, STAGES, W, op_a, op_b>;
  DYN_SHARED(float, smem);
  const unsigned row0 = blockIdx.x / tiles_across * BM, col0 = blockIdx.x % tiles_across * BN;
  const unsigned image = blockIdx.z / groups, group = blockIdx.z % groups;
  a += first_a + group * group_a + image * image_a;
  b += first_b + group * group_b + image * image_b;
  const Loop loop{a, b, m, loaded_n, lda, ldb};
  typename Loop::Tile tile;
  loop.accumulate(tile, smem, row0, col0, k);
  c += first_c + group * group_c + image * image_c;
  tile.template store<V>(c, row0, col0, m, n, ldc, 1.0f, 0.0f);
}

// One slice of the sum over images of op(A) op(B); k is `per_image` per image and `total` over all images. blockIdx.z
// counts slices of `depth` times groups. partial is [slice][group][m][n].
template <COLUMNS_TILE>
__global__ void COLUMNS_BOUNDS
    conv_columns_sum(const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ partial, unsigned m,
                     unsigned n, unsigned per_image, unsigned total, unsigned depth, unsigned loaded_n, unsigned lda,
                     unsigned ldb, unsigned tiles_across, unsigned groups, unsigned first_slice, long long first_a,
                     long long first_b, long long group_a, long long group_b, long long image_a, long long image_b) {
  using Loop = Pipeline<BM, BN, BK, WM, WN, TM, TN, STAGES, W, op_a, op_b>;
  DYN_SHARED(float, smem);
  const unsigned row0 = blockIdx.x / tiles_across * BM, col0 = blockIdx.x % tiles_across * BN;
  const unsigned slice = blockIdx.z / groups, group = blockIdx.z % groups;
  a += first_a + group * group_a;
  b += first_b + group * group_b;
  typename Loop::Tile tile;
  const unsigned end = min(slice * depth + depth, total);
  for (unsigned first = slice * depth; first < end;) {
    const unsigned image = first / per_image, within = first % per_image, left = min(per_image - within, end - first);
    const Loop loop{a + image * image_a + offset<op_a>(0, within, lda),
                    b + image * image_b + offset<op_b>(within, 0, ldb), m, loaded_n, lda, ldb};
    loop.accumulate(tile, smem, row0, col0, left);
    first += left;
    __syncthreads();  // all threads have used the image's last panels
  }
  partial += (size_t(first_slice + slice) * groups + group) * m * n;
  tile.template store<V>(partial, row0, col0, m, n, n, 1.0f, 0.0f);
}
