// B (n x m) = A^T (A is m x n, both row-major, without padding): the TMA loads and stores tiles, many of them in flight
// at once, and threads only transpose what is in shared memory.
//
// Tile: a persistent grid; a block owns every gridDim.x-th tile of SQUARES V x SQUARES V elements, where V elements
// fill 16 bytes: rows of SQUARES vectors. A ring of tiles is loaded ahead, with an mbarrier per slot. A tile is
// transposed in its own slot: each thread moves a square of V x V elements to the mirror image of its place. The tile
// is stored from there, and the slot is filled again once the store has read it. The bytes in flight are those of the
// ring, whatever the number of threads.
// Order: that of transpose/bands.cuh.
// Swizzle: the TMA puts vector v of row r of a box of 128 bytes at place v ^ (r mod 8). A square is V rows high. Eight
// lanes read squares (i ^ d, i), i = 0 to 7, since these fall on eight different places both when they are read and
// when they are written to (i, i ^ d), whatever V is.
// Preconditions: compute capability 9.0; rows of A and of B begin at multiples of 16 bytes. T is any type of the
// element's width; the tensor maps have boxes of SQUARES V rows of 128 bytes, and the 128-byte swizzle.
// Limit: memory bandwidth. The part of a tile past the edge takes space in the ring, but no bandwidth.
#include "ptx_hopper.cuh"
#include "transpose/bands.cuh"
#include "transpose/vectors.cuh"

namespace {

constexpr unsigned BOX = 8;              // vectors in a row of a box
constexpr unsigned SPAN = BOX * 8 * 16;  // bytes after which the swizzle repeats

// Where vector v of row `row` is stored in a tile of WIDTH rows.
template <unsigned WIDTH>
__device__ __forceinline__ unsigned swizzled(unsigned row, unsigned v) {
  return (v / BOX * WIDTH + row) * BOX + (v % BOX ^ row % BOX);
}

// Transposes a tile in place, with all threads of the block.
template <class T, unsigned SQUARES>
__device__ __forceinline__ void turn_tile(uint4 *tile) {
  constexpr unsigned WIDTH = SQUARES * V<T>, BOXES = SQUARES / BOX;
  const unsigned i = threadIdx.x % BOX, d = threadIdx.x / BOX % BOX, box = threadIdx.x / (BOX * BOX);
  const unsigned x = box % BOXES * BOX + i, y = box / BOXES * BOX + (i ^ d);
  Vector<T> square[V<T>];
#pragma unroll
  for (unsigned r = 0; r < V<T>; ++r) square[r].bits = tile[swizzled<WIDTH>(y * V<T> + r, x)];
  __syncthreads();  // the tile is read completely before any of it is overwritten
#pragma unroll
  for (unsigned c = 0; c < V<T>; ++c) tile[swizzled<WIDTH>(x * V<T> + c, y)] = column_of(square, c).bits;
}

}  // namespace

template <class T, unsigned SQUARES, unsigned STAGES, unsigned GROUP>
__global__ void __launch_bounds__(SQUARES *SQUARES, SQUARES < 32 ? 2 : 1)
    transpose_tma(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, unsigned m,
                  unsigned n) {
  constexpr unsigned WIDTH = SQUARES * V<T>, BOXES = SQUARES / BOX, VECTORS = WIDTH * SQUARES;
  constexpr unsigned BOX_BYTES = WIDTH * BOX * 16, BOX_COLS = BOX * V<T>;
  __shared__ unsigned long long arrived[STAGES];
  DYN_SHARED(unsigned char, shared);
  uint4 *ring = reinterpret_cast<uint4 *>(shared + (SPAN - ptx::smem_address(shared) % SPAN) % SPAN);
  const unsigned rows = (m - 1) / WIDTH + 1, cols = (n - 1) / WIDTH + 1, tiles = rows * cols;

  const auto start_load = [&](unsigned tile, unsigned slot) {
    const Origin at = origin<GROUP>(tile, rows, cols);
    const unsigned barrier = ptx::smem_address(&arrived[slot]), to = ptx::smem_address(ring + slot * VECTORS);
    ptx::mbarrier_arrive_expect_tx(barrier, BOXES * BOX_BYTES);
    for (unsigned box = 0; box < BOXES; ++box)
      ptx::tma_load(to + box * BOX_BYTES, &map_a, (at.col * BOXES + box) * BOX_COLS, at.row * WIDTH, 0, barrier);
  };
  const auto start_store = [&](unsigned tile, unsigned slot) {
    const Origin at = origin<GROUP>(tile, rows, cols);
    const unsigned from = ptx::smem_address(ring + slot * VECTORS);
    for (unsigned box = 0; box < BOXES; ++box)
      ptx::tma_store(&map_b, from + box * BOX_BYTES, (at.row * BOXES + box) * BOX_COLS, at.col * WIDTH, 0);
    ptx::tma_store_commit();
  };

  if (threadIdx.x == 0) {
    for (unsigned slot = 0; slot < STAGES; ++slot) ptx::mbarrier_init(ptx::smem_address(&arrived[slot]), 1);
    ptx::fence_mbarrier_init();
    for (unsigned slot = 0, tile = blockIdx.x; slot < STAGES - 1 && tile < tiles; ++slot, tile += gridDim.x)
      start_load(tile, slot);
  }
  __syncthreads();  // the barriers are initialised

  unsigned slot = 0, parity = 0;
  for (unsigned tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    ptx::mbarrier_wait(ptx::smem_address(&arrived[slot]), parity);
    turn_tile<T, SQUARES>(ring + slot * VECTORS);
    ptx::fence_proxy_async();
    __syncthreads();  // the tile is transposed
    if (threadIdx.x == 0) {
      start_store(tile, slot);
      ptx::tma_store_wait_read<1>();  // the previous tile has left its slot, which is the next to be filled
      const unsigned ahead = tile + (STAGES - 1) * gridDim.x;
      if (ahead < tiles) start_load(ahead, (slot + STAGES - 1) % STAGES);
    }
    if (++slot == STAGES) slot = 0, parity ^= 1;
  }
  ptx::tma_store_wait_read<0>();
}
