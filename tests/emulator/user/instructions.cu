// Kernels with inline PTX, as users write them.
#include <cuda_fp16.h>
#include <stdint.h>

__device__ __forceinline__ unsigned lane_id() {
  unsigned lane;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}
__device__ __forceinline__ float4 load_streaming(const float4 *from) {
  float4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "l"(from));
  return v;
}
__device__ __forceinline__ void store_streaming(float4 *to, float4 v) {
  asm volatile("st.global.cs.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w)
               : "memory");
}
__global__ void copy(const float4 *x, float4 *y, int n) {
  const int i = blockIdx.x * blockDim.x + (threadIdx.x & ~31) + lane_id();
  if (i < n) store_streaming(y + i, load_streaming(x + i));
}

__device__ __forceinline__ void copy_16(void *to, const void *from, bool inside) {
  const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  asm volatile(
      "{\n"
      "  .reg .pred p;\n"
      "  setp.ne.b32 p, %2, 0;\n"
      "  @p cp.async.cg.shared.global.L2::128B [%0], [%1], %3;\n"
      "  @!p st.shared.v4.u32 [%0], {0, 0, 0, 0};\n"
      "}\n" ::"r"(address), "l"(from), "r"((int)inside), "n"(16));
}

// C = A B^T of halves, 16 x 8 a warp, 16 of k at a time, staged twice.
__global__ void product(const half *a, const half *b, float *c, int m, int n, int k) {
  __shared__ __align__(16) half stage[2][24][24];
  const int lane = threadIdx.x, row0 = blockIdx.y * 16, col0 = blockIdx.x * 8;
  const auto fetch = [&](int s, int k0) {
    const int row = lane / 2, part = lane % 2 * 8;
    copy_16(&stage[s][row][part], a + (row0 + row) * k + k0 + part, row0 + row < m);
    if (row < 8) copy_16(&stage[s][16 + row][part], b + (col0 + row) * k + k0 + part, col0 + row < n);
    asm volatile("cp.async.commit_group;\n" ::);
  };
  float d[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  fetch(0, 0);
  for (int k0 = 0, s = 0; k0 < k; k0 += 16, s ^= 1) {
    if (k0 + 16 < k) fetch(s ^ 1, k0 + 16);
    else asm volatile("cp.async.commit_group;");
    asm volatile("cp.async.wait_group %0;\n" ::"n"(1));
    __syncwarp();
    uint32_t fa[4], fb[2];
    const uint32_t at_a = __cvta_generic_to_shared(&stage[s][lane % 16][lane / 16 * 8]);
    const uint32_t at_b = __cvta_generic_to_shared(&stage[s][16 + lane % 8][lane / 8 % 2 * 8]);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(fa[0]), "=r"(fa[1]), "=r"(fa[2]), "=r"(fa[3]) : "r"(at_a));
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared::cta.b16 {%0, %1}, [%2];" : "=r"(fb[0]), "=r"(fb[1]) : "r"(at_b));
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(fa[0]), "r"(fa[1]), "r"(fa[2]), "r"(fa[3]), "r"(fb[0]), "r"(fb[1]));
    __syncwarp();
  }
  for (int e = 0; e < 4; ++e) {
    const int row = row0 + lane / 4 + e / 2 * 8, col = col0 + lane % 4 * 2 + e % 2;
    if (row < m && col < n) c[row * n + col] = d[e];
  }
}

// Instructions that C++ has no name for, one result each.
__global__ void singles(const unsigned *x, unsigned *y) {
  const unsigned i = threadIdx.x, a = x[i];
  unsigned r[9];
  float half_of;
  asm("bfe.u32 %0, %1, 4, 8;" : "=r"(r[0]) : "r"(a));
  asm("lop3.b32 %0, %1, %2, %3, 0x96;" : "=r"(r[1]) : "r"(a), "r"(i), "r"(7));
  asm("prmt.b32 %0, %1, %1, 0x0123;" : "=r"(r[2]) : "r"(a));
  asm("shfl.sync.bfly.b32 %0, %1, 1, 0x1f, 0xffffffff;" : "=r"(r[3]) : "r"(a));
  asm("{ .reg .u32 t; add.u32 t, %1, 1; mul.lo.u32 %0, t, 3; }" : "=r"(r[4]) : "r"(a));
  asm("{ .reg .pred p; setp.gt.u32 p, %1, %2; selp.u32 %0, 1, 0, p; }" : "=r"(r[5]) : "r"(a), "r"(1u << 20));
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(half_of) : "f"(-1.0f));
  r[6] = __float_as_uint(half_of);
  unsigned long long both;
  asm("mov.b64 %0, {%1, %2};" : "=l"(both) : "r"(a), "r"(i));
  r[7] = unsigned(both >> 32) + unsigned(both);
  asm volatile("bar.sync 0;");
  asm volatile("{ .reg .b32 low, high; mov.b64 {low, high}, %1; sub.s32 %0, low, high; }" : "=r"(r[8]) : "l"(both));
  for (int j = 0; j < 9; ++j) y[j * 32 + i] = r[j];
}

// Products twice as wide, numbers of several words, and a condition joined to another.
__global__ void words(const unsigned *x, unsigned *y) {
  const unsigned i = threadIdx.x, a = x[i], b = x[i ^ 1];
  unsigned r[8];
  unsigned long long square;
  asm("mul.wide.u32 %0, %1, %2;" : "=l"(square) : "r"(a), "r"(b));
  r[0] = unsigned(square), r[1] = unsigned(square >> 32);
  asm("mul.hi.s32 %0, %1, %2;" : "=r"(r[2]) : "r"(a), "r"(b));
  asm("mad.wide.s32 %0, %1, %2, %3;" : "=l"(square) : "r"(a), "r"(b), "l"(1ll << 33));
  r[3] = unsigned(square >> 32);
  asm("add.cc.u32 %0, %2, %3;\n\taddc.u32 %1, %2, 5;" : "=&r"(r[4]), "=r"(r[5]) : "r"(a), "r"(b));
  asm("{ .reg .u32 low; mad.lo.cc.u32 low, %1, %2, %1; madc.hi.u32 %0, %1, %2, 0; }" : "=r"(r[6]) : "r"(a), "r"(b));
  asm("{ .reg .pred p, q; setp.gt.u32 q, %1, %2; setp.lt.and.u32 p, %1, %3, q; selp.u32 %0, 1, 0, p; }"
      : "=r"(r[7]) : "r"(a), "r"(1u << 20), "r"(b));
  for (int j = 0; j < 8; ++j) y[j * 32 + i] = r[j];
}

// Histogram by red, and the largest value by a loop of compare and swap.
__global__ void counted(const float *x, unsigned *bins, double *most, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  asm volatile("red.global.add.u32 [%0], %1;" ::"l"(bins + int(x[i] * 8)), "r"(1) : "memory");
  auto *at = reinterpret_cast<unsigned long long *>(most);
  unsigned long long old = atomicAdd(at, 0ull), assumed;
  do {
    assumed = old;
    if (__longlong_as_double(assumed) >= x[i]) break;
    old = atomicCAS(at, assumed, (unsigned long long)__double_as_longlong(x[i]));
  } while (assumed != old);
}
