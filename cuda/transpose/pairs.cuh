// Which two tiles across the diagonal of a square matrix a block swaps. No other block touches them, so both can be
// read completely before either is written.
//
// Grid: tiles = ceil(n / TILE). (tiles | 1) x ceil(tiles / 2) blocks are exactly the tiles on and below the diagonal:
// the lower part of the triangle as it is, and its tip folded into the corner that this leaves free.
#pragma once

namespace {

// Where the lower tile begins, row >= col; the upper one begins at (col, row), and on the diagonal both are the same.
// Off the diagonal, a whole tile begins at col: the edge can only cut the tile at `row`.
struct Pair {
  unsigned row, col;
};

template <unsigned TILE>
__device__ __forceinline__ Pair pair_of_tiles(unsigned n) {
  const unsigned tiles = (n - 1) / TILE + 1, even = 1 - tiles % 2;
  const bool standing = blockIdx.x >= blockIdx.y + even;
  return {TILE * (standing ? blockIdx.x - even : tiles - 1 - blockIdx.x),
          TILE * (standing ? blockIdx.y : tiles - even - blockIdx.y)};
}

}  // namespace
