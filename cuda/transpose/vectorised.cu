// B (n x m) = A^T (A is m x n, both row-major, without padding): 128 bits in every access to global and to shared
// memory, four times fewer instructions than tiled.cu has for f32.
//
// Tile: V elements fill 16 bytes; a block of 16 x 16 threads owns 16V x 16V elements (64 x 64 of f32, 32 x 32 of f64,
// 128 x 128 of 16 bits), each thread a square of V x V, which it reads as V row vectors, turns over in registers and
// puts into shared memory as V column vectors; the tile's rows, now B's, leave as they lie, 256 bytes each.
// Swizzle: eight lanes, which a 128-bit access serves at once, put vectors V rows apart, all in the same four banks;
// the vector's place in its row is therefore XORed with the number of its square, and reading undoes that.
// Preconditions: A and B do not overlap and begin on 16 bytes. T is any type of the element's width.
// Limit: memory bandwidth. Where a row is no multiple of 16 bytes (n of A, m of B) its vectors lie across their
// alignment, and that side moves element by element, as it does in the vector that the edge cuts.
#include "common.cuh"

namespace {

constexpr unsigned SIDE = 16;  // vectors along the side of a tile

template <class T>
constexpr unsigned V = sizeof(uint4) / sizeof(T);

// 16 bytes, as they move and as elements.
template <class T>
union Vector {
  uint4 bits;
  T e[V<T>];
};

// Up to V elements from `at`, of which `left` are there. `aligned`: so is every vector of the matrix, and none is cut.
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

// Where vector `v` of the transposed tile's row `row` is kept.
template <class T>
__device__ __forceinline__ unsigned kept_at(unsigned row, unsigned v) {
  return row * SIDE + (v ^ (row / V<T> % 8));
}

}  // namespace

template <class T>
__global__ void __launch_bounds__(SIDE *SIDE)
    transpose_vectorised(const T *__restrict__ a, T *__restrict__ b, unsigned m, unsigned n) {
  __shared__ uint4 tile[SIDE * V<T> * SIDE];
  const unsigned x = threadIdx.x, y = threadIdx.y;
  const unsigned row0 = blockIdx.y * SIDE * V<T>, col0 = blockIdx.x * SIDE * V<T>;
  const unsigned row = row0 + y * V<T>, col = col0 + x * V<T>;
  Vector<T> square[V<T>] = {};
  unsigned in = row;
#pragma unroll
  for (Vector<T> &line : square) {
    if (in < m && col < n) load_vector(line, a + offset<Op::N>(in, col, n), n - col, n % V<T> == 0);
    ++in;
  }
#pragma unroll
  for (unsigned c = 0; c < V<T>; ++c) {
    Vector<T> column;
    unsigned r = 0;
#pragma unroll
    for (T &element : column.e) element = square[r++].e[c];
    tile[kept_at<T>(x * V<T> + c, y)] = column.bits;
  }
  __syncthreads();  // the tile is whole
  const unsigned out = row0 + x * V<T>;
#pragma unroll
  for (unsigned r = y; r < SIDE * V<T>; r += SIDE) {
    if (col0 + r < n && out < m) {
      const Vector<T> from{tile[kept_at<T>(r, x)]};
      store_vector(b + offset<Op::N>(col0 + r, out, m), from, m - out, m % V<T> == 0);
    }
  }
}
