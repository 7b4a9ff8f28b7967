// C = alpha op(A) op(B) + beta C on the tensor cores of Hopper, warp-specialised (gemm/wgmma_specialised.cuh): k is cut
// into slices, so that a product with few tiles and a long k fills the device too. A second launch adds the slices.
//
// Tile: as there, for each slice of each product; the sums go straight to partial[product][slice], m rows of ld floats.
// In gemm_wgmma_splitk_sum a thread owns a pair of neighbours in C and adds its slices in ascending order, so that a
// result never depends on which block came first.
// Preconditions: sm_90a; stored rows of A, B and C begin at multiples of 16 bytes; ld is even and at least n.
// Limit: the tensor cores; partial sums are written and read once, 8 slices m n bytes.
#include "gemm/wgmma_specialised.cuh"

// The sums of a slice; a quad of lanes writes 32 bytes of a row.
template <unsigned BN>
struct PartialStore {
  float *partial;
  unsigned m, n, ld;

  __device__ __forceinline__ void put(const float (&sums)[BN / 2], unsigned row0, unsigned col0, unsigned unit) const {
    float *slice = partial + size_t(unit) * m * ld;
#pragma unroll
    for (unsigned i = 0; i < BN / 4; ++i) {  // pairs of neighbours
      const unsigned row = row0 + SumPlace::row(i % 2), col = col0 + i / 2 * 8 + SumPlace::column();
      if (row < m && col < n)
        *reinterpret_cast<float2 *>(slice + size_t(row) * ld + col) = make_float2(sums[2 * i], sums[2 * i + 1]);
    }
  }
  __device__ __forceinline__ void finish() const {}
};

template <class T, unsigned BN, unsigned STAGES, unsigned CLUSTER, Op op_a, Op op_b>
__global__ void __launch_bounds__(3 * WARPGROUP, 1)
    gemm_wgmma_splitk(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, float *partial,
                      unsigned m, unsigned n, unsigned k, unsigned products, unsigned ld, unsigned depth,
                      unsigned slices) {
  using Work = Specialised<T, BN, STAGES, CLUSTER, op_a, op_b>;
  __shared__ unsigned long long arrived[STAGES], free[STAGES];
  DYN_SHARED(unsigned char, smem);
  const Work work{map_a,
                  map_b,
                  {(m + CLUSTER * BM - 1) / (CLUSTER * BM), (n + BN - 1) / BN},
                  {(k + Work::A::DEPTH - 1) / Work::A::DEPTH, depth, slices},
                  products * slices,
                  aligned_to_atom(smem),
                  ptx::smem_address(arrived),
                  ptx::smem_address(free)};
  work.run(Plainly{}, [&](unsigned) { return PartialStore<BN>{partial, m, n, ld}; });
}

template <class Out>
__global__ void __launch_bounds__(256)
    gemm_wgmma_splitk_sum(const float *__restrict__ partial, Out *__restrict__ c, unsigned m, unsigned n, unsigned ld,
                          unsigned slices, float alpha, float beta, unsigned ldc, long long stride_c) {
  const unsigned row = blockIdx.y * blockDim.y + threadIdx.y, col = 2 * (blockIdx.x * blockDim.x + threadIdx.x);
  const unsigned inside = pair_inside(row, col, m, n);
  if (inside == 0) return;
  partial += (size_t(blockIdx.z) * slices * m + row) * ld + col;
  float2 sum = make_float2(0.0f, 0.0f);
  for (unsigned i = 0; i < slices; ++i) {
    const float2 part = *reinterpret_cast<const float2 *>(partial + size_t(i) * m * ld);
    sum.x += part.x, sum.y += part.y;
  }
  store_scaled_pair(c + blockIdx.z * stride_c + offset<Op::N>(row, col, ldc), sum, inside, alpha, beta);
}
