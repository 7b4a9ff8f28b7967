// TMA, mbarriers, clusters, named barriers and wgmma; one block or cluster each.
#include "common.cuh"
#include "ptx_hopper.cuh"

__device__ __forceinline__ void init_barriers(unsigned long long *barriers, unsigned count, unsigned arrivals) {
  if (threadIdx.x == 0) {
    for (unsigned i = 0; i < count; ++i) ptx::mbarrier_init(ptx::smem_address(barriers + i), arrivals);
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
}

// The box at (x, y, z) as its bytes lie in shared memory.
extern "C" __global__ void load_box(const __grid_constant__ TensorMap map, unsigned *out, int x, int y, int z,
                                    int bytes) {
  __shared__ __align__(1024) unsigned smem[4096];
  __shared__ unsigned long long full;
  init_barriers(&full, 1, 1);
  const unsigned barrier = ptx::smem_address(&full);
  if (threadIdx.x == 0) {
    ptx::mbarrier_arrive_expect_tx(barrier, unsigned(bytes));
    ptx::tma_load(ptx::smem_address(smem), &map, x, y, z, barrier);
  }
  ptx::mbarrier_wait(barrier, 0);
  for (unsigned i = threadIdx.x; i < unsigned(bytes) / 4; i += blockDim.x) out[i] = smem[i];
}

// Shared memory is filled with the numbers of its words, then one box of it is stored.
extern "C" __global__ void store_box(const __grid_constant__ TensorMap map, int x, int y, int z, int bytes) {
  __shared__ __align__(1024) unsigned smem[4096];
  for (unsigned i = threadIdx.x; i < unsigned(bytes) / 4; i += blockDim.x) smem[i] = i;
  ptx::fence_proxy_async();
  __syncthreads();
  if (threadIdx.x == 0) {
    ptx::tma_store(&map, ptx::smem_address(smem), x, y, z);
    ptx::tma_store_commit();
    ptx::tma_store_wait_read<0>();
  }
}

// Four rows stored as four groups. A row is written anew once its store has read it: the old values are what counts.
extern "C" __global__ void store_rows(const __grid_constant__ TensorMap map) {
  __shared__ __align__(128) unsigned smem[4][32];
  for (unsigned row = 0; row < 4; ++row) smem[row][threadIdx.x] = 100 * row + threadIdx.x;
  ptx::fence_proxy_async();
  __syncthreads();
  for (unsigned row = 0; threadIdx.x == 0 && row < 4; ++row) {
    ptx::tma_store(&map, ptx::smem_address(smem[row]), 0, int(row), 0);
    ptx::tma_store_commit();
  }
  ptx::tma_store_wait_read<2>();
  __syncthreads();
  for (unsigned row = 0; row < 2; ++row) smem[row][threadIdx.x] = 7;
  ptx::tma_store_wait_read<0>();
  __syncthreads();
  for (unsigned row = 2; row < 4; ++row) smem[row][threadIdx.x] = 7;
}

// Block 0 loads a row for all blocks of its cluster; each adds its rank, and then arrives at the last block's barrier.
extern "C" __global__ void multicast(const __grid_constant__ TensorMap map, float *out, int width) {
  __shared__ __align__(128) float smem[64];
  __shared__ unsigned long long full, done;
  const unsigned rank = ptx::cluster_rank(), blocks = 4;
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(ptx::smem_address(&full), 1);
    ptx::mbarrier_init(ptx::smem_address(&done), blocks);
    ptx::fence_mbarrier_init();
  }
  ptx::cluster_sync();
  if (threadIdx.x == 0) {
    ptx::mbarrier_arrive_expect_tx(ptx::smem_address(&full), unsigned(width) * 4);
    const int row = int(blockIdx.x / blocks);
    if (rank == 0) ptx::tma_load_multicast(ptx::smem_address(smem), &map, 0, row, 0, ptx::smem_address(&full), 0xf);
  }
  ptx::mbarrier_wait(ptx::smem_address(&full), 0);
  if (threadIdx.x < unsigned(width)) out[blockIdx.x * width + threadIdx.x] = smem[threadIdx.x] + float(rank);
  __syncthreads();
  if (threadIdx.x == 0) ptx::mbarrier_arrive_cluster(ptx::smem_address(&done), blocks - 1);
  if (rank == blocks - 1) ptx::mbarrier_wait(ptx::smem_address(&done), 0);
  ptx::cluster_sync();
}

struct F16 {
  using Element = unsigned short;
  using Sum = float;
  template <int a, int b, int count>
  static __device__ void multiply(float (&d)[count], unsigned long long x, unsigned long long y, int more) {
    ptx::wgmma_f16<a, b>(d, x, y, more);
  }
};
struct Bf16 {
  using Element = unsigned short;
  using Sum = float;
  template <int a, int b, int count>
  static __device__ void multiply(float (&d)[count], unsigned long long x, unsigned long long y, int more) {
    ptx::wgmma_bf16<a, b>(d, x, y, more);
  }
};
struct Tf32 {
  using Element = unsigned;
  using Sum = float;
  template <int a, int b, int count>
  static __device__ void multiply(float (&d)[count], unsigned long long x, unsigned long long y, int more) {
    ptx::wgmma_tf32(d, x, y, more);
  }
};
struct E4m3 {
  using Element = unsigned char;
  using Sum = float;
  template <int a, int b, int count>
  static __device__ void multiply(float (&d)[count], unsigned long long x, unsigned long long y, int more) {
    ptx::wgmma_e4m3(d, x, y, more);
  }
};
struct E5m2 {
  using Element = unsigned char;
  using Sum = float;
  template <int a, int b, int count>
  static __device__ void multiply(float (&d)[count], unsigned long long x, unsigned long long y, int more) {
    ptx::wgmma_e5m2(d, x, y, more);
  }
};

struct S8 {
  using Element = unsigned char;
  using Sum = int;
  template <int a, int b, int count>
  static __device__ void multiply(int (&d)[count], unsigned long long x, unsigned long long y, int more) {
    ptx::wgmma_s8(d, x, y, more);
  }
};

// C = A B in TF32 by one warpgroup, a wgmma for each eight of k: A, 64 x 8 steps, from registers, B as in `product`.
template <int COUNT>
__global__ void product_of_registers(const unsigned *a, const unsigned *b, float *c,
                                     const unsigned long long *descriptors, int words_b, int steps) {
  DYN_SHARED(unsigned, smem);
  for (unsigned i = threadIdx.x; i < unsigned(words_b); i += blockDim.x) smem[i] = b[i];
  ptx::fence_proxy_async();
  __syncthreads();
  const unsigned row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, col = threadIdx.x % 4;
  float d[COUNT];
  for (int step = 0; step < steps; ++step) {
    unsigned words[4];
    for (unsigned i = 0; i < 4; ++i) words[i] = a[(row + i % 2 * 8) * 8 * steps + 8 * step + col + i / 2 * 4];
    ptx::wgmma_fence();
    ptx::wgmma_tf32(d, words, descriptors[step] + (ptx::smem_address(smem) >> 4), step > 0);
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
  }
  for (int i = 0; i < COUNT; ++i) c[(row + i % 4 / 2 * 8) * COUNT * 2 + 2 * col + i / 4 * 8 + i % 2] = d[i];
}

// C = A B + C by one warpgroup from operands that lie in shared memory as `a` and `b` say byte by byte, one wgmma for
// each pair of descriptors. `zero` leaves C out of the first.
template <class T, int MN_A, int MN_B, int COUNT>
__global__ void product(const unsigned *a, const unsigned *b, typename T::Sum *c, const unsigned long long *descriptors,
                        int words_a, int words_b, int steps, int zero) {
  using Sum = typename T::Sum;
  DYN_SHARED(unsigned, smem);
  unsigned *smem_b = smem + words_a;
  for (unsigned i = threadIdx.x; i < unsigned(words_a); i += blockDim.x) smem[i] = a[i];
  for (unsigned i = threadIdx.x; i < unsigned(words_b); i += blockDim.x) smem_b[i] = b[i];
  ptx::fence_proxy_async();
  __syncthreads();
  const unsigned row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, col = threadIdx.x % 4 * 2;
  const auto at = [&](int i) -> Sum & { return c[(row + i % 4 / 2 * 8) * COUNT * 2 + col + i / 4 * 8 + i % 2]; };
  Sum d[COUNT];
  for (int i = 0; i < COUNT; ++i) d[i] = at(i);
  ptx::wgmma_fence();
  for (int step = 0; step < steps; ++step)
    T::template multiply<MN_A, MN_B>(d, descriptors[2 * step] + (ptx::smem_address(smem) >> 4),
                                     descriptors[2 * step + 1] + (ptx::smem_address(smem_b) >> 4), step > 0 || !zero);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
  for (int i = 0; i < COUNT; ++i) at(i) = d[i];
}
