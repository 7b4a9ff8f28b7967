// Step 2 of C2R (transpose/c2r.cu describes the algorithm, its steps and its letters) where runs are long: a warp moves
// parts of runs, within which all lanes share a base address and a quotient, and a thread only advances by 32 columns.
#pragma once
#include "transpose/c2r.cuh"

namespace {

constexpr unsigned PART = 32 * AHEAD;  // elements of a run that a warp moves at once

// The parts that a warp takes, one after another. They begin at sectors of 32 bytes, before the run's first column.
template <class T>
class PartWalk {
 public:
  __device__ PartWalk(unsigned thread, unsigned threads, unsigned b, unsigned rows, unsigned cols)
      : run(thread / 32 / parts(b)), step(size_t(32) * rows % cols), part_(thread / 32 % parts(b)), parts_(parts(b)),
        run_step_(threads / 32 / parts_), part_step_(threads / 32 % parts_), lane_(size_t(thread % 32) * rows % cols),
        product_(size_t(part_) * PART * rows % cols), product_step_(size_t(part_step_) * PART * rows % cols),
        product_back_(cols - unsigned(size_t(parts_) * PART * rows % cols)) {}

  __device__ __forceinline__ void advance(unsigned cols) {
    run += run_step_;
    part_ += part_step_;
    product_ = wrapped(product_ + product_step_, cols);
    if (part_ >= parts_) {
      part_ -= parts_;
      ++run;
      product_ = wrapped(product_ + product_back_, cols);
    }
  }

  // The thread's first column of the part, counted from the run's first column; negative before that.
  __device__ __forceinline__ int first(unsigned b) const { return int(part_ * PART + threadIdx.x % 32 - early(b)); }

  // The column of row i to which step 2 moves the element there; for each further 32 columns, it is `step` further.
  __device__ __forceinline__ unsigned target(unsigned i, const Rows &of) const {
    const unsigned before = __shfl_sync(0xffffffff, lane_, early(of.b));  // early * rows mod cols
    const unsigned product = wrapped(wrapped(lane_ + product_, of.cols) + of.cols - before, of.cols);
    return wrapped(wrapped(i + run, of.rows) + product, of.cols);
  }

  unsigned run, step;

 private:
  static constexpr unsigned SECTOR = 32 / sizeof(T);  // elements

  static __device__ __forceinline__ unsigned parts(unsigned b) { return (b + SECTOR - 2) / PART + 1; }
  __device__ __forceinline__ unsigned early(unsigned b) const { return run * b % SECTOR; }

  unsigned part_, parts_, run_step_, part_step_, lane_, product_, product_step_, product_back_;
};

// Whether element k of a thread lies in the run. Only the first can lie before it.
__device__ __forceinline__ bool in_run(int first, unsigned k, unsigned b) {
  return (k > 0 || first >= 0) && int(b) - first > int(32 * k);
}

template <class T, class Place, class Kept>
__device__ __forceinline__ void gather_row(T *stage, const PartWalk<T> &start, unsigned i, const Rows &of, Place place,
                                           Kept kept) {
  for (PartWalk<T> at = start; at.run < of.c; at.advance(of.cols)) {
    const int first = at.first(of.b);
    const T *from = place(at.run, at.run * of.b + first);
    T batch[AHEAD];
#pragma unroll
    for (unsigned k = 0; k < AHEAD; ++k)
      if (in_run(first, k, of.b)) batch[k] = from[32 * k];
    unsigned target = at.target(i, of);
#pragma unroll
    for (unsigned k = 0; k < AHEAD; ++k) {
      if (in_run(first, k, of.b)) stage[kept(target)] = batch[k];
      target = wrapped(target + at.step, of.cols);
    }
  }
}

template <class T, class Place, class Kept>
__device__ __forceinline__ void scatter_row(const T *stage, const PartWalk<T> &start, unsigned i, const Rows &of,
                                            Place place, Kept kept) {
  for (PartWalk<T> at = start; at.run < of.c; at.advance(of.cols)) {
    const int first = at.first(of.b);
    T *to = place(at.run, at.run * of.b + first);
    unsigned target = at.target(i, of);
#pragma unroll
    for (unsigned k = 0; k < AHEAD; ++k) {
      if (in_run(first, k, of.b)) to[32 * k] = stage[kept(target)];
      target = wrapped(target + at.step, of.cols);
    }
  }
}

// How step 2 goes through a row: along it, or along its runs where these are LONG.
template <class T, bool LONG>
struct RowWalk {
  using Type = QuotientWalk;
};
template <class T>
struct RowWalk<T, true> {
  using Type = PartWalk<T>;
};

}  // namespace
