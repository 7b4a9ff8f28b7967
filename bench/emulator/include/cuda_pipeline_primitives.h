// The emulator has these functions in cuda_pipeline.h.
#pragma once
#include "cuda_pipeline.h"
