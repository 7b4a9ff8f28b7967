// B (n x m) = A^T (A is m x n, both row-major, without padding): every access to global and shared memory moves 128
// bits, with four times fewer instructions than tiled.cu for f32.
//
// Tile: V elements fill 16 bytes; a block of 16 x 16 threads owns 16V x 16V elements (64 x 64 of f32, 32 x 32 of f64,
// 128 x 128 of 16 bits). Each thread owns a square of V x V, which it reads as V row vectors, transposes in registers
// and writes to shared memory as V column vectors; the tile's rows, now B's, are stored as they lie, 256 bytes each.
// Swizzle: eight lanes, which a 128-bit access serves at once, write vectors V rows apart, all in the same four banks;
// the vector's place in its row is therefore XORed with the number of its square, and reading undoes that.
// Order: that of transpose/bands.cuh. Blocks that run side by side then share pages of memory on both sides, where rows
// of tiles would write 256 bytes into each row of B.
// Preconditions: A and B do not overlap and begin on 16 bytes. T is any type of the element's width.
// Limit: memory bandwidth. Where a row is not a multiple of 16 bytes (n of A, m of B) its vectors are not aligned, and
// that side moves element by element, as does a vector that the edge cuts.
#include "transpose/bands.cuh"
#include "transpose/vectors.cuh"

template <class T, unsigned GROUP>
__global__ void __launch_bounds__(SIDE *SIDE)
    transpose_vectorised(const T *__restrict__ a, T *__restrict__ b, unsigned m, unsigned n) {
  __shared__ uint4 tile[SIDE * V<T> * SIDE];
  constexpr unsigned WIDTH = SIDE * V<T>;
  const Origin at = origin<GROUP>(blockIdx.x, (m - 1) / WIDTH + 1, (n - 1) / WIDTH + 1);
  const unsigned row0 = at.row * WIDTH, col0 = at.col * WIDTH;
  Vector<T> square[V<T>] = {};
  load_square(square, a, row0 + threadIdx.y * V<T>, col0 + threadIdx.x * V<T>, m, n);
  turn_square(tile, square);
  __syncthreads();  // the tile is complete
  store_tile(b, tile, col0, row0, n, m);
}
