// C = alpha A op(B) + beta C where A has few rows, one token or a few on their way through a layer: B is read once, by
// loads of 16 bytes that go straight to registers, and each element is multiplied with all rows of A while it is there.
//
// Tile: a block owns COLS columns of C, all its rows and `depth` of k. Its warps take turns along k, UNROLL steps at a
// time, whose loads of B are in flight together. A warp covers the columns with eight groups of four lanes; the lanes
// of a group divide k among them (skinny.cuh). The warps' sums are added in shared memory, in the order of the warps.
// blockIdx.y counts slices of k, blockIdx.z products. Where the columns are too few to fill the device, there are
// several slices: C is then partial[product][slice], m x n without gaps, with alpha = 1 and beta = 0, and
// gemm_skinny_sum adds the slices in ascending order, so that a result never depends on which block came first.
// Preconditions: compute capability 8.0; m is ROWS in FP32, at most ROWS = 8 or 16 in 16 bits; A is stored m x k; depth
// is a multiple of a step. W is 1, or the elements in 16 bytes where all rows of A and B begin and end at multiples of
// these.
// Limit: the bandwidth at which B arrives; for each byte of B, m / COLS bytes of A are read from a cache.
#include "gemm/skinny.cuh"

// The warps per multiprocessor for which the compiler leaves registers. Eight warps, with eight vectors of B in flight
// in each lane, 32 KB in all, cover the latency of memory at 3 TB/s.
template <class T, int ROWS, int COLS>
constexpr int SKINNY_WARPS = (sizeof(T) == 4 ? ROWS * COLS / 4 : COLS) > 32 ? 8 : 16;

template <class T, class TC, int ROWS, int COLS, int WARPS, int UNROLL, int W, Op op_b>
__global__ void __launch_bounds__(32 * WARPS, (SKINNY_WARPS<T, ROWS, COLS> + WARPS - 1) / WARPS)
    gemm_skinny(const T *__restrict__ a, const T *__restrict__ b, TC *c, unsigned m, unsigned n, unsigned k,
                float alpha, float beta, unsigned lda, unsigned ldb, unsigned ldc, long long stride_a,
                long long stride_b, long long stride_c, unsigned depth) {
  using Mine = SkinnySums<T, ROWS, COLS, op_b>;
  using Feed = SkinnyFeed<typename Mine::Stored, Mine::LOADED, COLS, W, op_b>;
  constexpr unsigned STRIDE = UNROLL * Feed::STEP, FLOATS = Mine::FLOATS;
  DYN_SHARED(float, smem);
  const unsigned col0 = blockIdx.x * COLS, warp_id = threadIdx.x / 32, end = min(k, (blockIdx.y + 1) * depth);
  using Stored = const typename Mine::Stored *;
  a += blockIdx.z * stride_a;
  b += blockIdx.z * stride_b;
  const Feed feed(reinterpret_cast<Stored>(a), reinterpret_cast<Stored>(b), m, n, lda, ldb, col0);
  Mine sums;
  unsigned k0 = blockIdx.y * depth + warp_id * STRIDE;
  for (; k0 + STRIDE <= end; k0 += WARPS * STRIDE) add_steps<true, UNROLL>(sums, feed, k0, end);
  for (; k0 < end; k0 += WARPS * STRIDE) add_steps<false, UNROLL>(sums, feed, k0, end);
  sums.put(smem + warp_id * FLOATS);
  __syncthreads();  // the sums of all warps are there

  c += blockIdx.z * stride_c + size_t(blockIdx.y) * m * n;
  for (unsigned i = threadIdx.x; i < ROWS * COLS; i += 32 * WARPS) {
    const unsigned row = i / COLS, col = i % COLS;
    if (row >= m || col0 + col >= n) continue;
    float sum = 0.0f;
#pragma unroll
    for (unsigned warp = 0; warp < WARPS; ++warp) sum += smem[warp * FLOATS + Mine::place(row, col)];
    store_skinny(c + offset<Op::N>(row, col0 + col, ldc), sum, alpha, beta);
  }
}

template <class TC>
__global__ void __launch_bounds__(256)
    gemm_skinny_sum(const float *__restrict__ partial, TC *c, unsigned m, unsigned n, unsigned slices, float alpha,
                    float beta, unsigned ldc, long long stride_c) {
  const unsigned row = blockIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
  if (col >= n) return;
  partial += size_t(blockIdx.z) * slices * m * n + offset<Op::N>(row, col, n);
  float sum = 0.0f;
  for (unsigned i = 0; i < slices; ++i) sum += partial[size_t(i) * m * n];
  store_skinny(c + blockIdx.z * stride_c + offset<Op::N>(row, col, ldc), sum, alpha, beta);
}
