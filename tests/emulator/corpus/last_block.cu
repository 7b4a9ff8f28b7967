// The sum of n floats: the last block to finish adds up the sums of all blocks. A fence and an atomic ticket order
// them; the checker's happens-before model does not include such an order, hence the waiver.
// bug 1 (race): the ticket is no atomic
// bug 2 (race): every block takes itself for the last
// bug 3 (race): as it should be, but without the waiver
extern "C" __global__ void sum(const float *x, float *partial, unsigned *ticket, float *out, int n) {
  __shared__ bool last;
  float mine = 0.0f;
  for (int i = blockIdx.x * 32 + threadIdx.x; i < n; i += gridDim.x * 32) mine += x[i];
  for (int by = 16; by; by /= 2) mine += __shfl_xor_sync(0xffffffffu, mine, by);
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = mine;
    __threadfence();
#if BUG == 1
    last = (*ticket)++ == gridDim.x - 1;
#elif BUG == 2
    last = atomicAdd(ticket, 1u) < gridDim.x;
#else
    last = atomicAdd(ticket, 1u) == gridDim.x - 1;
#endif
  }
  __syncthreads();
  if (!last || threadIdx.x != 0) return;
  float total = 0.0f;
#if BUG == 3
  for (unsigned b = 0; b < gridDim.x; ++b) total += partial[b];
#else
  for (unsigned b = 0; b < gridDim.x; ++b)
    total += partial[b];  // emulator: allow race: the ticket is taken after the fence that publishes partial
#endif
  *out = total;
}
