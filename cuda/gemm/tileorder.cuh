// The order in which a persistent grid takes the tiles of C: bands of BAND rows of tiles, each down its columns, so
// that the tiles in flight form a patch that reads few rows of A and few columns of B, and finds them in L2.
#pragma once
#include "common.cuh"

struct TileOrder {
  static constexpr unsigned BAND = 8;
  unsigned rows, cols;  // of tiles, in one product

  struct Tile {
    unsigned row, col, product;
  };

  __device__ __forceinline__ unsigned count(unsigned products) const { return rows * cols * products; }

  __device__ __forceinline__ Tile at(unsigned index) const {
    const unsigned within = index % (rows * cols), band = within / (BAND * cols), left = within % (BAND * cols);
    const unsigned height = min(BAND, rows - band * BAND);  // of the last band
    return {band * BAND + left % height, left / height, index / (rows * cols)};
  }
};
