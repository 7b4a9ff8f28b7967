// B (n x m) = A^T for each matrix of a batch (A is m x n), all row-major and one after another without padding: images
// from NCHW to NHWC, where m counts channels and n pixels, and back.
//
// Tile: a block owns TILE x TILE elements of one matrix; blockIdx.x counts the tiles of all of them, along rows first.
// All loads of a thread are in flight before it stores the first one to shared memory. A matrix whose rows are all
// multiples of 16 bytes is accessed WA (A) or WB (B) elements at once, the other one element at a time: with 7 x 7
// pixels few rows of A are aligned, but B is written in whole vectors of channels.
// Shared memory is accessed element by element; its rows are padded by one bank, or one element of 8 bytes. A warp
// takes ACROSS packs from each of several lines, so that its lanes' elements, along a row or down a column, fall into
// different banks.
// Preconditions: A and B do not overlap and begin on 16 bytes; rows of a tile are multiples of 128 bytes; W > 1 divides
// n of A, m of B. T is any type of the element's width.
// Limit: memory bandwidth; a row that begins inside a sector costs one sector more for each 32 of its elements.
#include "gemm/pack.cuh"
#include "panel_share.cuh"

namespace {

constexpr unsigned WORD = 4;  // bytes of a bank

// Packs of W that lanes take of a line at once: 128 bytes, or of 16-bit elements down a column, two to a word, 64.
template <class T, unsigned TILE, unsigned W, bool DOWN>
constexpr unsigned ACROSS = W == 1 ? (TILE < 32 ? TILE : 32) : DOWN && sizeof(T) < WORD ? 4 : 8;

}  // namespace

template <class T, unsigned TILE, unsigned THREADS, unsigned WA, unsigned WB>
__global__ void __launch_bounds__(THREADS)
    transpose_batched(const T *__restrict__ a, T *__restrict__ b, unsigned m, unsigned n) {
  using In = Share<TILE, TILE, THREADS, WA, ACROSS<T, TILE, WA, false>>;
  using Out = Share<TILE, TILE, THREADS, WB, ACROSS<T, TILE, WB, true>>;
  static_assert(In::EVEN && Out::EVEN, "threads share a tile evenly");
  __shared__ T tile[TILE][TILE + (sizeof(T) < WORD ? WORD / sizeof(T) : 1)];
  const unsigned rows = (m - 1) / TILE + 1, cols = (n - 1) / TILE + 1;
  const unsigned matrix = blockIdx.x / cols / rows, row0 = blockIdx.x / cols % rows * TILE;
  const unsigned col0 = blockIdx.x % cols * TILE;
  a += size_t(matrix) * m * n;
  b += size_t(matrix) * m * n;

  Pack<T, WA> held[In::PACKS];
#pragma unroll
  for (unsigned i = 0; i < In::PACKS; ++i) {
    const unsigned row = row0 + In::row() + In::below(i), col = col0 + In::col() + In::right(i);
    if (row < m && col < n) held[i] = *reinterpret_cast<const Pack<T, WA> *>(a + offset<Op::N>(row, col, n));
  }
#pragma unroll
  for (unsigned i = 0; i < In::PACKS; ++i)
#pragma unroll
    for (unsigned e = 0; e < WA; ++e) tile[In::row() + In::below(i)][In::col() + In::right(i) + e] = held[i].e[e];
  __syncthreads();  // the tile is complete
#pragma unroll
  for (unsigned i = 0; i < Out::PACKS; ++i) {
    const unsigned line = Out::row() + Out::below(i), first = Out::col() + Out::right(i);
    if (col0 + line >= n || row0 + first >= m) continue;
    Pack<T, WB> column;
#pragma unroll
    for (unsigned e = 0; e < WB; ++e) column.e[e] = tile[first + e][line];
    *reinterpret_cast<Pack<T, WB> *>(b + offset<Op::N>(col0 + line, row0 + first, m)) = column;
  }
}
