// Which two tiles across the diagonal of a square matrix a block swaps. No other block touches them, so both can be
// read completely before either is written.
//
// Grid: groups = ceil(n / (GROUP TILE)), each of GROUP x GROUP tiles. (groups | 1) x ceil(groups / 2) are exactly the
// groups on and below the diagonal: the lower part of the triangle as it is, and its tip folded into the corner that
// this leaves free. Each has GROUP^2 neighbouring blocks along x, so that tiles that are close in time are close in
// memory on both sides of the diagonal; with GROUP = 1 they step down the rows on one side.
#pragma once

namespace {

// The lower tile begins at (row, col), the upper one at (col, row); on the diagonal both are the same. Off the diagonal
// the matrix's edge can only cut the side that begins at `row`: unless row is past the edge, a whole tile begins at
// col. Where row < col, in a group on the diagonal, another block has the pair.
struct Pair {
  unsigned row, col;
};

template <unsigned TILE, unsigned GROUP>
__device__ __forceinline__ Pair pair_of_tiles(unsigned n) {
  const unsigned groups = (n - 1) / (GROUP * TILE) + 1, even = 1 - groups % 2;
  const unsigned x = blockIdx.x / (GROUP * GROUP), nth = blockIdx.x % (GROUP * GROUP);
  const bool standing = x >= blockIdx.y + even;
  const unsigned row = standing ? x - even : groups - 1 - x, col = standing ? blockIdx.y : groups - even - blockIdx.y;
  return {TILE * (row * GROUP + nth / GROUP), TILE * (col * GROUP + nth % GROUP)};
}

}  // namespace
