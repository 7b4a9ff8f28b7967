// One warp: ldmatrix, the products of mma.sync and wmma, cp.async.
#include "ptx.cuh"
#include <mma.h>

// a is 16 x K by rows, b is K x 8 by rows; each lane collects its fragments as the PTX ISA's figures say.
template <class T>
__device__ void load_fragments(const T *a, const T *b, unsigned (&fa)[4], unsigned (&fb)[2]) {
  const unsigned row = threadIdx.x / 4, col = threadIdx.x % 4 * 2;
  const auto pair = [](T low, T high) {
    return unsigned(__builtin_bit_cast(unsigned short, low)) | unsigned(__builtin_bit_cast(unsigned short, high)) << 16;
  };
  for (unsigned r = 0; r < 4; ++r) {
    const T *from = a + (row + r % 2 * 8) * 16 + col + r / 2 * 8;
    fa[r] = pair(from[0], from[1]);
  }
  for (unsigned r = 0; r < 2; ++r) fb[r] = pair(b[(col + r * 8) * 8 + row], b[(col + r * 8 + 1) * 8 + row]);
}

__device__ void store_fragment(const float (&d)[4], float *c) {
  for (unsigned e = 0; e < 4; ++e) c[(threadIdx.x / 4 + e / 2 * 8) * 8 + threadIdx.x % 4 * 2 + e % 2] = d[e];
}

extern "C" __global__ void mma_f16(const __half *a, const __half *b, float *c, __half *c16) {
  unsigned fa[4], fb[2], packed[2] = {};
  float d[4] = {1.0f, 1.0f, 1.0f, 1.0f};
  load_fragments(a, b, fa, fb);
  ptx::mma_m16n8k16_f16_f32(d, fa, fb);
  store_fragment(d, c);
  ptx::mma_m16n8k16_f16_f16(packed, fa, fb);
  for (unsigned e = 0; e < 4; ++e) {
    const auto bits = static_cast<unsigned short>(packed[e / 2] >> e % 2 * 16);
    c16[(threadIdx.x / 4 + e / 2 * 8) * 8 + threadIdx.x % 4 * 2 + e % 2] = __ushort_as_half(bits);
  }
}

extern "C" __global__ void mma_bf16(const __nv_bfloat16 *a, const __nv_bfloat16 *b, float *c) {
  unsigned fa[4], fb[2];
  float d[4] = {};
  load_fragments(a, b, fa, fb);
  ptx::mma_m16n8k16_bf16_f32(d, fa, fb);
  store_fragment(d, c);
}

// a is 16 x 32 by rows, b 32 x 8 by rows; c is their product and the largest integer.
extern "C" __global__ void mma_s8(const signed char *a, const signed char *b, int *c) {
  const unsigned row = threadIdx.x / 4, col = threadIdx.x % 4 * 4;
  unsigned fa[4] = {}, fb[2] = {};
  int d[4];
  for (unsigned i = 0; i < 4; ++i) {
    for (unsigned r = 0; r < 4; ++r)
      fa[r] |= unsigned(static_cast<unsigned char>(a[(row + r % 2 * 8) * 32 + col + r / 2 * 16 + i])) << 8 * i;
    for (unsigned r = 0; r < 2; ++r)
      fb[r] |= unsigned(static_cast<unsigned char>(b[(col + r * 16 + i) * 8 + row])) << 8 * i;
    d[i] = 0x7fffffff;
  }
  ptx::mma_m16n8k32_s8_s32(d, fa, fb);
  for (unsigned e = 0; e < 4; ++e) c[(threadIdx.x / 4 + e / 2 * 8) * 8 + threadIdx.x % 4 * 2 + e % 2] = d[e];
}

template <bool rounded>
__global__ void mma_tf32(const float *a, const float *b, float *c) {
  unsigned fa[4], fb[2];
  float d[4] = {};
  const unsigned row = threadIdx.x / 4, col = threadIdx.x % 4;
  const auto operand = [](float x) { return rounded ? ptx::to_tf32(x) : __float_as_uint(x); };
  for (unsigned r = 0; r < 4; ++r) fa[r] = operand(a[(row + r % 2 * 8) * 8 + col + r / 2 * 4]);
  for (unsigned r = 0; r < 2; ++r) fb[r] = operand(b[(col + r * 4) * 8 + row]);
  ptx::mma_m16n8k8_tf32_f32(d, fa, fb);
  store_fragment(d, c);
}

// a is 16 x 4 by rows, b 4 x 8; c is their product plus one, once 16 rows high and twice 8.
extern "C" __global__ void mma_f64(const double *a, const double *b, double *c, double *twice) {
  const unsigned row = threadIdx.x / 4, col = threadIdx.x % 4;
  const double fa[2] = {a[row * 4 + col], a[(row + 8) * 4 + col]}, fb = b[col * 8 + row];
  double d[4] = {1.0, 1.0, 1.0, 1.0}, halves[4] = {1.0, 1.0, 1.0, 1.0};
  ptx::mma_m16n8k4_f64(d, fa, fb);
  ptx::mma_m8n8k4_f64(halves[0], halves[1], fa[0], fb);
  ptx::mma_m8n8k4_f64(halves[2], halves[3], fa[1], fb);
  for (unsigned e = 0; e < 4; ++e) {
    const unsigned at = (row + e / 2 * 8) * 8 + col * 2 + e % 2;
    c[at] = d[e];
    twice[at] = halves[e];
  }
}

// x is four 8 x 8 matrices; row l of out is what lane l received: x4, x4.trans, x2, x2.trans, x1, x1.trans.
extern "C" __global__ void ldmatrix(const unsigned short *x, unsigned *out) {
  __shared__ __align__(16) unsigned short smem[256];
  const unsigned lane = threadIdx.x;
  for (unsigned i = lane; i < 256; i += 32) smem[i] = x[i];
  __syncwarp();
  const unsigned address = ptx::smem_address(&smem[lane * 8]);
  unsigned four[4], two[2], one[1];
  unsigned *to = out + lane * 14;
  const auto keep = [&](const unsigned *r, int count) { for (int i = 0; i < count; ++i) *to++ = r[i]; };
  ptx::ldmatrix_x4(four, address), keep(four, 4);
  ptx::ldmatrix_x4_trans(four, address), keep(four, 4);
  ptx::ldmatrix_x2(two, address), keep(two, 2);
  ptx::ldmatrix_x2_trans(two, address), keep(two, 2);
  ptx::ldmatrix_x1(one, address), keep(one, 1);
  ptx::ldmatrix_x1_trans(one, address), keep(one, 1);
}

template <class T, int M, int N, int K, class LA, class LB>
__global__ void wmma(const typename nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, M, N, K, T, LA>::element_type *a,
                     const typename nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, M, N, K, T, LA>::element_type *b,
                     float *c, int lda, int ldb) {
  using namespace nvcuda::wmma;
  fragment<matrix_a, M, N, K, T, LA> fa;
  fragment<matrix_b, M, N, K, T, LB> fb;
  fragment<accumulator, M, N, K, float> sum;
  fill_fragment(sum, 0.0f);
  load_matrix_sync(fa, a, lda);
  load_matrix_sync(fb, b, ldb);
  mma_sync(sum, fa, fb, sum);
  store_matrix_sync(c, sum, M, mem_col_major);
}

// Pieces of 4, 8 and 16 bytes in three groups, the last cut off after `kept` bytes.
extern "C" __global__ void copies(const float *x, float *out, int kept) {
  __shared__ __align__(16) float smem[3][128];
  const unsigned t = threadIdx.x;
  for (unsigned i = t; i < 128; i += 32) ptx::cp_async_ca<4>(ptx::smem_address(&smem[0][i]), x + i);
  ptx::cp_async_commit();
  for (unsigned i = t; i < 64; i += 32) ptx::cp_async_ca<8>(ptx::smem_address(&smem[1][2 * i]), x + 2 * i);
  ptx::cp_async_commit();
  ptx::cp_async_cg(ptx::smem_address(&smem[2][4 * t]), x + 4 * t, unsigned(kept));
  ptx::cp_async_commit();
  ptx::cp_async_wait<2>();
  __syncwarp();
  for (unsigned i = t; i < 128; i += 32) out[i] = smem[0][127 - i];
  ptx::cp_async_wait<1>();
  __syncwarp();
  for (unsigned i = t; i < 128; i += 32) out[128 + i] = smem[1][127 - i];
  ptx::cp_async_wait_all();
  __syncwarp();
  for (unsigned i = t; i < 128; i += 32) out[256 + i] = smem[2][127 - i];
}
