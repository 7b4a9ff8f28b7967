// A worker's input: buffers, then launches, then the thread orders in which to run them.
#pragma once
#include <istream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "machine.hpp"

namespace emu {

enum class Role : uint8_t { in, out, inout, scratch };

// An operand or a scratch buffer. contents: its bytes before each run, either of the whole buffer or only of the pieces
// of `piece` bytes that begin at `places`. The gaps between pieces take address space, but no memory.
struct Buffer {
  std::string name;
  Role role;
  size_t row, pitch;  // bytes; 0 for scratch
  unsigned granule_shift;
  std::vector<char> contents;
  size_t piece;
  std::vector<size_t> places;
  char *data = nullptr;

  size_t bytes() const { return places.back() + piece; }
};

// A `__constant__` variable and its value.
struct Constant {
  std::string symbol;
  std::vector<char> contents;
};

// An argument is a buffer's index, a value's bytes, or a tensor map over a buffer.
struct Argument {
  int buffer = -1;
  std::vector<char> value;
  std::optional<TensorMap> map = {};
};

struct PlannedLaunch {
  std::string entry;
  dim3 grid, block;
  size_t shared_bytes;
  bool cooperative;
  unsigned cluster;
  std::vector<Argument> arguments;
  std::map<uint32_t, uint32_t> sample;  // as in Launch
};

struct Run {
  Order order;
  uint64_t seed;
};

struct Job {
  unsigned limit_s = 0;
  std::vector<Buffer> buffers;
  std::vector<Constant> constants;
  std::vector<PlannedLaunch> launches;
  std::vector<Run> runs;
  EMU_COUNTING(std::unordered_map<uintptr_t, Widths> widths;)
};

// Reads lines of words, each followed by the raw bytes that it announces, as worker.py writes them. Throws
// std::runtime_error.
Job read_job(std::istream &in);

}  // namespace emu
