#include "report.hpp"

#include "machine.hpp"

namespace emu {

Report *Reports::add(const char *kind, std::string message, uintptr_t pc, const Site *site) {
  const unsigned line = site ? site->line() : 0;
  for (Report &report : all_)
    if (report.pc == pc && report.line == line && report.kind == kind) return ++report.count, nullptr;
  if (all_.size() >= limit) return nullptr;
  Report &report = all_.emplace_back();
  report.kind = kind;
  report.message = std::move(message);
  report.pc = pc;
  report.file = site ? site->file_name() : "";
  report.line = line;
  report.who = machine.who();
  return &report;
}

}  // namespace emu
