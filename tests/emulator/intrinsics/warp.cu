// Each intrinsic once, one warp, one row of results each.
extern "C" __global__ void shuffles(const int *x, int *out) {
  const unsigned all = 0xffffffffu, lane = threadIdx.x;
  out[0 * 32 + lane] = __shfl_sync(all, x[lane], 5);
  out[1 * 32 + lane] = __shfl_sync(all, x[lane], lane + 3, 8);
  out[2 * 32 + lane] = __shfl_up_sync(all, x[lane], 3);
  out[3 * 32 + lane] = __shfl_down_sync(all, x[lane], 3);
  out[4 * 32 + lane] = __shfl_xor_sync(all, x[lane], 9);
  out[5 * 32 + lane] = __shfl_up_sync(all, x[lane], 2, 8);
  out[6 * 32 + lane] = __shfl_down_sync(all, x[lane], 2, 8);
  out[7 * 32 + lane] = int(__shfl_xor_sync(all, double(x[lane]), 16));
}

extern "C" __global__ void votes(const int *x, unsigned *out) {
  const unsigned all = 0xffffffffu, lane = threadIdx.x, low = 0xffffu;
  out[0 * 32 + lane] = __ballot_sync(all, x[lane] > 0);
  out[1 * 32 + lane] = __any_sync(all, x[lane] > 90);
  out[2 * 32 + lane] = __all_sync(all, x[lane] > -1000);
  out[3 * 32 + lane] = __match_any_sync(all, x[lane] % 4);
  out[4 * 32 + lane] = __reduce_add_sync(all, unsigned(x[lane]));
  out[5 * 32 + lane] = unsigned(__reduce_min_sync(all, x[lane]));
  out[6 * 32 + lane] = unsigned(__reduce_max_sync(all, x[lane]));
  out[7 * 32 + lane] = __reduce_xor_sync(all, unsigned(x[lane]));
  unsigned half = 0;
  if (lane < 16) half = __ballot_sync(low, x[lane] > 0);
  out[8 * 32 + lane] = half;
}

extern "C" __global__ void atomics(int *cells, unsigned *wrapped) {
  const int lane = threadIdx.x;
  atomicAdd(&cells[0], lane);
  atomicSub(&cells[1], lane);
  atomicMin(&cells[2], -lane);
  atomicMax(&cells[3], lane);
  atomicAnd(&cells[4], ~(1 << lane % 8));
  atomicOr(&cells[5], 1 << lane % 8);
  atomicXor(&cells[6], 1 << lane % 5);
  atomicExch(&cells[7], 77);
  for (int old = cells[8 + lane], seen; (seen = atomicCAS(&cells[8 + lane], old, old + 1)) != old; old = seen) {
  }
  atomicInc(&wrapped[0], 9u);
  atomicDec(&wrapped[1], 9u);
}

// The 64 bits of high and low, shifted by at most 32.
extern "C" __global__ void funnel_shifts(const unsigned *low, const unsigned *high, unsigned *out) {
  const unsigned lane = threadIdx.x, by = lane - 1;  // of the first lane: far more than 32
  out[lane] = __funnelshift_lc(low[lane], high[lane], by);
  out[64 + lane] = __funnelshift_rc(low[lane], high[lane], by);
}
