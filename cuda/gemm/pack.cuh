// N neighbours in memory, moved 16 bytes at once, or all at once where they are fewer.
#pragma once

// Aligned to the largest power of two, 16 at most, that divides the size.
template <class T, int N>
struct alignas((N * sizeof(T) | 16) & -(N * sizeof(T) | 16)) Pack {
  T e[N];
};
