// C = alpha op(A) op(B) + beta C on the tensor cores of Hopper: a warpgroup multiplies out of shared memory while the
// TMA fills it, and no thread touches an element of A or B.
//
// Tile: a block of two warpgroups owns 128 x BN elements of C, each warpgroup 64 rows of them; blockIdx.z counts the
// products of a strided batch. STAGES tiles of A and B form a ring (gemm/wgmma.cuh): thread 0 starts the loads of a
// step's tiles, and all threads wait for them at their mbarrier. Two blocks fit on a multiprocessor, and one multiplies
// while the other stores.
// Preconditions: sm_90a; stored rows of A, B and C begin at multiples of 16 bytes.
// Limit: the barrier of all threads in each step, and stores straight from the sums, 16 bytes of a row at a time.
// gemm/wgmma_persistent.cu has neither.
#include "gemm/wgmma.cuh"

constexpr unsigned BM = 2 * WARPGROUP_ROWS;

template <class T, class Out, int BN, int STAGES, Op op_a, Op op_b>
__global__ void __launch_bounds__(2 * WARPGROUP, 2)
    gemm_wgmma(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, Out *c, unsigned m,
               unsigned n, unsigned k, float alpha, float beta, unsigned ldc, long long stride_c) {
  using A = OperandTile<T, BM, op_a == Op::N>;
  using B = OperandTile<T, BN, op_b == Op::T>;
  __shared__ unsigned long long arrived[STAGES];
  DYN_SHARED(unsigned char, smem);
  const unsigned tiles = aligned_to_atom(smem), warpgroup = warpgroup_index();
  const unsigned row0 = blockIdx.y * BM, col0 = blockIdx.x * BN, steps = (k + A::DEPTH - 1) / A::DEPTH;

  const auto slot = [&](unsigned step) { return tiles + step % STAGES * (A::BYTES + B::BYTES); };
  const auto start = [&](unsigned step) {
    const unsigned barrier = ptx::smem_address(&arrived[step % STAGES]);
    ptx::mbarrier_arrive_expect_tx(barrier, A::BYTES + B::BYTES);
    A::template load<BM>(slot(step), map_a, row0, step * A::DEPTH, blockIdx.z, barrier);
    B::template load<BN>(slot(step) + A::BYTES, map_b, col0, step * A::DEPTH, blockIdx.z, barrier);
  };

  if (threadIdx.x == 0) {
    for (unsigned stage = 0; stage < STAGES; ++stage) ptx::mbarrier_init(ptx::smem_address(&arrived[stage]), 1);
    ptx::fence_mbarrier_init();
    for (unsigned step = 0; step < min(steps, STAGES - 1u); ++step) start(step);
  }
  __syncthreads();  // the barriers are initialised

  float sums[BN / 2];
  for (unsigned step = 0; step < steps; ++step) {
    ptx::mbarrier_wait(ptx::smem_address(&arrived[step % STAGES]), step / STAGES % 2);
    const unsigned a = slot(step) + warpgroup * WARPGROUP_ROWS * ROW_BYTES;
    start_product<T, A, B>(sums, a, slot(step) + A::BYTES, step == 0);
    ptx::wgmma_wait<1>();  // the previous step has read its slot ...
    __syncthreads();       // ... in both warpgroups
    if (threadIdx.x == 0 && step + STAGES - 1 < steps) start(step + STAGES - 1);
  }
  ptx::wgmma_wait<0>();

  const PairStore<Out> store{c, m, n, ldc, stride_c, alpha, beta};
  store.put(sums, row0 + warpgroup * WARPGROUP_ROWS, col0, blockIdx.z);
}
