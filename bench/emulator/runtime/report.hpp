// Errors: what went wrong, where, and between which threads.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "../include/emu/runtime.h"

namespace emu {

// "1 byte", "2 bytes".
inline std::string counted(int64_t number, const char *noun) {
  return std::to_string(number) + " " + noun + (number == 1 ? "" : "s");
}

// A thread of the launch, for a report.
struct Who {
  uint3 block{}, thread{};
};

// `pc` locates an access; `file` and `line` locate a call. `other` is the second thread, if any.
struct Report {
  std::string kind, message;
  uintptr_t pc = 0, other_pc = 0;
  std::string file;
  unsigned line = 0;
  Who who, other;
  bool has_other = false;
  uint64_t count = 1;
};

// Reports of one run. The first of a kind at a place is kept; later ones are only counted.
class Reports {
 public:
  static constexpr size_t limit = 64;

  // Returns the report to fill in, or nullptr if it is only counted (or there are too many).
  Report *add(const char *kind, std::string message, uintptr_t pc, const Site *site = nullptr);
  void clear() { all_.clear(); }
  const std::vector<Report> &all() const { return all_; }

 private:
  std::vector<Report> all_;
};

}  // namespace emu
