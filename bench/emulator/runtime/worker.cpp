// The program that a .cu becomes: it reads a job from standard input, runs it and writes its findings to standard
// output. It is a separate process, so that a hang or a wild store fails one test and not the whole run.
#include <dlfcn.h>
#include <malloc.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <stdexcept>
#include <tuple>

#include "job.hpp"
#include "layout.hpp"
#include "scheduler.hpp"

namespace emu {

namespace {

FILE *reply;
std::chrono::steady_clock::time_point began;

void write_report(const Report &r) {
  const auto &[block, thread] = r.who;
  std::fprintf(reply, "report\t%s\t%s\t%zx\t%zx\t%s\t%u\t%llu\t%u %u %u %u %u %u\t", r.kind.c_str(), r.message.c_str(),
               size_t(r.pc), size_t(r.other_pc), r.file.c_str(), r.line, (unsigned long long)r.count, block.x, block.y,
               block.z, thread.x, thread.y, thread.z);
  const auto &[other_block, other] = r.other;
  if (r.has_other)
    std::fprintf(reply, "%u %u %u %u %u %u", other_block.x, other_block.y, other_block.z, other.x, other.y, other.z);
  std::fputc('\n', reply);
}

void write_run([[maybe_unused]] const Job &job) {
  for (const Report &report : machine.reports.all()) write_report(report);
  EMU_COUNTING(machine.counter.write(reply);)
#ifndef EMU_COUNT
  for (const Buffer &buffer : job.buffers) {
    if (buffer.role != Role::out && buffer.role != Role::inout) continue;
    std::fprintf(reply, "buffer\t%s\t%zu\n", buffer.name.c_str(), buffer.contents.size());
    for (const size_t at : buffer.places) std::fwrite(buffer.data + at, 1, buffer.piece, reply);
  }
#endif
  for (const auto &[loop, most] : machine.trips) {
    const auto &[file, line, head] = loop;
    std::fprintf(reply, "trips\t%s\t%u\t%s\t%u\n", file, line, head, most);
  }
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - began;
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  std::fprintf(reply, "done\t%llu\t%llu\t%.6f\t%ld\n", (unsigned long long)machine.switches,
               (unsigned long long)machine.checker.accesses(), spent.count(), used.ru_maxrss);
  std::fflush(reply);
}

const Job *current_job;

// Writes the reports before a signal ends the process, since they show where the kernel was.
void on_signal(int number) {
  alarm(2);  // the heap may be corrupt: then there is no report, but the process must end all the same
  const bool late = number == SIGPROF;
  std::string what = late ? "still running after " + std::to_string(current_job->limit_s) + " s" : strsignal(number);
  machine.reports.add(late ? "timeout" : "crash", what + "; the last access was here", machine.checker.last_pc());
  write_run(*current_job);
  _exit(0);
}

void catch_signals(unsigned limit_s) {
  static char stack[64 * 1024];
  const stack_t alternate{.ss_sp = stack, .ss_flags = 0, .ss_size = sizeof stack};
  sigaltstack(&alternate, nullptr);
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_ONSTACK;
  for (int number : {SIGPROF, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) sigaction(number, &action, nullptr);
  // The limit is on processor time, so that a busy machine fails no test; kernels do not sleep.
  const itimerval limit{.it_interval = {}, .it_value = {.tv_sec = time_t(limit_s), .tv_usec = 0}};
  setitimer(ITIMER_PROF, &limit, nullptr);
}

void set_constant(const Constant &constant) {
  void *address = dlsym(RTLD_DEFAULT, constant.symbol.c_str());
  if (!address) throw std::runtime_error("the .cu has no constant " + constant.symbol);
  std::memcpy(address, constant.contents.data(), constant.contents.size());
}

const Entry &find_entry(const std::string &name) {
  for (int i = 0; i < entry_count; ++i)
    if (name == entries[i].name) return entries[i];
  throw std::runtime_error("the .cu was compiled without the entry " + name);
}

int size_of(const Argument &argument) {
  if (argument.map) return int(sizeof *argument.map);
  return argument.buffer >= 0 ? -1 : int(argument.value.size());
}

void check_arguments(const PlannedLaunch &plan, const Entry &entry) {
  int sizes[64];
  const auto count = size_t(entry.sizes(sizes));
  if (count != plan.arguments.size())
    throw std::runtime_error(plan.entry + " takes " + std::to_string(count) + " arguments, but the launch passes " +
                             std::to_string(plan.arguments.size()));
  for (size_t i = 0; i < count; ++i) {
    const int given = size_of(plan.arguments[i]);
    if (given == sizes[i]) continue;
    const auto name = [](int size) { return size < 0 ? std::string("a pointer") : std::to_string(size) + " bytes"; };
    throw std::runtime_error(plan.entry + ": argument " + std::to_string(i) + " is " + name(sizes[i]) +
                             ", but the launch passes " + name(given));
  }
}

void check_limits(const PlannedLaunch &plan) {
  const auto &[grid, block] = std::tie(plan.grid, plan.block);
  const bool grid_fits = grid.x && grid.y && grid.z && grid.x <= 0x7fffffffu && grid.y <= 65535 && grid.z <= 65535;
  const size_t threads = size_t(block.x) * block.y * block.z;
  if (!grid_fits) throw std::runtime_error(plan.entry + ": no device takes this grid; at most 2^31-1 x 65535 x 65535");
  if (!threads || threads > 1024 || block.z > 64)
    throw std::runtime_error(plan.entry + ": no device takes this block; at most 1024 threads, 64 along z");
  if (size_t(grid.x) * grid.y * grid.z * threads >= Agent::flag)
    throw std::runtime_error(plan.entry + ": the emulator numbers at most 2^31-1 threads of a launch");
  if (plan.shared_bytes > 227 * 1024)
    throw std::runtime_error(plan.entry + ": no device has " + std::to_string(plan.shared_bytes) +
                             " bytes of shared memory for a block");
  if (!plan.cluster || plan.cluster > 8 || grid.x % plan.cluster)
    throw std::runtime_error(plan.entry + ": a grid " + std::to_string(grid.x) +
                             " blocks wide cannot run in clusters of " + std::to_string(plan.cluster) +
                             "; a cluster size divides the width and is at most 8");
}

// Checks the requirements of cuTensorMapEncodeTiled and cuTensorMapEncodeIm2col.
void check_map(const std::string &entry, const TensorMap &map) {
  const auto refuse = [&](const std::string &what) { throw std::runtime_error(entry + ": no tensor map has " + what); };
  for (const uint64_t pitch : map.pitch)
    if (pitch % 16) refuse("rows " + std::to_string(pitch) + " bytes apart; expected a multiple of 16");
  if (uintptr_t(map.base) % 16) refuse("a base that is not aligned to 16 bytes");
  const uint32_t most[] = {256, map.is_im2col() ? 1024u : 256u};
  for (unsigned i = 0; i < 2; ++i)
    if (!map.box[i] || map.box[i] > most[i])
      refuse("a box with a side of " + std::to_string(map.box[i]) + "; expected 1 to " + std::to_string(most[i]));
  const uint32_t row = map.box[0] * map.itemsize;
  if (row % 16) refuse("a box with rows of " + std::to_string(row) + " bytes; expected a multiple of 16");
  if (map.swizzle && row > map.swizzle)
    refuse("a box with rows of " + std::to_string(row) + " bytes and a swizzle of " + std::to_string(map.swizzle) +
           " bytes");
  if (!map.is_im2col()) return;
  for (unsigned axis = 0; axis < 2; ++axis) {
    for (const int corner : {map.lower[axis], map.upper[axis]})
      if (corner < -128 || corner > 127) refuse("a corner at " + std::to_string(corner) + "; expected -128 to 127");
    if (!map.stride[axis] || map.stride[axis] > 8)
      refuse("a stride of " + std::to_string(map.stride[axis]) + "; expected 1 to 8");
    if (int64_t(map.size[axis + 1]) - 1 + map.upper[axis] < map.lower[axis])
      refuse("corners with no pixel between them");
  }
}

void *value_of(Job &job, Argument &argument, const std::string &entry) {
  if (argument.buffer < 0) return argument.value.data();
  Buffer &buffer = job.buffers[size_t(argument.buffer)];
  if (!argument.map) return &buffer.data;
  argument.map->base = buffer.data;
  check_map(entry, *argument.map);
  return &*argument.map;
}

void run_launch(Job &job, PlannedLaunch &plan, const Run &run, const Image &image) {
  const Entry &entry = find_entry(plan.entry);
  check_arguments(plan, entry);
  check_limits(plan);
  void *arguments[64];
  for (size_t i = 0; i < plan.arguments.size(); ++i) arguments[i] = value_of(job, plan.arguments[i], plan.entry);
  map_shared(job, image, entry, plan.shared_bytes);
  machine.launch = {&entry, arguments, plan.grid, plan.block, plan.shared_bytes, plan.cooperative, plan.cluster,
                    run.order, run.seed, plan.sample};
  machine.threads_per_block = plan.block.x * plan.block.y * plan.block.z;
  Scheduler(machine.launch).run();
  EMU_COUNTING(machine.counter.end_launch();)
  machine.grid_synchronised = ++machine.time;  // the next launch is ordered after all of this one
}

void run_job(Job &job, const Run &run, const Image &image) {
  began = std::chrono::steady_clock::now();
  machine.reports.clear();
  machine.checker.reset();
  machine.aborted = false;
  machine.switches = 0;
  machine.trips.clear();
  restore_buffers(job);
  map_memory(job, image);
  for (PlannedLaunch &plan : job.launches)
    if (!machine.aborted) run_launch(job, plan, run, image);
#ifndef EMU_COUNT
  if (!machine.aborted && machine.reports.all().empty()) machine.checker.report_unwritten();
#endif
  write_run(job);
}

int serve() {
  // The output of kernels must not go into the reply.
  reply = fdopen(dup(STDOUT_FILENO), "wb");
  dup2(STDERR_FILENO, STDOUT_FILENO);
  try {
    Job job = read_job(std::cin);
    current_job = &job;
    EMU_COUNTING(machine.counter.widths = std::move(job.widths);)
    for (Buffer &buffer : job.buffers) place(buffer);
    for (const Constant &constant : job.constants) set_constant(constant);
    catch_signals(job.limit_s);
    const Image image = find_image();
    for (const Run &run : job.runs) run_job(job, run, image);
  } catch (const std::exception &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
  return 0;
}

}  // namespace

}  // namespace emu

int main() {
  // Shadows are allocated and freed with runs and blocks. Freed memory stays with the process, since mapping new pages
  // each time would take longer than the work on them.
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, -1);
  return emu::serve();
}
