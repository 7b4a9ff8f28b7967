// C = alpha op(A) op(B) + beta C: the steps along k of all tiles are divided evenly among as many blocks as the device
// holds, regardless of where a tile ends. No block waits for a last wave that is half empty, and a few long tiles fill
// the device too. After Osama, Merrill, Cecka, Garland, Owens, "Stream-K", PPoPP 2023, its "two-tile" form.
//
// Tile: C is cut into BM x BN tiles, counted along n, m and the batch. The first `whole` of them, a multiple of the
// number of blocks, are each multiplied by one block. The steps of the remaining tiles form one sequence, tile after
// tile, of which block i owns `share` steps from i * share on: the end of a tile, whole tiles, the beginning of
// another. Sums of a tile that a block does not own entirely go to its two slots of partials, BM x BN each: 2 i for
// steps inside a tile, 2 i + 1 for a tile's first steps. Then sgemm_streamk_sum adds the slots of every divided tile
// along k, so that a result never depends on which block came first. It is a separate launch, since the end of a launch
// needs no flags: blocks that spin until another has written would all have to be resident, and the wait would cost as
// much as a small launch.
// Preconditions: compute capability 8.0. W as in gemm/async.cu.
// Limit: two slots per block are written and read once, 16 BM BN bytes per block. Blocks are at different depths of k
// and find fewer of each other's panels in the L2 cache than those of gemm/async.cu, hence the whole tiles.
#include "gemm/pipeline.cuh"

namespace {

// Where a tile of C lies.
struct Place {
  unsigned row0, col0, product;
};

template <unsigned BM, unsigned BN>
__device__ __forceinline__ Place place(unsigned tile, unsigned m, unsigned n) {
  const unsigned across = (n - 1) / BN + 1, down = (m - 1) / BM + 1;
  return {tile / across % down * BM, tile % across * BN, tile / across / down};
}

// Consecutive steps of one tile that a block computes: `depth` steps from step `first` on; depth is 0 past the last
// segment.
struct Segment {
  unsigned tile, first, depth;
};

// The block's segment number `turn`: its whole tiles, then what its share of the rest touches.
__device__ __forceinline__ Segment segment(unsigned turn, unsigned tiles, unsigned whole, unsigned share,
                                           unsigned steps) {
  const unsigned tile = turn * gridDim.x + blockIdx.x;
  if (tile < whole) return {tile, 0, steps};
  const size_t all = size_t(tiles - whole) * steps, begin = min(size_t(blockIdx.x) * share, all);
  const size_t end = min(begin + share, all), at = (begin / steps + turn - whole / gridDim.x) * steps;
  const size_t from = max(begin, at), to = min(end, at + steps);
  return {whole + unsigned(at / steps), unsigned(from - at), to > from ? unsigned(to - from) : 0};
}

}  // namespace

template <int BM, int BN, int BK, int WM, int WN, int TM, int TN, int STAGES, int W, Op op_a, Op op_b,
          bool WHOLE>
__global__ void __launch_bounds__(32 * (BM / WM) * (BN / WN), SGEMM_BLOCKS_PER_SM<TM, TN>)
    sgemm_streamk(const float *__restrict__ a, const float *__restrict__ b, float *c, float *partials, unsigned m,
                  unsigned n, unsigned k, float alpha, float beta, unsigned lda, unsigned ldb, unsigned ldc,
                  long long stride_a, long long stride_b, long long stride_c, unsigned tiles, unsigned whole,
                  unsigned share, unsigned steps) {
  using Loop = Pipeline<BM, BN, BK, WM, WN, TM, TN, STAGES, W, op_a, op_b, WHOLE>;
  DYN_SHARED(float, smem);
  __shared__ Segment now;  // not in registers, all of which the product takes
  for (unsigned turn = 0;; ++turn) {
    if (threadIdx.x == 0) now = segment(turn, tiles, whole, share, steps);
    __syncthreads();  // the segment is in shared memory
    if (now.depth == 0) return;
    Place to = place<BM, BN>(now.tile, m, n);
    const unsigned k0 = now.first * BK;
    const Loop loop{a + to.product * stride_a + offset<op_a>(0, k0, lda),
                    b + to.product * stride_b + offset<op_b>(k0, 0, ldb), m, n, lda, ldb};
    typename Loop::Tile sums;
    loop.accumulate(sums, smem, to.row0, to.col0, min(k - k0, now.depth * BK));
    to = place<BM, BN>(now.tile, m, n);
    const bool is_whole = now.depth == steps;
    float *slot = partials + size_t(2 * blockIdx.x + (now.first == 0)) * BM * BN;
    // One call stores to either destination: the code of two calls takes registers that the product needs.
    sums.template store<W>(is_whole ? c + to.product * stride_c : slot, is_whole ? to.row0 : 0, is_whole ? to.col0 : 0,
                           is_whole ? m : BM, is_whole ? n : BN, is_whole ? ldc : BN, is_whole ? alpha : 1.0f,
                           is_whole ? beta : 0.0f);
    __syncthreads();  // all threads have read the segment and the last panels before the next ones overwrite them
  }
}

// A block owns blockDim.y rows of the tile whole + blockIdx.x, a thread every 32nd element of one of them.
template <int BM, int BN>
__global__ void __launch_bounds__(256)
    sgemm_streamk_sum(const float *__restrict__ partials, float *__restrict__ c, unsigned m, unsigned n, float alpha,
                      float beta, unsigned ldc, long long stride_c, unsigned whole, unsigned share, unsigned steps) {
  const size_t begin = size_t(blockIdx.x) * steps;
  const unsigned head = unsigned(begin / share), tail = unsigned((begin + steps - 1) / share);
  if (head == tail) return;  // one block owned the tile
  const Place to = place<BM, BN>(whole + blockIdx.x, m, n);
  const unsigned y = blockIdx.y * blockDim.y + threadIdx.y, row = to.row0 + y;
  if (row >= m) return;
  for (unsigned x = threadIdx.x; x < BN && to.col0 + x < n; x += blockDim.x) {
    const float *slot = partials + offset<Op::N>(y, x, BN);
    float sum = slot[size_t(2 * head + 1) * BM * BN];
    for (unsigned i = head + 1; i <= tail; ++i) sum += slot[size_t(2 * i) * BM * BN];
    store_scaled(&c[to.product * stride_c + offset<Op::N>(row, to.col0 + x, ldc)], sum, alpha, beta);
  }
}
