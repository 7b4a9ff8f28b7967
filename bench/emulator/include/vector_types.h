// Empty: emulator.h stands before every .cu and brings what this header brings on the device.
#pragma once
