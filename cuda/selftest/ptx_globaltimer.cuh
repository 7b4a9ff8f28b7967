// The clock on which the self-test's kernels spin: nanoseconds of the device, at a rate independent of the SM clock.
#pragma once

namespace ptx {

// mov from %globaltimer, in nanoseconds. Its update interval depends on the device, from 32 ns to 1 us.
__device__ __forceinline__ unsigned long long globaltimer() {
  unsigned long long time;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time) : : "memory");
  return time;
}

}  // namespace ptx
