// The order in which tiles are transposed: bands of GROUP columns of tiles, each from top to bottom, so that tiles that
// are close in time are close in memory on both sides.
#pragma once

namespace {

struct Origin {
  unsigned row, col;
};

// The place of tile number `tile` among rows x cols tiles.
template <unsigned GROUP>
__device__ __forceinline__ Origin origin(unsigned tile, unsigned rows, unsigned cols) {
  const unsigned first = tile / (GROUP * rows) * GROUP, width = min(GROUP, cols - first), nth = tile - first * rows;
  return {nth / width, first + nth % width};
}

}  // namespace
