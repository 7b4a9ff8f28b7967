// The parts of C2R (transpose/c2r.cu describes the algorithm, its steps and its letters): index arithmetic without
// division, staging with several loads in flight, and the steps that permute columns.
#pragma once
#include "common.cuh"

enum class Step { ROTATE, PERMUTE };

namespace {

constexpr unsigned AHEAD = 8;  // loads of a thread in flight at once

// The least number of blocks per multiprocessor, if its shared memory can hold them. Without it the compiler saves
// registers for more blocks, and waits for some of the loads before it starts the others.
constexpr unsigned C2R_BLOCKS_PER_SM = 2;
template <class T, bool BACK>
constexpr unsigned C2R_COLUMN_BLOCKS_PER_SM = BACK || sizeof(T) == 8 ? 2 : 3;  // of stripes in shared memory

// sum mod modulus, for sums of two remainders: where the sum is below the modulus, sum - modulus wraps around to a
// large number.
__device__ __forceinline__ unsigned wrapped(unsigned sum, unsigned modulus) { return min(sum, sum - modulus); }

// Updates x / divisor and (x * factor) mod modulus incrementally, from `x` on in steps of `step`.
class QuotientWalk {
 public:
  __device__ QuotientWalk(unsigned x, unsigned step, unsigned divisor, unsigned factor, unsigned modulus)
      : quotient(x / divisor), product(size_t(x) * factor % modulus), remainder(x % divisor), divisor_(divisor),
        modulus_(modulus), quotient_step(step / divisor), remainder_step(step % divisor),
        product_step(size_t(step) * factor % modulus) {}

  __device__ __forceinline__ void advance() {
    quotient += quotient_step;
    remainder += remainder_step;
    if (remainder >= divisor_) {
      remainder -= divisor_;
      ++quotient;
    }
    product = wrapped(product + product_step, modulus_);
  }

  unsigned quotient, product, remainder;

 private:
  unsigned divisor_, modulus_, quotient_step, remainder_step, product_step;
};

// Passes load(i) to keep(i, .) for i = first, first + step, ... below `length`. Several loads are in flight at once:
// the last ones repeat the end instead of branching, which would make them wait for each other.
template <class T, class Load, class Keep>
__device__ __forceinline__ void read_ahead(unsigned first, unsigned step, unsigned length, Load load, Keep keep) {
  for (unsigned i = first, next = first; i < length;) {
    T batch[AHEAD];
#pragma unroll
    for (T &element : batch) {
      element = load(min(next, length - 1));
      next += step;
    }
#pragma unroll
    for (const T &element : batch) {
      if (i < length) keep(i, element);
      i += step;
    }
  }
}

// The rows of the view, c runs of b columns each.
struct Rows {
  unsigned rows, cols, b, c;
};

// Where a staged row holds element j. Step 2 accesses it in strides of `rows`, which is often a power of two: the
// higher bits are XORed into the bank, within each 32 elements, so that such strides fall into different banks.
__device__ __forceinline__ unsigned spread(unsigned j) { return j ^ ((j >> 5 ^ j >> 10 ^ j >> 15) & 31); }

// Step 2: the column of row i to which the element at `at` goes.
__device__ __forceinline__ unsigned row_target(unsigned i, const QuotientWalk &at, unsigned rows, unsigned cols) {
  return wrapped(wrapped(i + at.quotient, rows) + at.product, cols);
}

// Moves step 2's elements of row i from memory to the stage, and scatter_row the reverse, which undoes it. place(q, j):
// where element j, in run q, is in memory; kept(j): where the stage holds element j of the row that step 2 makes.
template <class T, class Place, class Kept>
__device__ __forceinline__ void gather_row(T *stage, const QuotientWalk &start, unsigned i, const Rows &of, Place place,
                                           Kept kept) {
  QuotientWalk at = start, ahead = start;
  const auto load = [&](unsigned j) {
    const T element = *place(min(ahead.quotient, of.c - 1), j);
    ahead.advance();
    return element;
  };
  read_ahead<T>(threadIdx.x, blockDim.x, of.cols, load, [&](unsigned j, T element) {
    stage[kept(row_target(i, at, of.rows, of.cols))] = element;
    at.advance();
  });
}

template <class T, class Place, class Kept>
__device__ __forceinline__ void scatter_row(const T *stage, const QuotientWalk &start, unsigned i, const Rows &of,
                                            Place place, Kept kept) {
  QuotientWalk at = start;
  for (unsigned j = threadIdx.x; j < of.cols; j += blockDim.x, at.advance())
    *place(at.quotient, j) = stage[kept(row_target(i, at, of.rows, of.cols))];
}

// Moves a row as it lies.
template <class T, class Kept>
__device__ __forceinline__ void load_row(T *stage, const T *row, unsigned cols, Kept kept) {
  const auto load = [&](unsigned j) { return row[j]; };
  read_ahead<T>(threadIdx.x, blockDim.x, cols, load, [&](unsigned j, T element) { stage[kept(j)] = element; });
}

template <class T, class Kept>
__device__ __forceinline__ void store_row(T *row, const T *stage, unsigned cols, Kept kept) {
  for (unsigned j = threadIdx.x; j < cols; j += blockDim.x) row[j] = stage[kept(j)];
}

// Step 1 or 3: the row of a column that goes to row i. shift: column / b, or column mod rows; at: the walk at i.
template <Step STEP>
__device__ __forceinline__ unsigned source(unsigned i, unsigned shift, const QuotientWalk &at, unsigned rows) {
  if (STEP == Step::ROTATE) return wrapped(i + shift, rows);
  return wrapped(wrapped(at.product + shift, rows) + (rows - at.quotient), rows);
}

template <unsigned W, Step STEP, bool BACK, class T>
__device__ __forceinline__ void permute_columns(T *x, T *stage, unsigned rows, unsigned cols, unsigned a, unsigned b) {
  const unsigned lane = threadIdx.x % W, first = threadIdx.x / W, step = blockDim.x / W;  // W divides the block
  const QuotientWalk start(first, step, a, cols, rows);
  for (unsigned col0 = blockIdx.x * W; col0 < cols; col0 += gridDim.x * W) {
    const unsigned col = col0 + lane, height = col < cols ? rows : 0;
    const unsigned shift = STEP == Step::ROTATE ? col / b : col % rows;
    QuotientWalk at = start;
    const auto load = [&](unsigned i) { return x[offset<Op::N>(i, col, cols)]; };
    read_ahead<T>(first, step, height, load, [&](unsigned i, T element) {
      stage[(BACK ? source<STEP>(i, shift, at, rows) : i) * W + lane] = element;
      at.advance();
    });
    __syncthreads();  // the stripe is complete in the stage
    at = start;
    for (unsigned i = first; i < height; i += step, at.advance()) {
      const unsigned from = BACK ? i : source<STEP>(i, shift, at, rows);
      x[offset<Op::N>(i, col, cols)] = stage[from * W + lane];
    }
    __syncthreads();  // the stage is free for the next stripe
  }
}

}  // namespace
