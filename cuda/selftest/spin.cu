// B = A, which takes `duration_ns` by the device's global timer: a kernel of known duration, for `kernelmark selftest`.
//
// Tile: one block copies everything, a thread every 256th element, and each thread waits until the time has passed since
// it began. Preconditions: A and B do not overlap; one block of 256 threads; so few elements that they take no time.
// Limit: the clock. Its step bounds how well a duration is kept.
#include "selftest/ptx_globaltimer.cuh"

extern "C" __global__ void __launch_bounds__(256)
    selftest_spin(const unsigned *__restrict__ a, unsigned *__restrict__ b, int elements, long long duration_ns) {
  const unsigned long long stop = ptx::globaltimer() + duration_ns;
  for (int i = threadIdx.x; i < elements; i += 256) b[i] = a[i];
  while (ptx::globaltimer() < stop) {
  }
}
