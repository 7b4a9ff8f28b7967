// wgmma: products of a warpgroup. They run when the first of its threads waits for them, and each thread gets its sums
// at its own wait.
#pragma once
#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "../include/emu/runtime.h"

namespace emu {

constexpr unsigned warpgroup_size = 128;

// A tile of sums, 64 x n, in the threads' own arrays or, while in flight, in `values`: words of FP32 or integers.
struct Sums {
  unsigned n;
  std::array<uint32_t *, warpgroup_size> of_thread;
  std::array<bool, warpgroup_size> in_flight{};
  size_t last_product = 0;  // the number of the last product that adds to these sums
  std::vector<uint32_t> values;

  uint32_t &at(unsigned thread, unsigned i);  // the value of element i of a thread's array
};

// A fragment of A in the threads' registers: four words each.
using Registers = std::array<uint32_t, 4 * warpgroup_size>;

struct Warpgroup {
  // The threads that have arrived at the next product, and what the first of them requested.
  unsigned arrived = 0;
  std::array<uint32_t *, warpgroup_size> d{};
  Registers a{};
  WarpgroupProduct wanted{};

  struct Issued {
    WarpgroupProduct what;
    Sums *sums;
    Registers a;
  };
  std::vector<std::unique_ptr<Sums>> sums;
  std::vector<Issued> queue;  // issued and not yet run
  size_t finished = 0;        // products that have run
  uint32_t agent = 0;

  // setmaxnreg: the registers of each thread (0: as at the launch), and how many threads have asked for another number.
  unsigned registers = 0, asking = 0, asked = 0;
  bool increases = false;

  size_t issued() const { return finished + queue.size(); }
  void run_until(size_t product);
};

// Returns the running thread's warpgroup. Aborts if it is not whole.
Warpgroup &own_warpgroup(Site site);

inline bool is_fp8(OperandType type) { return type == OperandType::e4m3 || type == OperandType::e5m2; }
// The number of an operand's elements in 16 bytes.
inline unsigned per_piece(OperandType type) {
  return type == OperandType::tf32 ? 4 : is_fp8(type) || type == OperandType::s8 ? 16 : 8;
}
// product.cpp: reads the operands as they are in shared memory now, or A in registers, and adds their product.
void multiply(const WarpgroupProduct &product, const Registers &a, Sums &sums);

}  // namespace emu
