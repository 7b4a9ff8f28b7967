// Empty: emulator.h is included before every .cu and provides the contents of this header.
#pragma once
