// Counts what a kernel does, in programs that are compiled with EMU_COUNT (docs/profile.md). Lanes run one after another,
// so each warp remembers who has reached which instruction how often: the k-th time that lanes reach it, counted since
// they last met at a barrier or a collective, is one instruction of the warp.
#pragma once
#ifndef EMU_COUNT
#define EMU_COUNTING(...)
#else
#define EMU_COUNTING(...) __VA_ARGS__
#include <array>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "memory.hpp"

namespace emu {

constexpr unsigned sector = 32;  // bytes

enum class Does : uint8_t { load, store, atomic, copy, matrix, box, multiply_add, collective, barrier, product };

// An instruction of the program: its address, or file and line where the runtime has no address.
struct Instruction {
  uintptr_t pc = 0;
  const char *file = "";
  unsigned line = 0;
  Does does = Does::load;
  Space space = Space::program;
  unsigned bytes = 0;  // of one lane

  auto key() const { return std::tie(pc, file, line, does, space, bytes); }
  bool operator<(const Instruction &other) const { return key() < other.key(); }
};

// cost: sectors of 32 bytes of global memory, or wavefronts of shared memory; least: what the same bytes take at least.
// serial: of atomics, the lanes that change one word, which take turns.
struct Count {
  uint64_t instructions = 0, lanes = 0, requests = 0, cost = 0, least = 0, serial = 0;

  void add(const Count &other, uint64_t times);
};

// The addresses of the lanes that have reached an instruction for the same time.
struct Instance {
  uint32_t present = 0;
  std::array<uintptr_t, 32> address{};  // 0 for none
};

struct Reached {
  std::deque<Instance> instances;  // that some lanes have still to reach
  std::array<uint32_t, 32> times{};
  uint32_t folded = 0;  // instances before these, which all lanes have reached
};

// Neighbouring accesses of one source line by one lane, up to 16 bytes, which may be one instruction of the device.
struct Joined {
  uintptr_t begin = 0, pc = 0, last_pc = 0;
  unsigned bytes = 0, line = 0;
  Space space = Space::program;
};

// What the lanes of one warp have reached since they last met; by the instruction's number.
struct WarpTrace {
  std::vector<Reached> reached;
  std::vector<uint32_t> open;  // instructions that have been reached
  std::array<Joined, 32> loads{}, stores{};
};

// The machine code's widths at an access: a sum of powers of two, in bytes. line: numbers the source lines.
struct Widths {
  unsigned line, bytes;
};

// The sectors of a buffer: the block that touched each last, counted from 1 over all launches; 0 for none.
struct Touched {
  std::vector<uint32_t> read, written;
};

struct Traffic {
  uint64_t block_read = 0, block_written = 0;  // sectors, each once for each block that touches it, weighted
  uint64_t read = 0, written = 0;              // sectors, each once for all blocks that ran
};

// The sectors of a buffer that a block reads or writes, each once, as numbers from the begin of the buffer.
struct Footprint {
  uint32_t launch, block;
  std::string buffer;
  bool is_write;
  std::vector<uint64_t> sectors;
};

class Counter {
 public:
  // Accesses that are cut and joined to the widths of the machine code, by their address in the program.
  std::unordered_map<uintptr_t, Widths> widths;

  // An access of the running thread to memory that is not its own. whole: of a type that is aligned to its size.
  void access(uintptr_t address, size_t bytes, Does does, uintptr_t pc, bool whole = true);
  // A cp.async of the running thread. from: 0 where it reads nothing, so that lanes stay in step all the same.
  void copy(uintptr_t to, uintptr_t from, unsigned bytes, uintptr_t pc);
  // The running thread reaches an instruction without an address.
  void reach(Does does, const char *file, unsigned line);
  // A copy of a box by the TMA: the bytes of each of its rows in global memory.
  void box(bool is_load, const std::vector<std::pair<uintptr_t, size_t>> &rows, unsigned box_bytes, uintptr_t pc);
  // Lanes of a warp have met at a collective.
  void collective(uint32_t warp, unsigned present, const char *file, unsigned line);
  // All live lanes of the warp have met: what only some have reached is complete.
  void meet(uint32_t warp);
  void meet_all();
  void end_block();
  void end_launch();
  void write(FILE *out) const;
  // Where multiply-adds are counted that are the emulator's and not the kernel's.
  uint32_t *nowhere();

 private:
  uint32_t number(const Instruction &instruction);
  void remember(uint32_t number, uintptr_t address, uint32_t thread);
  void join(uintptr_t address, size_t bytes, Does does, Space space, uintptr_t pc, const Widths &asked);
  void release(Joined &joined, Does does, uint32_t thread);
  void fold(uint32_t number, const Instance &instance);
  void touch(const Region &region, uintptr_t address, size_t bytes, bool is_write);
  uint64_t weight() const;
  void leave(const Region &region, bool is_write, uint64_t sector_number);

  std::map<Instruction, uint32_t> numbers_;
  std::unordered_map<uint64_t, uint32_t> fast_;  // by address, kind, space and width
  std::vector<Instruction> instructions_;
  std::vector<Count> counts_;
  std::unordered_map<uintptr_t, Touched> touched_;  // by the begin of the buffer
  Traffic traffic_;
  unsigned since_switch_ = 0;
  uint32_t first_block_ = 1;  // of this launch
  std::vector<uint32_t> nowhere_;
  uint32_t launch_ = 0;
  std::vector<Footprint> footprints_;
};

// wavefronts.cpp: what a request costs, and the least that as many lanes, bytes and distinct addresses can cost.
Count global_request(const Instance &instance, unsigned bytes, Does does);
Count shared_request(const Instance &instance, unsigned bytes, Does does);

}  // namespace emu

// multiply_adds.py adds to the program's assembly: how often the running thread has reached each multiply-add, and where
// these are.
extern "C" {
extern uint32_t *emu_reached;
extern const uintptr_t emu_multiply_adds[];
extern const uint64_t emu_multiply_add_count;
}
#endif
