// Kernels with cooperative groups, as users write them.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cuda_runtime.h>

namespace cg = cooperative_groups;

// A row for each block, which keeps the exponentials in dynamic shared memory.
__global__ void softmax(const float *x, float *y, int cols) {
  extern __shared__ float row[];
  __shared__ float partial[8];
  cg::thread_block block = cg::this_thread_block();
  auto warp = cg::tiled_partition<32>(block);
  x += blockIdx.x * cols;
  y += blockIdx.x * cols;
  float most = -INFINITY;
  for (int i = block.thread_rank(); i < cols; i += block.size()) most = fmaxf(most, row[i] = x[i]);
  most = cg::reduce(warp, most, cg::greater<float>());
  if (warp.thread_rank() == 0) partial[warp.meta_group_rank()] = most;
  block.sync();
  for (unsigned i = 0; i < warp.meta_group_size(); ++i) most = fmaxf(most, partial[i]);
  block.sync();
  float sum = 0.0f;
  for (int i = block.thread_rank(); i < cols; i += block.size()) sum += row[i] = __expf(row[i] - most);
  sum = cg::reduce(warp, sum, cg::plus<float>());
  if (warp.thread_rank() == 0) partial[warp.meta_group_rank()] = sum;
  block.sync();
  sum = 0.0f;
  for (unsigned i = 0; i < warp.meta_group_size(); ++i) sum += partial[i];
  for (int i = block.thread_rank(); i < cols; i += block.size()) y[i] = __fdividef(row[i], sum);
}

// One atomic for the lanes that are left, each of which gets a place.
__device__ int place_of(int *count) {
  cg::coalesced_group active = cg::coalesced_threads();
  int first = 0;
  if (active.thread_rank() == 0) first = atomicAdd(count, (int)active.size());
  return active.shfl(first, 0) + active.thread_rank();
}
__global__ void filter(const int *x, int *y, int *count, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n && x[i] > 0) y[place_of(count)] = x[i];
}

// Sums of a tile of 8 by its old, untyped group, and of a row by shuffles.
__device__ float sum_of(cg::thread_group group, float *shared, float value) {
  const int rank = group.thread_rank();
  for (int i = group.size() / 2; i > 0; i /= 2) {
    shared[rank] = value;
    group.sync();
    if (rank < i) value += shared[rank + i];
    group.sync();
  }
  return value;
}
__global__ void tiles(const float *x, float *y) {
  __shared__ float shared[64];
  auto block = cg::this_thread_block();
  auto tile = cg::tiled_partition(block, 8);
  const float sum = sum_of(tile, shared + threadIdx.x / 8 * 8, x[threadIdx.x]);
  if (tile.thread_rank() == 0) y[threadIdx.x / 8] = sum;
  auto four = cg::tiled_partition<4>(cg::tiled_partition<16>(block));
  float value = x[threadIdx.x];
  for (int i = four.size() / 2; i > 0; i /= 2) value += four.shfl_down(value, i);
  if (four.thread_rank() == 0) y[8 + threadIdx.x / 4] = value;
  y[24 + threadIdx.x] = cg::inclusive_scan(four, x[threadIdx.x], cg::plus<float>());
  y[88 + threadIdx.x] = four.ballot(x[threadIdx.x] > 0) + 16 * four.any(x[threadIdx.x] > 50);
}

// Copies of a whole block, waited for by the block.
__global__ void staged(const float *x, float *y, int n) {
  extern __shared__ float stage[];
  auto block = cg::this_thread_block();
  cg::memcpy_async(block, stage, x + blockIdx.x * n, sizeof(float) * n);
  cg::wait(block);
  for (int i = threadIdx.x; i < n; i += blockDim.x) y[blockIdx.x * n + i] = stage[n - 1 - i];
}

// Sums of all blocks, added by the first after a barrier of the grid.
__global__ void grid_sum(const float *x, float *partial, float *y, int n) {
  auto grid = cg::this_grid();
  float sum = 0.0f;
  for (unsigned long long i = grid.thread_rank(); i < n; i += grid.size()) sum += x[i];
  sum = cg::reduce(cg::tiled_partition<32>(cg::this_thread_block()), sum, cg::plus<float>());
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
  grid.sync();
  if (grid.thread_rank() == 0) {
    sum = 0.0f;
    for (unsigned i = 0; i < gridDim.x; ++i) sum += partial[i];
    *y = sum;
  }
}

__global__ void __cluster_dims__(2, 1, 1) ranks(int *y) {
#if __CUDA_ARCH__ >= 900
  auto cluster = cg::this_cluster();
  cluster.sync();
  if (threadIdx.x == 0) y[blockIdx.x] = cluster.block_rank() + 10 * cluster.num_blocks();
#endif
}

// A histogram whose bins are spread over the blocks of a cluster, as in the CUDA programming guide.
__global__ void cluster_histogram(const int *x, int *bins, int n, int bins_per_block) {
  extern __shared__ int smem[];
  cg::cluster_group cluster = cg::this_cluster();
  for (int i = threadIdx.x; i < bins_per_block; i += blockDim.x) smem[i] = 0;
  cluster.sync();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
    const int bin = x[i];
    int *other = cluster.map_shared_rank(smem, bin / bins_per_block);
    atomicAdd(other + bin % bins_per_block, 1);
  }
  cluster.sync();
  int *own = bins + cluster.block_rank() * bins_per_block;
  for (int i = threadIdx.x; i < bins_per_block; i += blockDim.x) atomicAdd(&own[i], smem[i]);
}

// Sums over the blocks of a cluster: vectors by the group's pointer, the rest by inline assembly.
__global__ void cluster_sum(const float *x, float *y) {
  __shared__ char odd;
  __shared__ __align__(16) float row[32];
  cg::cluster_group cluster = cg::this_cluster();
  row[threadIdx.x] = x[blockIdx.x * 32 + threadIdx.x];
  odd = 0;
  cluster.barrier_wait(cluster.barrier_arrive());
  if (cluster.block_rank() == 0 && threadIdx.x < 8) {
    float4 sum = reinterpret_cast<const float4 *>(row)[threadIdx.x];
    for (unsigned rank = 1; rank < cluster.num_blocks() - 1; ++rank) {
      const float4 v = reinterpret_cast<const float4 *>(cluster.map_shared_rank(row, rank))[threadIdx.x];
      sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
    }
    unsigned last = __cvta_generic_to_shared(row + threadIdx.x * 4), there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(last), "r"(cluster.num_blocks() - 1));
    float4 v;
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(there));
    reinterpret_cast<float4 *>(y)[threadIdx.x] = make_float4(sum.x + v.x, sum.y + v.y, sum.z + v.z, sum.w + v.w);
  }
  cluster.sync();
}
