// C = alpha op(A) op(B) + beta C for many small products, or a single one: all of k is in shared memory at once, so
// that a block waits only once for memory and once for a barrier.
//
// Tile: SIDE^2 / (TM TN) threads along x compute SIDE x SIDE elements of one product of a strided batch. A thread owns
// TM x TN elements, in patches of at most 4 x 4 whose distance is the tile's side divided by their number. A block
// holds blockDim.y such tiles, each of another product and with two panels of k rows of its own; blockIdx.x counts
// groups of blockDim.y products.
// Preconditions: compute capability 8.0; two panels of k (SIDE + PAD) elements for each product fit in shared memory. T
// is float or double.
// Limit: memory bandwidth up to sizes of about 64, where there is too little reuse. Beyond that each panel is read by
// several blocks, and gemm/async.cu, which overlaps copies with products, is better. A single product is bounded by the
// latencies of a launch and of one access to memory.
#include "gemm/pack.cuh"
#include "gemm/panel.cuh"
#include "panel_copy.cuh"

namespace {

// One thread's part of a tile.
template <int SIDE, int TM, int TN>
struct Part {
  static constexpr int PM = TM < 4 ? TM : 4, PN = TN < 4 ? TN : 4;
  static constexpr int ACROSS = SIDE / TN, THREADS = ACROSS * (SIDE / TM);
  static __device__ __forceinline__ unsigned row(int i) {
    return i / PM * (SIDE / TM) * PM + threadIdx.x / ACROSS * PM + i % PM;
  }
  static __device__ __forceinline__ unsigned col(int j) {
    return j / PN * ACROSS * PN + threadIdx.x % ACROSS * PN + j % PN;
  }
};

// Starts the copy of a panel: element [kk][w] is the one at offset<op>(kk, w0 + w, ld) of x, or zero from `width` on.
// Threads run along the rows as stored; along k, where the copy transposes the panel, only eight at a time, which
// avoids bank conflicts. One iteration copies as many rows of k as the threads cover; a thread past k copies nothing.
template <int SIDE, int THREADS, Op op, class T>
__device__ __forceinline__ void copy_whole(T *panel, const T *x, unsigned w0, unsigned k, unsigned width, unsigned ld) {
  constexpr int ACROSS = op == Op::T ? 8 : SIDE < 32 ? SIDE : 32, DEEP = op == Op::T ? ACROSS : THREADS / ACROSS;
  using Panel = PaddedPanel<T, DEEP, SIDE, op>;
  using Mine = Share<Panel::ROWS, Panel::COLS, THREADS, 1, ACROSS>;
  const unsigned depth = op == Op::T ? Mine::col() : Mine::row();
  PanelSource<Panel, Mine> source(x, 0, w0, k, width, ld);
  for (unsigned kk = depth; kk < k; kk += DEEP, panel += Panel::ELEMENTS, source.advance())
    copy_panel<Panel, Mine>(panel, source);
}

}  // namespace

template <class T, int SIDE, int TM, int TN, Op op_a, Op op_b>
__global__ void __launch_bounds__(256)
    gemm_batched(const T *__restrict__ a, const T *__restrict__ b, T *c, unsigned m, unsigned n, unsigned k, T alpha,
                 T beta, unsigned lda, unsigned ldb, unsigned ldc, long long stride_a, long long stride_b,
                 long long stride_c, unsigned batch) {
  using Mine = Part<SIDE, TM, TN>;
  DYN_SHARED(T, smem);
  T(*panel_a)[SIDE + PAD] = reinterpret_cast<T(*)[SIDE + PAD]>(smem) + size_t(2 * threadIdx.y) * k;
  T(*panel_b)[SIDE + PAD] = panel_a + k;
  const unsigned row0 = blockIdx.y * SIDE, col0 = blockIdx.z * SIDE;
  const unsigned product = blockIdx.x * blockDim.y + threadIdx.y;
  if (product < batch) {
    copy_whole<SIDE, Mine::THREADS, flipped<op_a>>(panel_a[0], a + product * stride_a, row0, k, m, lda);
    copy_whole<SIDE, Mine::THREADS, op_b>(panel_b[0], b + product * stride_b, col0, k, n, ldb);
  }
  ptx::cp_async_wait_all();
  __syncthreads();  // all panels are complete
  if (product >= batch) return;
  T sums[TM][TN] = {};
  for (unsigned kk = 0; kk < k; ++kk) {
    Pack<T, Mine::PM> left[TM / Mine::PM];
    Pack<T, Mine::PN> right[TN / Mine::PN];
#pragma unroll
    for (int i = 0; i < TM; i += Mine::PM)
      left[i / Mine::PM] = *reinterpret_cast<const Pack<T, Mine::PM> *>(&panel_a[kk][Mine::row(i)]);
#pragma unroll
    for (int j = 0; j < TN; j += Mine::PN)
      right[j / Mine::PN] = *reinterpret_cast<const Pack<T, Mine::PN> *>(&panel_b[kk][Mine::col(j)]);
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
      for (int j = 0; j < TN; ++j)
        sums[i][j] += left[i / Mine::PM].e[i % Mine::PM] * right[j / Mine::PN].e[j % Mine::PN];
  }
  c += product * stride_c + offset<Op::N>(row0, col0, ldc);
#pragma unroll
  for (int i = 0; i < TM; ++i) {
    const unsigned row = Mine::row(i);
    if (row0 + row >= m) break;
#pragma unroll
    for (int j = 0; j < TN; ++j) {
      const unsigned col = Mine::col(j);
      if (col0 + col >= n) break;
      T &element = c[offset<Op::N>(row, col, ldc)];
      element = beta == T(0) ? alpha * sums[i][j] : alpha * sums[i][j] + beta * element;
    }
  }
}
