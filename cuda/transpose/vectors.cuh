// Transposition by vectors of 16 bytes: squares of V x V elements, which a thread transposes in its registers, between
// global memory and a tile of shared memory. transpose/vectorised.cu describes the method.
#pragma once
#include "common.cuh"

namespace {

constexpr unsigned SIDE = 16;  // vectors along the side of a tile

template <class T>
constexpr unsigned V = sizeof(uint4) / sizeof(T);

// 16 bytes, as a vector and as elements.
template <class T>
union Vector {
  uint4 bits;
  T e[V<T>];
};

// Loads up to V elements from `at`, of which `left` exist. `aligned`: every vector of the matrix is, and none is cut.
template <class T>
__device__ __forceinline__ void load_vector(Vector<T> &to, const T *at, unsigned left, bool aligned) {
  if (aligned) {
    to.bits = *reinterpret_cast<const uint4 *>(at);
    return;
  }
  unsigned e = 0;
#pragma unroll
  for (T &element : to.e) {
    if (e < left) element = at[e];
    ++e;
  }
}

template <class T>
__device__ __forceinline__ void store_vector(T *at, const Vector<T> &from, unsigned left, bool aligned) {
  if (aligned) {
    *reinterpret_cast<uint4 *>(at) = from.bits;
    return;
  }
#pragma unroll
  for (unsigned e = 0; e < V<T>; ++e)
    if (e < left) at[e] = from.e[e];
}

// Column c of a square.
template <class T>
__device__ __forceinline__ Vector<T> column_of(const Vector<T> (&square)[V<T>], unsigned c) {
  Vector<T> column;
#pragma unroll
  for (unsigned r = 0; r < V<T>; ++r) column.e[r] = square[r].e[c];
  return column;
}

// Loads the square at (row, col) of a rows x cols matrix; elements outside are not read, and theirs in `square` stay.
template <class T>
__device__ __forceinline__ void load_square(Vector<T> (&square)[V<T>], const T *a, unsigned row, unsigned col,
                                            unsigned rows, unsigned cols) {
#pragma unroll
  for (Vector<T> &line : square) {
    if (row < rows && col < cols) load_vector(line, a + offset<Op::N>(row, col, cols), cols - col, cols % V<T> == 0);
    ++row;
  }
}

// Where vector `v` of row `row` of the transposed tile is stored.
template <class T>
__device__ __forceinline__ unsigned kept_at(unsigned row, unsigned v) {
  return row * SIDE + (v ^ (row / V<T> % 8));
}

// Stores the thread's square, transposed, to the tile.
template <class T>
__device__ __forceinline__ void turn_square(uint4 *tile, const Vector<T> (&square)[V<T>]) {
#pragma unroll
  for (unsigned c = 0; c < V<T>; ++c)
    tile[kept_at<T>(threadIdx.x * V<T> + c, threadIdx.y)] = column_of(square, c).bits;
}

// Stores the whole transposed tile to (row0, col0) of a rows x cols matrix, SIDE neighbouring threads to a row.
template <class T>
__device__ __forceinline__ void store_tile(T *b, const uint4 *tile, unsigned row0, unsigned col0, unsigned rows,
                                           unsigned cols) {
  const unsigned x = threadIdx.x, col = col0 + x * V<T>;
#pragma unroll
  for (unsigned r = threadIdx.y; r < SIDE * V<T>; r += SIDE) {
    if (row0 + r < rows && col < cols) {
      const Vector<T> from{tile[kept_at<T>(r, x)]};
      store_vector(b + offset<Op::N>(row0 + r, col, cols), from, cols - col, cols % V<T> == 0);
    }
  }
}

}  // namespace
