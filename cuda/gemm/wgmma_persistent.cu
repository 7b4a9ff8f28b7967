// C = alpha op(A) op(B) + beta C on the tensor cores of Hopper, warp-specialised (gemm/wgmma_specialised.cuh).
// Results are stored by TMA through shared memory, 64 rows x 128 bytes at a time (gemm/store.cuh).
// Preconditions: sm_90a; stored rows of A, B and C begin at multiples of 16 bytes, and those of C end there.
// T = float is multiplied as TF32, and sums of FP8 are promoted (gemm/wgmma_promoted.cuh). FP32, FP8 and 8-bit integers
// need A and B stored along k. Sums of integers are stored as they are: alpha is 1, beta 0, and none may pass 32 bits.
// Scales: none, or pointers to those of A and of op(B), by which sums of FP8 are multiplied as they are promoted.
// Limit: the tensor cores, or the power that they may draw, while there are enough tiles for the device.
#include "gemm/store.cuh"
#include "gemm/wgmma_promoted.cuh"
#include "gemm/wgmma_specialised.cuh"

template <class T, class Out, unsigned BN, unsigned STAGES, unsigned CLUSTER, Op op_a, Op op_b, class... Scales>
__global__ void __launch_bounds__(3 * WARPGROUP, 1)
    gemm_wgmma_persistent(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
                          const __grid_constant__ TensorMap map_c, const Out *c, unsigned m, unsigned n, unsigned k,
                          unsigned products, float alpha, float beta, unsigned ldc, long long stride_c,
                          Scales... scales) {
  using Work = Specialised<T, BN, STAGES, CLUSTER, op_a, op_b>;
  using Store = TileStore<Out, BN>;
  __shared__ unsigned long long arrived[STAGES], free[STAGES];
  DYN_SHARED(unsigned char, smem);
  const unsigned tiles = aligned_to_atom(smem), steps = (k + Work::A::DEPTH - 1) / Work::A::DEPTH;
  unsigned char *buffers = smem + (tiles - ptx::smem_address(smem)) + STAGES * Work::SLOT_BYTES;
  const Work work{map_a,
                  map_b,
                  {(m + CLUSTER * BM - 1) / (CLUSTER * BM), (n + BN - 1) / BN},
                  {steps, steps, 1},
                  products,
                  tiles,
                  ptx::smem_address(arrived),
                  ptx::smem_address(free)};
  const auto store_of = [&](unsigned warpgroup) {
    unsigned char *own = buffers + warpgroup * Store::BUFFERS * Store::BUFFER_BYTES;
    return Store{{map_c, c, m, n, ldc, stride_c, alpha, beta, own, warpgroup + 1}};
  };
  if constexpr (sizeof...(Scales) == 2) {
    work.run(PromotedByScales{scales..., m, n}, store_of);
  } else if constexpr (Element<T>::PROMOTED) {
    work.run(Promoted{}, store_of);
  } else {
    work.run(Plainly{}, store_of);
  }
}
