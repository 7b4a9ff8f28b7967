// Lanes exchange through shared memory in ever wider groups, each ordered by a __syncwarp of its own lanes only.
// bug 1 (race): the group's mask leaves out the other half
// bug 2 (race): one step has no __syncwarp between writing and reading
extern "C" __global__ void pyramid(const float *x, float *out) {
  __shared__ float values[32];
  const unsigned lane = threadIdx.x;
  float sum = x[lane];
  for (unsigned width = 1; width < 32; width *= 2) {
    const unsigned group = BUG == 1 ? width : 2 * width;
    const unsigned first = lane / group * group;
    const unsigned mask = (group == 32 ? 0xffffffffu : (1u << group) - 1) << first;
    values[lane] = sum;
    if (BUG != 2 || width != 4) __syncwarp(mask);
    sum += values[lane ^ width];
    __syncwarp(mask);
  }
  out[lane] = sum;
}
