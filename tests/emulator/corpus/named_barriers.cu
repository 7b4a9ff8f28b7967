// Two halves of a block reverse 64 numbers each, on their own and several times.
// bug 1 (race): no barrier before the numbers are read
// bug 2 (race): no barrier before they are written again
// bug 3 (deadlock): the barrier waits for threads of the other half, which never come
// bug 4 (barrier-divergence, deadlock): threads disagree on how many they are
// bug 5 (race, uninitialised-read): both halves share one barrier, which lets go of any 64 threads
#include "common.cuh"
#include "ptx_hopper.cuh"

extern "C" __global__ void reverse(const int *x, int *y) {
  __shared__ int smem[128];
  const unsigned t = threadIdx.x, half = t / 64, barrier = BUG == 5 ? 1 : 1 + half;
  const unsigned threads = BUG == 3 ? 128 : BUG == 4 && t % 64 == 63 ? 96 : 64;
  for (int step = 0; step < 3; ++step) {
    smem[t] = x[t] + step;
    if (BUG != 1) ptx::named_barrier_sync(barrier, threads);
    y[step * 128 + t] = smem[half * 64 + 63 - t % 64];
    if (BUG != 2) ptx::named_barrier_sync(barrier, threads);
  }
}
