// Counts what a kernel does, in programs that are compiled with EMU_COUNT (docs/profile.md). Lanes run one after another,
// so each warp remembers how often each lane has reached each instruction since the lanes last met at a barrier or a
// collective. The k-th times that its lanes reach an instruction count together as one instruction of the warp.
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

// An instruction of the program: its address, or file and line if the runtime has no address.
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

// cost: sectors of 32 bytes of global memory, or wavefronts of shared memory; least: the minimum for the same bytes.
// serial: for atomics, the most lanes that change one word, since they take turns.
struct Count {
  uint64_t instructions = 0, lanes = 0, requests = 0, cost = 0, least = 0, serial = 0;

  void add(const Count &other, uint64_t times);
};

// One execution of an instruction by a warp: the lanes that have reached it for the k-th time, and their addresses.
struct Instance {
  uint32_t present = 0;
  std::array<uintptr_t, 32> address{};  // 0 for none
};

struct Reached {
  std::deque<Instance> instances;  // which some lanes have not reached yet
  std::array<uint32_t, 32> times{};
  uint32_t folded = 0;  // the number of earlier instances, which all lanes have reached
};

// Neighbouring accesses of one source line by one lane, up to 16 bytes, which may be one instruction of the device.
struct Joined {
  uintptr_t begin = 0, pc = 0, last_pc = 0;
  unsigned bytes = 0, line = 0;
  Space space = Space::program;
};

// The instructions that the lanes of one warp have reached since they last met, by number.
struct WarpTrace {
  std::vector<Reached> reached;
  std::vector<uint32_t> open;  // instructions that have been reached
  std::array<Joined, 32> loads{}, stores{};
};

// The machine code's widths at an access: a sum of powers of two, in bytes. line: a number for the source line.
struct Widths {
  unsigned line, bytes;
};

// For each sector of a buffer, the block that touched it last, counted from 1 over all launches; 0 for none.
struct Touched {
  std::vector<uint32_t> read, written;
};

struct Traffic {
  uint64_t block_read = 0, block_written = 0;  // sectors, each once for each block that touches it, weighted
  uint64_t read = 0, written = 0;              // sectors, each once for all blocks that ran
};

// The sectors of a buffer that a block reads or writes, each once, as numbers from the start of the buffer.
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

  // Counts an access of the running thread, except to its stack. whole: the type is aligned to its size.
  void access(uintptr_t address, size_t bytes, Does does, uintptr_t pc, bool whole = true);
  // Counts a cp.async of the running thread, even if it reads nothing (from: 0), so that lanes stay in step.
  void copy(uintptr_t to, uintptr_t from, unsigned bytes, uintptr_t pc);
  // Counts an instruction without an address that the running thread reaches.
  void reach(Does does, const char *file, unsigned line);
  // Counts a copy of a box by the TMA. rows: the address and the bytes of each row in global memory.
  void box(bool is_load, const std::vector<std::pair<uintptr_t, size_t>> &rows, unsigned box_bytes, uintptr_t pc);
  // Counts a collective at which lanes of a warp have met.
  void collective(uint32_t warp, unsigned present, const char *file, unsigned line);
  // Called when all live lanes of the warp have met: instructions that only some have reached are complete.
  void meet(uint32_t warp);
  void meet_all();
  void end_block();
  void end_launch();
  void write(FILE *out) const;
  // Returns counters for the emulator's own multiply-adds, which are ignored.
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
  std::unordered_map<uintptr_t, Touched> touched_;  // by the start of the buffer
  Traffic traffic_;
  unsigned since_switch_ = 0;
  uint32_t first_block_ = 1;  // of this launch
  std::vector<uint32_t> nowhere_;
  uint32_t launch_ = 0;
  std::vector<Footprint> footprints_;
};

// wavefronts.cpp: the cost of a request, and the least cost for as many lanes, bytes and distinct addresses.
Count global_request(const Instance &instance, unsigned bytes, Does does);
Count shared_request(const Instance &instance, unsigned bytes, Does does);

}  // namespace emu

// How often the running thread has reached each multiply-add, and the addresses and number of the multiply-adds.
// Assembly from counters.py increments the former and contains the latter.
extern "C" {
extern uint32_t *emu_reached;
extern const uintptr_t emu_multiply_adds[];
extern const uint64_t emu_multiply_add_count;
}
#endif
