// One bit for each value of a row: whether it is not negative.
// bug 1 (deadlock, warp-mask): the ballot stands in a loop that lanes leave at different times
// bug 2 (race): every lane stores the word
extern "C" __global__ void signs(const float *x, unsigned *bits, int cols) {
  const int row = blockIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
#if BUG == 1
  for (int col = threadIdx.x; col < cols; col += blockDim.x) {
    const bool sign = x[row * cols + col] >= 0.0f;
#else
  for (int first = warp * 32; first < cols; first += warps * 32) {
    const int col = first + lane;
    const bool sign = col < cols && x[row * cols + col] >= 0.0f;
#endif
    const unsigned word = __ballot_sync(0xffffffffu, sign);
    if (BUG == 2 || lane == 0) bits[row * ((cols + 31) / 32) + col / 32] = word;
  }
}
