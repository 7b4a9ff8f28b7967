// B = A in `duration_ns` of the device's global timer: a kernel of known duration, for `kernelmark selftest`.
//
// Tile: one block copies everything, a thread every 256th element, and each thread waits until the time since it began
// has passed. Preconditions: A and B do not overlap; one block of 256 threads; so few elements that they take no time.
// Limit: the clock, whose step bounds the accuracy of a duration.
#include "selftest/ptx_globaltimer.cuh"

extern "C" __global__ void __launch_bounds__(256)
    selftest_spin(const unsigned *__restrict__ a, unsigned *__restrict__ b, int elements, long long duration_ns) {
  const unsigned long long stop = ptx::globaltimer() + duration_ns;
  for (int i = threadIdx.x; i < elements; i += 256) b[i] = a[i];
  while (ptx::globaltimer() < stop) {
  }
}
