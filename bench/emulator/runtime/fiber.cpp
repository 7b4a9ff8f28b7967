#include "fiber.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <stdexcept>
#include <string>

namespace emu {

// The bytes of a stack that are poisoned: a kernel's frames, whose arrays fit a thread's 255 registers on the device.
constexpr size_t poisoned = 4096;

#ifdef EMU_UCONTEXT

void prepare(Context &context, char *low, size_t size, void (*entry)(), unsigned char poison) {
  std::memset(low + size - poisoned, poison, poisoned);
  getcontext(&context.saved);
  context.saved.uc_stack.ss_sp = low;
  context.saved.uc_stack.ss_size = size;
  context.saved.uc_link = nullptr;
  makecontext(&context.saved, entry, 0);
}

void switch_context(Context &from, Context &to) { swapcontext(&from.saved, &to.saved); }

#else

// Pushes the registers that a function must preserve, switches stacks, pops those of the new stack, and returns there.
asm(R"(
.text
.globl emu_switch_stack
.type emu_switch_stack,@function
emu_switch_stack:
  pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
  ret
.size emu_switch_stack,.-emu_switch_stack
)");
extern "C" void emu_switch_stack(void **save, void *next);

void prepare(Context &context, char *low, size_t size, void (*entry)(), unsigned char poison) {
  // Stagger the tops: stacks a power of two apart would all compete for the same lines of the cache.
  const size_t stagger = reinterpret_cast<size_t>(low) / size % 64 * 64;
  void **top = reinterpret_cast<void **>(low + size - 64 - stagger);
  void **frame = top - 8;  // six registers, the return address, and a slot that keeps the stack aligned
  char *end = reinterpret_cast<char *>(top);
  std::memset(end - poisoned, poison, poisoned);
  frame[6] = reinterpret_cast<void *>(entry);
  context.stack_pointer = frame;
}

void switch_context(Context &from, Context &to) { emu_switch_stack(&from.stack_pointer, to.stack_pointer); }

#endif

Stacks::~Stacks() {
  if (base_) munmap(base_, size_t(bytes_));
}

void Stacks::reserve(size_t count) {
  if (ptrdiff_t(count * size) <= bytes_) return;
  if (base_) munmap(base_, size_t(bytes_));
  bytes_ = ptrdiff_t(count * size);
  constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void *mapped = mmap(nullptr, size_t(bytes_), PROT_READ | PROT_WRITE, flags, -1, 0);
  if (mapped == MAP_FAILED)
    throw std::runtime_error("no address space for the stacks of " + std::to_string(count) + " threads");
  base_ = static_cast<char *>(mapped);
  for (size_t i = 0; i < count; ++i) mprotect((*this)[i], size_t(getpagesize()), PROT_NONE);
}

}  // namespace emu
