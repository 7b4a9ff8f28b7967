// Panels: what a block reads of A or B for one step along k, BK deep and BM rows of op(A) or BN columns of op(B) wide.
//
// In shared memory a panel always has k down its rows, panel[kk][w], however the operand is stored: the product then
// reads neighbours, and one body serves all four layouts. On the way there threads walk along the rows as stored, so
// that global loads coalesce. PAD floats behind each row keep it aligned to a float4 and move each row by four banks,
// so that a store across 8 rows, which an operand stored along k needs, meets no bank twice.
#pragma once
#include "common.cuh"

constexpr int PAD = 4;

// Blocks of 256 threads that a multiprocessor is to hold, from which the compiler takes its share of registers: two, so
// that one computes while the other waits, unless each thread's TM x TN sums leave no room.
template <int TM, int TN>
constexpr int RESIDENT = TM * TN <= 64 ? 2 : 1;

// How op(A), whose panel is read by columns, is stored in terms of its panel.
template <Op op>
constexpr Op flipped = op == Op::N ? Op::T : Op::N;

// W neighbours at once; W = 4 wants them aligned to 16 bytes.
template <int W>
__device__ __forceinline__ void load_pack(float *values, const float *from) {
  if constexpr (W == 4) {
    const float4 pack = *reinterpret_cast<const float4 *>(from);
    values[0] = pack.x, values[1] = pack.y, values[2] = pack.z, values[3] = pack.w;
  } else {
    values[0] = *from;
  }
}
template <int W>
__device__ __forceinline__ void store_pack(float *to, const float *values) {
  if constexpr (W == 4) {
    *reinterpret_cast<float4 *>(to) = make_float4(values[0], values[1], values[2], values[3]);
  } else {
    *to = values[0];
  }
}

// W neighbours of the product into a row of C. C is not read where beta is 0.
template <int W>
__device__ __forceinline__ void store_scaled_pack(float *c, const float *products, float alpha, float beta) {
  float values[W];
  if (beta != 0.0f) load_pack<W>(values, c);
#pragma unroll
  for (int i = 0; i < W; ++i) values[i] = beta == 0.0f ? alpha * products[i] : alpha * products[i] + beta * values[i];
  store_pack<W>(c, values);
}

// How THREADS threads share a panel: each takes packs of W neighbours along the rows as stored, each STEP rows below
// the one before. Element [kk][w] of the operand's panel lies at offset<op>(kk, w, ld). W = 4 wants ld and the length
// of the stored rows to be multiples of 4: a pack then lies wholly inside of the operand or wholly outside.
template <int BK, int WIDTH, int THREADS, int W, Op op>
struct Share {
  static constexpr int ACROSS = (op == Op::N ? WIDTH : BK) / W;  // threads along a row
  static constexpr int STEP = THREADS / ACROSS, PACKS = (BK * WIDTH / W + THREADS - 1) / THREADS;
  static_assert(STEP * ACROSS == THREADS, "threads stand in whole rows");

  // Where in the panel pack i begins.
  static __device__ __forceinline__ unsigned depth(int i) {
    return op == Op::N ? threadIdx.x / ACROSS + i * STEP : threadIdx.x % ACROSS * W;
  }
  static __device__ __forceinline__ unsigned place(int i) {
    return op == Op::N ? threadIdx.x % ACROSS * W : threadIdx.x / ACROSS + i * STEP;
  }

  // Where it begins in memory. The distance to the first is the same for all threads, and costs them no registers.
  static __device__ __forceinline__ const float *source(const float *x, int i, unsigned k0, unsigned w0, unsigned ld) {
    return x + offset<op>(k0 + depth(0), w0 + place(0), ld) + size_t(i * STEP) * ld;
  }
};

// A panel on its way through registers: fetched from global memory, then stashed in shared memory. Beyond k and width
// it holds zeros, which add nothing.
template <int BK, int WIDTH, int THREADS, int W, Op op>
struct Panel {
  using Mine = Share<BK, WIDTH, THREADS, W, op>;
  static_assert(Mine::PACKS * W * THREADS == BK * WIDTH, "the threads share a panel evenly");
  float staged[Mine::PACKS][W];

  __device__ __forceinline__ void fetch(const float *__restrict__ x, unsigned k0, unsigned w0, unsigned k,
                                        unsigned width, unsigned ld) {
#pragma unroll
    for (int i = 0; i < Mine::PACKS; ++i) {
      const bool inside = k0 + Mine::depth(i) < k && w0 + Mine::place(i) < width;
#pragma unroll
      for (int e = 0; e < W; ++e) staged[i][e] = 0.0f;
      if (inside) load_pack<W>(staged[i], Mine::source(x, i, k0, w0, ld));
    }
  }

  __device__ __forceinline__ void stash(float (*panel)[WIDTH + PAD]) const {
#pragma unroll
    for (int i = 0; i < Mine::PACKS; ++i) {
      const unsigned kk = Mine::depth(i), w = Mine::place(i);
      if constexpr (op == Op::N) {
        store_pack<W>(&panel[kk][w], staged[i]);
      } else {
#pragma unroll
        for (int e = 0; e < W; ++e) panel[kk + e][w] = staged[i][e];
      }
    }
  }
};
