// Included before every .cu that the emulator compiles: CUDA C++ as g++ sees it.
#pragma once
#define CUDA_EMU 1
#include <assert.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <type_traits>
#include <utility>

#include "emu/keywords.h"
// The order matters: what follows uses the keywords.
#include "emu/atomics.h"
#include "emu/math.h"
#include "emu/sync.h"

// What code asks for to know a compiler of CUDA; the C++ library, which is compiled by now, must not see it.
#define __CUDACC__ 1
#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0
