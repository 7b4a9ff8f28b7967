// Blocks add to a total under a spin lock; in a cooperative launch, so that the holder can be waited for.
// bug 1 (race): the lock is not taken
// bug 2 (timeout): the lock is not given back
extern "C" __global__ void total(const float *x, unsigned *lock, float *out) {
  if (threadIdx.x != 0) return;
#if BUG != 1
  while (atomicCAS(lock, 0u, 1u) != 0u) {
  }
  __threadfence();
#endif
#if BUG == 1
  *out += x[blockIdx.x];
#else
  // emulator: allow race: the lock orders the blocks, and the model has no locks
  *out += x[blockIdx.x];
#endif
#if BUG != 1 && BUG != 2
  __threadfence();
  atomicExch(lock, 0u);
#endif
}
