// y = 2 x by boxes of 64 floats: a thread of warp 0 feeds a ring of slots by TMA, two warps drain it.
// bug 1 (race, copy-in-flight, mbarrier): a slot is refilled without waiting until it is empty
// bug 2 (race, copy-in-flight): waits for the parity of the phase before
// bug 3 (race, copy-in-flight, uninitialised-read): never waits until a slot is full
// bug 4 (deadlock): announces more bytes than land
// bug 5 (race, copy-in-flight, deadlock, mbarrier): announces fewer bytes than land
// bug 6 (deadlock): the consumers do not arrive
// bug 7 (out-of-bounds): one slot too few
// bug 8 (race): one of the two warps does not arrive, and the barrier does not count it
// bug 9 (async-proxy): the initialised barriers are not fenced
// bug 10 (mbarrier, race): threads may come to the barriers before they are initialised
// bug 11 (mbarrier): one arrival more than the barrier counts
// bug 12 (race, deadlock): warp 1 waits for each slot, and warp 2 relies on it
// bug 13 (misaligned): slots are 128 bytes and 16
// bug 14 (race, copy-in-flight, mbarrier): the parity does not turn with the ring
// bug 15 (race): the consumers arrive before they have read the slot
#include "common.cuh"
#include "ptx_hopper.cuh"

constexpr unsigned SLOTS = 3, WIDTH = 64, STRIDE = BUG == 13 ? WIDTH + 4 : WIDTH;

extern "C" __global__ void ring(const __grid_constant__ TensorMap x, float *y, int rows) {
  __shared__ __align__(128) float smem[BUG == 7 ? SLOTS - 1 : SLOTS][STRIDE];
  __shared__ unsigned long long full[SLOTS], empty[SLOTS];
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    for (unsigned s = 0; s < SLOTS; ++s) {
      ptx::mbarrier_init(ptx::smem_address(&full[s]), 1);
      ptx::mbarrier_init(ptx::smem_address(&empty[s]), BUG == 8 ? 1 : 2);
    }
    if (BUG != 9) ptx::fence_mbarrier_init();
  }
  if (BUG != 10) __syncthreads();
  for (unsigned row = 0; row < unsigned(rows); ++row) {
    const unsigned slot = row % SLOTS, round = BUG == 14 ? 0 : row / SLOTS % 2;
    const unsigned is_full = ptx::smem_address(&full[slot]), is_empty = ptx::smem_address(&empty[slot]);
    if (warp == 0) {
      if (lane != 0) continue;
      if (BUG != 1) ptx::mbarrier_wait(is_empty, round ^ 1);
      ptx::mbarrier_arrive_expect_tx(is_full, BUG == 4 ? 2 * sizeof *smem : BUG == 5 ? 128 : WIDTH * 4);
      ptx::tma_load(ptx::smem_address(smem[slot]), &x, 0, int(row), 0, is_full);
      if (BUG == 11) ptx::mbarrier_arrive(is_full);
      continue;
    }
    if (BUG != 3 && (BUG != 12 || warp == 1)) ptx::mbarrier_wait(is_full, BUG == 2 ? round ^ 1 : round);
    if (BUG == 15 && lane == 0) ptx::mbarrier_arrive(is_empty);
    const unsigned col = (warp - 1) * 32 + lane;
    y[row * WIDTH + col] = 2.0f * smem[slot][col];
    __syncwarp();
    if (lane == 0 && BUG != 6 && BUG != 15 && (BUG != 8 || warp == 1)) ptx::mbarrier_arrive(is_empty);
  }
}
