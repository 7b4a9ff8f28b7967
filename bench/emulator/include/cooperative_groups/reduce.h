// The emulator has these functions in cooperative_groups.h.
#pragma once
#include "../cooperative_groups.h"
