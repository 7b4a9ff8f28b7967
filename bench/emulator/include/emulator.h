// Included before every .cu that the emulator compiles: CUDA C++ as g++ sees it.
#pragma once
#define CUDA_EMU 1
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "emu/keywords.h"
// The order matters: what follows uses the keywords.
#include "emu/atomics.h"
#include "emu/math.h"
#include "emu/sync.h"
