// A = A^T in place (any m x n, row-major, without padding) by permuting columns, rows and columns, each as a whole: C2R
// of Catanzaro, Keller, Garland, "A Decomposition for In-place Matrix Transposition", PPoPP 2014.
//
// The buffer is seen as rows x cols, with the longer side along the rows. Where m <= n this is A itself, which C2R
// transposes. Where m > n it is the matrix whose transpose is A, and the same steps lead BACK to it, inverted and in
// reverse order. With c = gcd(rows, cols), a = rows / c, b = cols / c:
//   1. column j: X[i] <- X[(i + j / b) mod rows], so that no two elements of a row go to one column; void if c = 1
//   2. row i: X[((i + j / b) mod rows + j * rows) mod cols] <- X[j]
//   3. column j: X[i] <- X[(i * cols + j - i / a) mod rows]
// Tile: a block owns a row, or a stripe of W columns; it copies that to its stage, and back in the other order. Global
// memory is only accessed in order; the scattered accesses are to the stage. Quotients and remainders are updated
// incrementally.
// Stage: shared memory or, where that is too small, a block's part of a scratch buffer of at most a tenth of A, which
// then bounds the number of blocks, so that each takes many rows or stripes in turn.
// Ring: columns may also be staged in several stripes of shared memory, which transpose/c2r_ring.cuh fills in turn.
// Preconditions: rows <= cols. T is any type of the element's width.
// Limit: each element is read and written three times (twice where c = 1), so at best a third of a copy's rate (a
// half). Stripes narrower than a line of 128 bytes waste part of it; a stage of over half the multiprocessor's shared
// memory leaves one block on it, which then reads and writes alternately.
#include "transpose/c2r_ring.cuh"
#include "transpose/c2r_runs.cuh"

namespace {

template <bool BACK, bool SPREAD, bool LONG, class T>
__device__ __forceinline__ void permute_rows(T *x, T *stage, unsigned rows, unsigned cols, unsigned b) {
  const typename RowWalk<T, LONG>::Type start(threadIdx.x, blockDim.x, b, rows, cols);
  const Rows of{rows, cols, b, cols / b};
  const auto kept = [](unsigned j) { return SPREAD ? spread(j) : j; };
  T *row = x + offset<Op::N>(blockIdx.x, 0, cols);
  for (unsigned i = blockIdx.x; i < rows; i += gridDim.x, row += offset<Op::N>(gridDim.x, 0, cols)) {
    const auto place = [&](unsigned, unsigned j) { return row + j; };
    if (BACK) load_row(stage, row, cols, kept);
    else gather_row(stage, start, i, of, place, kept);
    __syncthreads();  // the row is complete in the stage
    if (BACK) scatter_row(stage, start, i, of, place, kept);
    else store_row(row, stage, cols, kept);
    __syncthreads();  // the stage is free for the next row
  }
}

}  // namespace

template <class T, bool BACK, bool LONG>
__global__ void __launch_bounds__(512, C2R_BLOCKS_PER_SM) c2r_rows(T *x, unsigned rows, unsigned cols, unsigned b) {
  DYN_SHARED(T, stage);
  permute_rows<BACK, true, LONG>(x, stage, rows, cols, b);
}

template <class T, bool BACK, bool LONG>
__global__ void __launch_bounds__(512, C2R_BLOCKS_PER_SM)
    c2r_rows_by_scratch(T *x, T *scratch, unsigned rows, unsigned cols, unsigned b) {
  permute_rows<BACK, false, LONG>(x, scratch + size_t(blockIdx.x) * cols, rows, cols, b);
}

template <class T, unsigned W, Step STEP, bool BACK>
__global__ void __launch_bounds__(512, C2R_COLUMN_BLOCKS_PER_SM<T, BACK>)
    c2r_columns(T *x, unsigned rows, unsigned cols, unsigned a, unsigned b) {
  DYN_SHARED(T, stage);
  permute_columns<W, STEP, BACK>(x, stage, rows, cols, a, b);
}

template <class T, unsigned W, Step STEP, bool BACK>
__global__ void __launch_bounds__(512, C2R_BLOCKS_PER_SM)
    c2r_columns_by_scratch(T *x, T *scratch, unsigned rows, unsigned cols, unsigned a, unsigned b) {
  permute_columns<W, STEP, BACK>(x, scratch + size_t(blockIdx.x) * rows * W, rows, cols, a, b);
}

template <class T, unsigned W, Step STEP, bool BACK, unsigned STAGES>
__global__ void __launch_bounds__(1024)
    c2r_columns_by_ring(T *x, unsigned rows, unsigned cols, unsigned a, unsigned b) {
  DYN_SHARED(T, ring);
  permute_columns_by_ring<W, STEP, BACK, STAGES>(x, ring, rows, cols, a, b);
}
