// What the lanes of a warp load of A and B, and how they multiply it, where A has few rows (gemm/skinny.cu).
//
// A warp is eight groups of four lanes. Where B is stored along k, a group reads a row of it and each lane 16 bytes of
// that row: a request of the warp fills 64 bytes of eight rows. Where B is stored along n, a lane reads 16 bytes
// of four rows of k, and the groups lie side by side along n: a request fills 128 bytes of four rows. Either way a lane
// has the same places of k in B and in A, and which lane has which does not matter to a sum: so 16-bit operands go to
// mma.sync as they were loaded, without shared memory or ldmatrix. FP32 is multiplied by FFMA, each lane with all rows
// of A.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "common.cuh"
#include "ptx.cuh"

namespace {

constexpr unsigned GROUPS = 8, MEMBERS = 4;  // of a warp; lanes of a group

__device__ __forceinline__ unsigned group() { return threadIdx.x % 32 / MEMBERS; }
__device__ __forceinline__ unsigned member() { return threadIdx.x % MEMBERS; }

// BYTES of neighbours, as they are loaded, as elements, and as the registers that mma.sync takes.
template <class T, unsigned BYTES>
struct alignas(BYTES) Words {
  unsigned r[BYTES / 4];
};
template <class T, unsigned BYTES = 16>
union Neighbours {
  static constexpr unsigned COUNT = BYTES / sizeof(T);
  Words<T, BYTES> words;
  unsigned r[BYTES / 4];
  T e[COUNT];

  // Loads those of the neighbours at `from` that exist, and zeros for the others. W > 1: all of them exist, or none.
  template <int W>
  __device__ __forceinline__ void load(const T *from, unsigned existing) {
    words = {};
    if (W > 1) {
      if (existing) words = *reinterpret_cast<const Words<T, BYTES> *>(from);
      return;
    }
#pragma unroll
    for (unsigned i = 0; i < COUNT; ++i)
      if (i < existing) e[i] = from[i];
  }
};

// A lane's loads of one step along k: those of A, from LOADED rows, and those of B.
template <class T, int LOADED, int COLS, int W, Op op_b>
struct SkinnyFeed {
  static constexpr bool ALONG_K = op_b == Op::T;
  static constexpr unsigned V = Neighbours<T>::COUNT, DEEP = ALONG_K ? V : MEMBERS, STEP = MEMBERS * DEEP;
  static constexpr unsigned DOWN = ALONG_K ? COLS / GROUPS : DEEP, ACROSS = ALONG_K ? 1 : COLS / (GROUPS * V);
  static_assert(DOWN * ACROSS > 0, "every group has a column");
  using A = Neighbours<T, DEEP * sizeof(T)>[LOADED];
  using B = Neighbours<T>[DOWN][ACROSS];
  const T *a_row[LOADED], *b_row[ALONG_K ? DOWN : ACROSS];  // this lane's rows; along n, its columns where k is 0
  unsigned across[ACROSS];                                  // how many of these columns exist
  size_t ldb;

  // In place of rows of A and columns of B past the last one, the last one is loaded, so that no load needs a guard.
  __device__ __forceinline__ SkinnyFeed(const T *a, const T *b, unsigned m, unsigned n, unsigned lda, unsigned ldb_,
                                        unsigned col0)
      : ldb(ldb_) {
#pragma unroll
    for (int i = 0; i < LOADED; ++i) {
      const unsigned row = sizeof(T) == 4 ? i : min(i * GROUPS + group(), m - 1);
      a_row[i] = a + offset<Op::N>(row, 0, lda);
    }
    if constexpr (ALONG_K) {
#pragma unroll
      for (unsigned j = 0; j < DOWN; ++j) b_row[j] = b + offset<Op::N>(min(col0 + j * GROUPS + group(), n - 1), 0, ldb_);
    } else {
#pragma unroll
      for (unsigned i = 0; i < ACROSS; ++i) {
        const unsigned col = min(col0 + (i * GROUPS + group()) * V, W > 1 ? n - V : n - 1);
        b_row[i] = b + col;
        across[i] = min(n - col, V);
      }
    }
  }

  template <bool WHOLE>
  __device__ __forceinline__ void load_a(A &to, unsigned k0, unsigned end) const {
    const unsigned kk = k0 + member() * DEEP, left = WHOLE ? DEEP : min(max(end, kk) - kk, DEEP);
#pragma unroll
    for (int i = 0; i < LOADED; ++i) to[i].template load<W>(a_row[i] + kk, left);
  }

  template <bool WHOLE>
  __device__ __forceinline__ void load_b(B &to, unsigned k0, unsigned end) const {
    const unsigned kk = k0 + member() * DEEP, left = WHOLE ? DEEP : min(max(end, kk) - kk, DEEP);
#pragma unroll
    for (unsigned j = 0; j < DOWN; ++j)
#pragma unroll
      for (unsigned i = 0; i < ACROSS; ++i)
        if constexpr (ALONG_K)
          to[j][i].template load<W>(b_row[j] + kk, left);
        else
          to[j][i].template load<W>(b_row[i] + (kk + j) * ldb, j < left ? across[i] : 0);
  }
};

// A warp's sums. In FP32, each lane has the sums over its own part of k.
template <class T, int ROWS, int COLS, Op op_b>
struct SkinnySums {
  using Stored = float;
  static constexpr bool ALONG_K = op_b == Op::T;
  static constexpr int LOADED = ROWS, MINE = COLS / GROUPS;
  static constexpr unsigned FLOATS = ROWS * COLS;
  float sums[ROWS][MINE] = {};

  template <class A, class B>
  __device__ __forceinline__ void add(const A &a, const B &b) {
#pragma unroll
    for (int row = 0; row < ROWS; ++row)
#pragma unroll
      for (int e = 0; e < 4; ++e)
#pragma unroll
        for (int j = 0; j < MINE; ++j) sums[row][j] += a[row].e[e] * (ALONG_K ? b[j][0].e[e] : b[e][j / 4].e[j % 4]);
  }

  static __device__ __forceinline__ unsigned place(unsigned row, unsigned col) { return row * COLS + col; }

  // Adds the sums of each group's lanes, and writes them; each lane writes every fourth row.
  __device__ __forceinline__ void put(float *to) {
#pragma unroll
    for (int row = 0; row < ROWS; ++row)
#pragma unroll
      for (int j = 0; j < MINE; ++j) {
        float sum = sums[row][j];
        sum += __shfl_xor_sync(0xffffffff, sum, 1);
        sum += __shfl_xor_sync(0xffffffff, sum, 2);
        const unsigned col = ALONG_K ? j * GROUPS + group() : (j / 4 * GROUPS + group()) * 4 + j % 4;
        if (row % MEMBERS == member()) to[place(row, col)] = sum;
      }
  }
};

// The sums of 16-bit types are accumulators of mma.sync, each of 16 rows and 8 columns of C.
template <class T>
__device__ __forceinline__ void mma_16(float (&sums)[4], const unsigned (&a)[4], const unsigned (&b)[2]);
template <>
__device__ __forceinline__ void mma_16<__half>(float (&sums)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  ptx::mma_m16n8k16_f16_f32(sums, a, b);
}
template <>
__device__ __forceinline__ void mma_16<__nv_bfloat16>(float (&sums)[4], const unsigned (&a)[4],
                                                      const unsigned (&b)[2]) {
  ptx::mma_m16n8k16_bf16_f32(sums, a, b);
}

// The lower or the upper (`half`) elements of two registers as one.
__device__ __forceinline__ unsigned paired(unsigned first, unsigned second, int half) {
  return __byte_perm(first, second, half ? 0x7632 : 0x5410);
}

template <class T, int ROWS, int COLS, Op op_b>
struct SkinnyProducts {
  using Stored = unsigned short;
  static constexpr bool ALONG_K = op_b == Op::T;
  static constexpr int LOADED = ROWS / 8, TILES = COLS / GROUPS, V = 8;
  // How sums lie in shared memory: the columns in the order in which products compute them, so that a lane has pairs of
  // neighbours, and rows PITCH apart: neither writing these pairs nor reading columns of C has bank conflicts.
  static constexpr unsigned APART = ALONG_K ? 1 : COLS / V + 4, PITCH = ALONG_K ? COLS | 8 : V * APART + 8;
  static constexpr unsigned FLOATS = ROWS * PITCH;
  float sums[TILES][4] = {};

  template <class A, class B>
  __device__ __forceinline__ void add(const A &a, const B &b) {
    constexpr int HIGH = LOADED - 1;
#pragma unroll
    for (int half = 0; half < (ALONG_K ? 2 : 1); ++half) {
      // Rows 8 to 15 of the product are zero where A has no more than eight.
      const unsigned first = a[0].r[2 * half], second = a[0].r[2 * half + 1];
      const unsigned rows[4] = {first, HIGH ? a[HIGH].r[2 * half] : 0, second, HIGH ? a[HIGH].r[2 * half + 1] : 0};
#pragma unroll
      for (int tile = 0; tile < TILES; ++tile) {
        if constexpr (ALONG_K) {
          mma_16<T>(sums[tile], rows, {b[tile][0].r[2 * half], b[tile][0].r[2 * half + 1]});
        } else {
          const int at = tile / V, pair = tile % V / 2, odd = tile % 2;
          mma_16<T>(sums[tile], rows, {paired(b[0][at].r[pair], b[1][at].r[pair], odd),
                                       paired(b[2][at].r[pair], b[3][at].r[pair], odd)});
        }
      }
    }
  }

  static __device__ __forceinline__ unsigned place(unsigned row, unsigned col) {
    return row * PITCH + (ALONG_K ? col : col % V * APART + col / V);
  }

  __device__ __forceinline__ void put(float *to) {
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) {
      const unsigned first = ALONG_K ? tile * GROUPS : tile % V * APART + tile / V * GROUPS;
#pragma unroll
      for (int i = 0; i < LOADED; ++i)
        *reinterpret_cast<float2 *>(to + (i * 8 + group()) * PITCH + first + member() * 2) =
            make_float2(sums[tile][2 * i], sums[tile][2 * i + 1]);
    }
  }
};

template <int ROWS, int COLS, Op op_b>
struct SkinnySums<__half, ROWS, COLS, op_b> : SkinnyProducts<__half, ROWS, COLS, op_b> {};
template <int ROWS, int COLS, Op op_b>
struct SkinnySums<__nv_bfloat16, ROWS, COLS, op_b> : SkinnyProducts<__nv_bfloat16, ROWS, COLS, op_b> {};

// Adds UNROLL steps from k0 on to the sums. WHOLE: none of them reaches past `end`.
template <bool WHOLE, int UNROLL, class Sums, class Feed>
__device__ __forceinline__ void add_steps(Sums &sums, const Feed &feed, unsigned k0, unsigned end) {
  typename Feed::B b[UNROLL];
#pragma unroll
  for (int i = 0; i < UNROLL; ++i) feed.template load_b<WHOLE>(b[i], k0 + i * Feed::STEP, end);
#pragma unroll
  for (int i = 0; i < UNROLL; ++i) {
    typename Feed::A a;
    feed.template load_a<WHOLE>(a, k0 + i * Feed::STEP, end);
    sums.add(a, b[i]);
  }
}

// Stores an element of C, scaled. C is not read where beta is 0.
template <class T>
__device__ __forceinline__ void store_skinny(T *c, float product, float alpha, float beta) {
  *c = T(beta == 0.0f ? alpha * product : alpha * product + beta * float(*c));
}

}  // namespace
