// Stencils, scans, sorts, sums and conversions as users write them.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda/std/array>
#include <cuda/std/cstdint>
#include <cuda/std/limits>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

namespace cg = cooperative_groups;

#define RADIUS 3
#define BLOCK 64

__constant__ float weights[2 * RADIUS + 1] = {0.05f, 0.1f, 0.2f, 0.3f, 0.2f, 0.1f, 0.05f};

// A line, with a halo in shared memory.
__global__ void stencil_1d(const float *__restrict__ in, float *__restrict__ out, int n) {
  __shared__ float temp[BLOCK + 2 * RADIUS];
  const int g = threadIdx.x + blockIdx.x * blockDim.x, l = threadIdx.x + RADIUS;
  temp[l] = g < n ? in[g] : 0.0f;
  if (threadIdx.x < RADIUS) {
    temp[l - RADIUS] = g >= RADIUS ? in[g - RADIUS] : 0.0f;
    temp[l + BLOCK] = g + BLOCK < n ? in[g + BLOCK] : 0.0f;
  }
  __syncthreads();
  float result = 0.0f;
#pragma unroll
  for (int offset = -RADIUS; offset <= RADIUS; offset++) result += weights[offset + RADIUS] * temp[l + offset];
  if (g < n) out[g] = result;
}

// Seven points; a plane at a time, with those in front and behind in registers.
__global__ void stencil_3d(const float *in, float *out, int nx, int ny, int nz) {
  __shared__ float plane[8 + 2][16 + 2];
  const int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y, tx = threadIdx.x + 1, ty = threadIdx.y + 1;
  const auto at = [&](int x, int y, int z) {
    return x >= 0 && x < nx && y >= 0 && y < ny && z >= 0 && z < nz ? in[(z * ny + y) * nx + x] : 0.0f;
  };
  float behind = 0.0f, current = at(x, y, 0), front = at(x, y, 1);
  for (int z = 0; z < nz; ++z) {
    plane[ty][tx] = current;
    if (threadIdx.x == 0) plane[ty][0] = at(x - 1, y, z);
    if (threadIdx.x == 15) plane[ty][17] = at(x + 1, y, z);
    if (threadIdx.y == 0) plane[0][tx] = at(x, y - 1, z);
    if (threadIdx.y == 7) plane[9][tx] = at(x, y + 1, z);
    __syncthreads();
    if (x < nx && y < ny)
      out[(z * ny + y) * nx + x] = behind + front + plane[ty][tx - 1] + plane[ty][tx + 1] + plane[ty - 1][tx] +
                                   plane[ty + 1][tx] - 6.0f * current;
    behind = current, current = front, front = at(x, y, z + 2);
    __syncthreads();
  }
}

// Root mean square of a row by warp shuffles, as in language models.
__global__ void rms_norm(const __half *x, const __half *w, __half *y, int cols, float eps) {
  __shared__ float partial[32];
  float square = 0.0f;
  for (int i = threadIdx.x; i < cols; i += blockDim.x) {
    const float value = __half2float(x[blockIdx.x * cols + i]);
    square += value * value;
  }
  for (int mask = warpSize / 2; mask > 0; mask /= 2) square += __shfl_xor_sync(~0u, square, mask, warpSize);
  if (threadIdx.x % warpSize == 0) partial[threadIdx.x / warpSize] = square;
  __syncthreads();
  square = threadIdx.x < blockDim.x / warpSize ? partial[threadIdx.x] : 0.0f;
  if (threadIdx.x < warpSize) {
    for (int mask = warpSize / 2; mask > 0; mask /= 2) square += __shfl_xor_sync(~0u, square, mask, warpSize);
    if (threadIdx.x == 0) partial[0] = rsqrtf(square / cols + eps);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < cols; i += blockDim.x)
    y[blockIdx.x * cols + i] = __float2half(__half2float(x[blockIdx.x * cols + i]) * partial[0] * __half2float(w[i]));
}

// Exclusive scan of a block of 128 by Blelloch's two sweeps.
__global__ void block_scan(const int *in, int *out, int *totals) {
  __shared__ int temp[128];
  const int t = threadIdx.x, n = 128;
  temp[2 * t] = in[blockIdx.x * n + 2 * t];
  temp[2 * t + 1] = in[blockIdx.x * n + 2 * t + 1];
  int offset = 1;
  for (int d = n >> 1; d > 0; d >>= 1, offset *= 2) {
    __syncthreads();
    if (t < d) temp[offset * (2 * t + 2) - 1] += temp[offset * (2 * t + 1) - 1];
  }
  if (t == 0) totals[blockIdx.x] = temp[n - 1], temp[n - 1] = 0;
  for (int d = 1; d < n; d *= 2) {
    offset >>= 1;
    __syncthreads();
    if (t < d) {
      const int a = offset * (2 * t + 1) - 1, b = offset * (2 * t + 2) - 1, swap = temp[a];
      temp[a] = temp[b];
      temp[b] += swap;
    }
  }
  __syncthreads();
  out[blockIdx.x * n + 2 * t] = temp[2 * t];
  out[blockIdx.x * n + 2 * t + 1] = temp[2 * t + 1];
}

// Inclusive scan in one pass: a block looks back at the sums of those before it, and waits for them.
__global__ void look_back(const int *in, int *out, unsigned long long *states, unsigned *ticket, int n) {
  __shared__ unsigned tile;
  __shared__ int before, warp_sums[2];
  if (threadIdx.x == 0) tile = atomicAdd(ticket, 1u);
  __syncthreads();
  const int i = tile * 64 + threadIdx.x, lane = threadIdx.x & 31;
  int value = i < n ? in[i] : 0;
  for (int by = 1; by < 32; by <<= 1) {
    const int other = __shfl_up_sync(0xffffffffu, value, by);
    if (lane >= by) value += other;
  }
  if (lane == 31) warp_sums[threadIdx.x / 32] = value;
  __syncthreads();
  if (threadIdx.x >= 32) value += warp_sums[0];
  if (threadIdx.x == 0) {
    const unsigned total = warp_sums[0] + warp_sums[1];
    atomicExch(&states[tile], 1ull << 62 | total);
    int sum = 0;
    for (int j = int(tile) - 1; j >= 0; --j) {
      unsigned long long state;
      do {
        state = atomicAdd(&states[j], 0ull);
      } while (state == 0);
      sum += int(unsigned(state));
      if (state >> 63) break;
    }
    before = sum;
    __threadfence();
    atomicExch(&states[tile], 1ull << 63 | unsigned(sum + int(total)));
  }
  __syncthreads();
  if (i < n) out[i] = value + before;
}

// Sums of runs with one key, which lanes of a warp add before they are added to memory.
__global__ void segmented(const int *keys, const float *values, float *sums, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
  const int key = i < n ? keys[i] : -1;
  float sum = i < n ? values[i] : 0.0f;
  for (int by = 1; by < 32; by *= 2) {
    const float other = __shfl_down_sync(~0u, sum, by);
    const int other_key = __shfl_down_sync(~0u, key, by);
    if (lane + by < 32 && other_key == key) sum += other;
  }
  const int left = __shfl_up_sync(~0u, key, 1);
  if (key >= 0 && (lane == 0 || left != key)) atomicAdd(&sums[key], sum);
}

__global__ void bitonic_sort(float *data) {
  __shared__ float s[256];
  const unsigned tid = threadIdx.x;
  s[tid] = data[tid];
  __syncthreads();
  for (unsigned k = 2; k <= blockDim.x; k <<= 1) {
    for (unsigned j = k >> 1; j > 0; j >>= 1) {
      const unsigned ixj = tid ^ j;
      if (ixj > tid && ((tid & k) == 0 ? s[tid] > s[ixj] : s[tid] < s[ixj])) {
        const float swap = s[tid];
        s[tid] = s[ixj], s[ixj] = swap;
      }
      __syncthreads();
    }
  }
  data[tid] = s[tid];
}

// Bytes of FP8 with a scale a row, four at a time.
__global__ void quantise(const float4 *x, __nv_fp8x4_e4m3 *y, float *scales, int fours) {
  float most = 1e-12f;
  for (int i = threadIdx.x; i < fours; i += 32) {
    const float4 v = x[blockIdx.x * fours + i];
    most = fmaxf(most, fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w))));
  }
  most = cg::reduce(cg::tiled_partition<32>(cg::this_thread_block()), most, cg::greater<float>());
  const float scale = most / 448.0f, inverse = 1.0f / scale;
  if (threadIdx.x == 0) scales[blockIdx.x] = scale;
  for (int i = threadIdx.x; i < fours; i += 32) {
    const float4 v = x[blockIdx.x * fours + i];
    y[blockIdx.x * fours + i] = __nv_fp8x4_e4m3(make_float4(v.x * inverse, v.y * inverse, v.z * inverse, v.w * inverse));
  }
}

// 8 x 8 tiles of a batch, a tile of eight lanes a column.
__global__ void shuffle(const float *x, float *y) {
  __shared__ float tile[4][8][9];
  auto eight = cg::tiled_partition<8>(cg::this_thread_block());
  const int matrix = blockIdx.x * 4 + eight.meta_group_rank(), lane = eight.thread_rank();
  for (int i = 0; i < 8; ++i) tile[eight.meta_group_rank()][i][lane] = x[matrix * 64 + i * 8 + lane];
  eight.sync();
  for (int i = 0; i < 8; ++i) y[matrix * 64 + i * 8 + lane] = tile[eight.meta_group_rank()][lane][i];
}

// Digits of a radix sort, counted in shared memory.
__global__ void select(const unsigned *keys, unsigned *bins, int n, int shift) {
  __shared__ unsigned counts[16];
  if (threadIdx.x < 16) counts[threadIdx.x] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    atomicAdd(&counts[keys[i] >> shift & 15], 1u);
  __syncthreads();
  if (threadIdx.x < 16) atomicAdd(&bins[threadIdx.x], counts[threadIdx.x]);
}

__device__ double atomic_max_double(double *address, double value) {
  unsigned long long int *as_ull = (unsigned long long int *)address, assumed;
  unsigned long long int old = *as_ull;
  do {
    assumed = old;
    old = atomicCAS(as_ull, assumed, __double_as_longlong(fmax(value, __longlong_as_double(assumed))));
  } while (assumed != old);
  return __longlong_as_double(old);
}
__global__ void largest(const double *x, double *y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomic_max_double(y, x[i]);
}

// Types and limits of the standard library that the device has.
template <class T> __device__ T lowest() { return cuda::std::numeric_limits<T>::lowest(); }
__global__ void limits(const float *x, float *y, cuda::std::int32_t n) {
  cuda::std::array<float, 4> most;
  for (auto &one : most) one = lowest<float>();
  for (cuda::std::int32_t i = threadIdx.x; i < n; i += blockDim.x) most[i % 4] = cuda::std::max(most[i % 4], x[i]);
  static_assert(cuda::std::is_same_v<decltype(most)::value_type, float>);
  for (int i = 0; i < 4; ++i) y[threadIdx.x * 4 + i] = most[i];
}
