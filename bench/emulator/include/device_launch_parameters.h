// Empty: emulator.h is included before every .cu and provides what this header provides on the device.
#pragma once
