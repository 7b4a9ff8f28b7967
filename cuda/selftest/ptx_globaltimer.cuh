// The clock that the self-test's kernels spin on: nanoseconds of the device, at a rate that no SM clock changes.
#pragma once

namespace ptx {

// mov from %globaltimer: nanoseconds; how often it is updated is the device's own, from 32 ns to 1 us.
__device__ __forceinline__ unsigned long long globaltimer() {
  unsigned long long time;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time) : : "memory");
  return time;
}

}  // namespace ptx
