// Steps 1 and 3 of C2R (transpose/c2r.cu describes the algorithm, its steps and its letters) with stripes on their way
// to shared memory while another one is stored.
//
// A block goes through its stripes with a ring of STAGES of them, which cp.async fills: it needs no registers, so that
// all of a stripe is in flight at once. There is one barrier for each stripe.
// Preconditions: compute capability 8.0; elements of 4 or 8 bytes, which is what cp.async moves.
#pragma once
#include "gemm/pack.cuh"
#include "ptx.cuh"
#include "transpose/c2r.cuh"

namespace {

// The rows i of a column that a thread fills, each from row source(shift); shift as in c2r.cuh.
template <Step STEP>
class ColumnWalk {
 public:
  __device__ ColumnWalk(unsigned first, unsigned step, unsigned rows, unsigned, unsigned)
      : i(first), step_(step), rows_(rows) {}
  __device__ __forceinline__ void advance() { i += step_; }
  __device__ __forceinline__ unsigned source(unsigned shift) const { return wrapped(i + shift, rows_); }

  unsigned i;

 private:
  unsigned step_, rows_;
};

// Step 3 fills rows s, s + a, s + 2a, ... from neighbouring rows: row i = q a + s from row (s cols + j - q) mod rows.
// Threads go along q first, then along s: neighbours access different banks, and q is the only quotient needed.
template <>
class ColumnWalk<Step::PERMUTE> {
 public:
  __device__ ColumnWalk(unsigned first, unsigned step, unsigned rows, unsigned cols, unsigned a)
      : i(first % (rows / a) * a + first / (rows / a)), q_(first % (rows / a)),
        product_(size_t(first / (rows / a)) * cols % rows), rows_(rows), c_(rows / a), q_step_(step % c_),
        i_step_(q_step_ * a + step / c_), product_step_(size_t(step / c_) * cols % rows), product_carry_(cols % rows) {}

  __device__ __forceinline__ void advance() {
    i += i_step_;
    q_ += q_step_;
    product_ = wrapped(product_ + product_step_, rows_);
    if (q_ >= c_) {
      q_ -= c_;
      i -= rows_ - 1;  // c a = rows
      product_ = wrapped(product_ + product_carry_, rows_);
    }
  }
  __device__ __forceinline__ unsigned source(unsigned shift) const {
    return wrapped(wrapped(product_ + shift, rows_) + (rows_ - q_), rows_);
  }

  unsigned i;

 private:
  unsigned q_, product_, rows_, c_, q_step_, i_step_, product_step_, product_carry_;
};

// A stripe of W columns between memory and a stage, with all threads of the block. W divides the block.
template <unsigned W, class T>
struct Stripe {
  T *x, *stage;
  unsigned col0, rows, cols;

  // Moves it as it lies, V elements at once, to the stage or from there.
  template <unsigned V, bool STORE>
  __device__ __forceinline__ void copy() const {
    const unsigned lane = threadIdx.x % (W / V) * V, step = blockDim.x / (W / V);
    if (col0 + lane >= cols) return;  // V divides cols
    for (unsigned i = threadIdx.x / (W / V); i < rows; i += step) {
      T *at = x + offset<Op::N>(i, col0 + lane, cols), *kept = stage + i * W + lane;
      if (STORE) *reinterpret_cast<Pack<T, V> *>(at) = *reinterpret_cast<Pack<T, V> *>(kept);
      else ptx::cp_async_ca<V * sizeof(T)>(ptx::smem_address(kept), at);
    }
  }
  template <bool STORE>
  __device__ __forceinline__ void copy() const {
    constexpr unsigned V = 16 / sizeof(T);
    if (cols % V == 0) copy<V, STORE>();
    else copy<1, STORE>();
  }

  // Stores the stripe, permuted as the step does it, or, if not STORE, loads it so that the step is undone.
  template <Step STEP, bool STORE>
  __device__ __forceinline__ void permute(const ColumnWalk<STEP> &start, unsigned b) const {
    const unsigned lane = threadIdx.x % W, col = col0 + lane, step = blockDim.x / W;
    if (col >= cols) return;
    const unsigned shift = STEP == Step::ROTATE ? col / b : col % rows;
    ColumnWalk<STEP> at = start;
    for (unsigned nth = threadIdx.x / W; nth < rows; nth += step, at.advance()) {
      T *to = x + offset<Op::N>(at.i, col, cols), *kept = stage + at.source(shift) * W + lane;
      if (STORE) *to = *kept;
      else ptx::cp_async_ca<sizeof(T)>(ptx::smem_address(kept), to);
    }
  }
};

template <unsigned W, Step STEP, bool BACK, unsigned STAGES, class T>
__device__ __forceinline__ void permute_columns_by_ring(T *x, T *ring, unsigned rows, unsigned cols, unsigned a,
                                                        unsigned b) {
  const unsigned stripes = (cols - 1) / W + 1;
  const ColumnWalk<STEP> start(threadIdx.x / W, blockDim.x / W, rows, cols, a);
  const auto numbered = [&](unsigned nth, unsigned slot) {
    return Stripe<W, T>{x, ring + slot * rows * W, nth * W, rows, cols};
  };
  const auto start_load = [&](unsigned nth, unsigned slot) {
    if (BACK) numbered(nth, slot).template permute<STEP, false>(start, b);
    else numbered(nth, slot).template copy<false>();
    ptx::cp_async_commit();  // of nothing past the last stripe, so that the groups count the stripes
  };

  for (unsigned slot = 0; slot < STAGES - 1; ++slot) start_load(blockIdx.x + slot * gridDim.x, slot);
  unsigned slot = 0;
  for (unsigned nth = blockIdx.x; nth < stripes; nth += gridDim.x) {
    ptx::cp_async_wait<STAGES - 2>();
    __syncthreads();  // the stripe is complete in its slot, and the slot of the one before is free
    start_load(nth + (STAGES - 1) * gridDim.x, (slot + STAGES - 1) % STAGES);
    if (BACK) numbered(nth, slot).template copy<true>();
    else numbered(nth, slot).template permute<STEP, true>(start, b);
    slot = (slot + 1) % STAGES;
  }
}

}  // namespace
