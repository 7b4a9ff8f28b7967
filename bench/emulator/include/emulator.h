// Included before every .cu that the emulator compiles, so that g++ accepts CUDA C++.
#pragma once
#define CUDA_EMU 1
#include <assert.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <type_traits>
#include <utility>

#include "emu/keywords.h"
// These headers use the keywords, so they come after them.
#include "emu/atomics.h"
#include "emu/math.h"
#include "emu/sync.h"

// Macros by which code detects a CUDA compiler. They come last, since the C++ library must not see them.
#define __CUDACC__ 1
#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0
