// setmaxnreg: the registers of a block, which its warpgroups hand to each other.
#include "registers.hpp"

#include <algorithm>

#include "machine.hpp"

namespace emu {

namespace {

constexpr unsigned of_multiprocessor = 65536, most_registers = 256, unit = 8;

// The registers of each thread at the launch, if the block has a multiprocessor to itself.
unsigned at_launch() { return std::min(most_registers, of_multiprocessor / machine.threads_per_block / unit * unit); }

bool fits(const Block &block, const Warpgroup &group) {
  return !group.increases || group.asked <= group.registers ||
         (group.asked - group.registers) * warpgroup_size <= block.free_registers;
}

// Lets a warpgroup continue with the number of registers that it has asked for.
void grant(Block &block, size_t number) {
  Warpgroup &group = *block.warpgroups[number];
  block.free_registers += (group.registers - group.asked) * warpgroup_size;  // which may be negative
  group.registers = group.asked;
  group.asking = 0;
  for (size_t t = 0; t < warpgroup_size; ++t) block.threads[number * warpgroup_size + t].state = State::ready;
}

// An increase waits until another warpgroup has released enough.
void grant_what_fits(Block &block) {
  for (bool again = true; again;) {
    again = false;
    for (size_t i = 0; i < block.warpgroups.size(); ++i) {
      const Warpgroup *group = block.warpgroups[i].get();
      if (!group || group->asking < warpgroup_size || !fits(block, *group)) continue;
      grant(block, i);
      again = true;
    }
  }
}

}  // namespace

std::string registers_missing(const Block &block, size_t thread) {
  const Warpgroup &group = *block.warpgroups[thread / warpgroup_size];
  if (group.asking < warpgroup_size)
    return " (a setmaxnreg that only " + std::to_string(group.asking) + " of the warpgroup's 128 threads have reached)";
  return " (an increase from " + std::to_string(group.registers) + " to " + std::to_string(group.asked) +
         " registers a thread; the block has " + std::to_string(block.free_registers / warpgroup_size) +
         " spare registers for each thread of the warpgroup)";
}

void setmaxnreg(unsigned count, bool increases, Site site) {
  Warpgroup &group = own_warpgroup(site);
  if (!group.registers) group.registers = at_launch();
  if (!group.asking) group.asked = count, group.increases = increases;
  if (group.asked != count || group.increases != increases)
    misuse("setmaxnreg", "the warps of a warpgroup ask for different numbers of registers", site);
  if (increases ? count < group.registers : count > group.registers) {
    const std::string what = increases ? "setmaxnreg.inc from " : "setmaxnreg.dec from ";
    machine.reports.add("setmaxnreg", what + std::to_string(group.registers) + " to " + std::to_string(count) +
                        " registers a thread", 0, &site);
    machine.abort_run();
  }
  Thread &me = machine.thread();
  me.state = State::at_registers;
  me.site = site;
  if (++group.asking == warpgroup_size) grant_what_fits(*machine.block);
  if (me.state == State::at_registers) machine.wait();
}

}  // namespace emu
