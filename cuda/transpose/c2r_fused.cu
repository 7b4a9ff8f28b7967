// A = A^T in place (any m x n, row-major, without padding): C2R (transpose/c2r.cu describes the algorithm, its steps
// and its letters) in two passes, with steps 1 and 2 fused.
//
// Step 1 moves to row i, in its run q, b columns wide (q from 0 to c - 1), the elements of row i + q; row i after step
// 2 thus consists of elements of the rows i to i + c - 1. Rows are made from the first one up, so that the elements for
// a row are still in place. Only the last rows also take elements of the first ones, which are stashed beforehand.
// Tile: a wave is one row per block of the grid. All blocks gather their rows into shared memory, in their final order.
// After a barrier of the grid, which is needed since one block overwrites what another gathers, all of them store. With
// ORDERED, a row is stored as soon as the c - 1 rows before it, the only others that gather from its place, have been
// gathered: some blocks then gather while others store.
// BACK: the reverse. Columns come first, then waves from the last row down: each row is loaded as it lies and, after
// the barrier, scattered to the rows i to i + c - 1. Elements of the first rows, which are loaded last, wait in the
// stash.
// Scratch: a word for each row, the first of which is the barrier's, then, from a multiple of 16 bytes on, the stash of
// c / 2 rows. Row s of the first c - 1 is needed again from column (s + 1) b on, and row c - 2 - s needs exactly as
// much as that leaves free of a row: the two share one.
// Preconditions: rows <= cols; a row fits in shared memory; a cooperative launch, all of whose blocks are resident.
// Limit: each element is read and written twice, so at best half a copy's rate. In a wave that is not ORDERED all blocks
// read, then all write, and each waits for the slowest.
#include "grid.cuh"
#include "transpose/c2r_ring.cuh"
#include "transpose/c2r_runs.cuh"

namespace {

template <class T>
struct Matrix {
  T *x, *stash;
  unsigned rows, cols, b, c;

  // Where element j of stashed row s is, for s < c - 1 and j >= (s + 1) b; for a smaller j, an address to count from.
  __device__ __forceinline__ T *stashed(unsigned s, unsigned j) const {
    const bool second = s >= c / 2;
    return stash + offset<Op::N>(second ? c - 2 - s : s, 0, cols) + int(second ? j - (s + 1) * b : j);
  }

  // Where element j, in run q, of row i + q is; rows past the last one continue in the stash.
  __device__ __forceinline__ T *at(unsigned i, unsigned q, unsigned j) const {
    const unsigned row = i + q;
    return row < rows ? x + offset<Op::N>(row, j, cols) : stashed(row - rows, j);
  }
};

// The rest of `scratch`, after the words of the rows.
template <class T>
__device__ __forceinline__ Matrix<T> matrix(T *x, unsigned *scratch, unsigned rows, unsigned cols, unsigned b) {
  return {x, reinterpret_cast<T *>(scratch + (rows + 3) / 4 * 4), rows, cols, b, cols / b};
}

// Before the launch of the rows, by the whole grid.
__device__ __forceinline__ void clear_words(unsigned *scratch, unsigned rows) {
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < rows; i += gridDim.x * blockDim.x) scratch[i] = 0;
}

}  // namespace

// Copies the first rows to the stash or, BACK, from there.
template <class T, bool BACK>
__global__ void __launch_bounds__(512, C2R_BLOCKS_PER_SM)
    c2r_stash(T *x, unsigned *scratch, unsigned rows, unsigned cols, unsigned b) {
  const Matrix<T> whole = matrix(x, scratch, rows, cols, b);
  const unsigned parts = (cols - 1) / blockDim.x + 1;  // of a row, with an element per thread
  if (!BACK) clear_words(scratch, rows);
  const auto column = [&](unsigned part) { return part % parts * blockDim.x + threadIdx.x; };
  const auto load = [&](unsigned part) {
    const unsigned s = part / parts, j = min(max(column(part), (s + 1) * b), cols - 1);  // a clamped j is not used
    return BACK ? *whole.stashed(s, j) : *whole.at(s, 0, j);
  };
  read_ahead<T>(blockIdx.x, gridDim.x, (whole.c - 1) * parts, load, [&](unsigned part, T element) {
    const unsigned s = part / parts, j = column(part);
    if (j < cols && j >= (s + 1) * b) *(BACK ? whole.at(s, 0, j) : whole.stashed(s, j)) = element;
  });
}

template <class T, bool LONG, bool ORDERED, bool BACK>
__global__ void __launch_bounds__(512, C2R_BLOCKS_PER_SM)
    c2r_fused_rows(T *x, unsigned *scratch, unsigned rows, unsigned cols, unsigned b) {
  DYN_SHARED(T, stage);
  const Matrix<T> whole = matrix(x, scratch, rows, cols, b);
  const Rows of{rows, cols, b, whole.c};
  const typename RowWalk<T, LONG>::Type start(threadIdx.x, blockDim.x, b, rows, cols);
  GridBarrier grid(scratch);
  GridOrder order(scratch);
  for (unsigned done = 0; done < rows; done += gridDim.x) {
    const unsigned nth = done + blockIdx.x, i = BACK ? rows - 1 - nth : nth;
    const bool mine = nth < rows;
    T *row = x + size_t(i) * cols;
    // Element j of run q, which is c - 1 where j is cols - 1. Nearly all rows are made only of rows below them.
    const auto below = [&](unsigned q, unsigned j) { return row + offset<Op::N>(q, j, cols); };
    const auto around = [&](unsigned q, unsigned j) { return whole.at(i, q, j); };
    const bool plain = !LONG && i + whole.c <= rows;  // with long runs, whole.at tests this, once for each part

    if (mine) {
      if (BACK) load_row(stage, row, cols, spread);
      else if (plain) gather_row(stage, start, i, of, below, spread);
      else gather_row(stage, start, i, of, around, spread);
    }
    if (ORDERED) order.sync(nth, whole.c - 1, mine);  // no block still reads what this one overwrites
    else grid.sync();                                 // every row of the wave is complete in the stage
    if (mine) {
      if (!BACK) store_row(row, stage, cols, spread);
      else if (plain) scatter_row(stage, start, i, of, below, spread);
      else scatter_row(stage, start, i, of, around, spread);
    }
    __syncthreads();  // the stage is free for the next wave
  }
}

template <class T, unsigned W, bool BACK>
__global__ void __launch_bounds__(512, C2R_COLUMN_BLOCKS_PER_SM<T, BACK>)
    c2r_fused_columns(T *x, unsigned *scratch, unsigned rows, unsigned cols, unsigned a, unsigned b) {
  DYN_SHARED(T, stage);
  if (BACK) clear_words(scratch, rows);
  permute_columns<W, Step::PERMUTE, BACK>(x, stage, rows, cols, a, b);
}

template <class T, unsigned W, unsigned STAGES, bool BACK>
__global__ void __launch_bounds__(1024)
    c2r_fused_columns_by_ring(T *x, unsigned *scratch, unsigned rows, unsigned cols, unsigned a, unsigned b) {
  DYN_SHARED(T, ring);
  if (BACK) clear_words(scratch, rows);
  permute_columns_by_ring<W, Step::PERMUTE, BACK, STAGES>(x, ring, rows, cols, a, b);
}
