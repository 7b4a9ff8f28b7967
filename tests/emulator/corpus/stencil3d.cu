// The sum of the six neighbours in a volume, 3-D blocks in a 3-D grid.
// bug 1 (out-of-bounds): z == depth is let through
// bug 2 (wrong): the index takes height for depth
// bug 3 (timeout): a loop that does not end where the volume is thin
// bug 4 (out-of-bounds): the offset is computed in 16 bits
// bug 5 (crash): divides by a size that is zero
extern "C" __global__ void stencil(const float *in, float *out, int depth, int height, int width) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  const int z = blockIdx.z * blockDim.z + threadIdx.z;
  if (x >= width || y >= height || (BUG == 1 ? z > depth : z >= depth)) return;
  const auto at = [&](int dz, int dy, int dx) {
    const int zz = z + dz, yy = y + dy, xx = x + dx;
    if (zz < 0 || zz >= depth || yy < 0 || yy >= height || xx < 0 || xx >= width) return 0.0f;
    const int index = (zz * (BUG == 2 ? depth : height) + yy) * width + xx;
    return in[BUG == 4 ? short(index * 512) : index];
  };
#if BUG == 3
  for (volatile int step = 0; step < 100; step = step + depth / 8) {
  }
#endif
#if BUG == 5
  volatile int plane = width / 1000;
  if (z % plane) return;
#endif
  const float along_z = at(-1, 0, 0) + at(1, 0, 0), along_y = at(0, -1, 0) + at(0, 1, 0);
  out[(z * height + y) * width + x] = along_z + along_y + at(0, 0, -1) + at(0, 0, 1);
}
