// Fibers: one stack and one saved context for each CUDA thread, all run by one OS thread.
#pragma once
#include <cstddef>
#include <cstdint>

// The assembly switch is ten times faster than ucontext, which asks the kernel for the signal mask at every switch.
#if !defined(__x86_64__) && !defined(EMU_UCONTEXT)
#define EMU_UCONTEXT
#endif
#ifdef EMU_UCONTEXT
#include <ucontext.h>
#endif

namespace emu {

struct Context {
#ifdef EMU_UCONTEXT
  ucontext_t saved;
#else
  void *stack_pointer;
#endif
};

// Makes `context` begin at `entry`, which never returns, on the stack [low, low + size). The part for a kernel's local
// variables is filled with `poison`, and so are the registers that it inherits.
void prepare(Context &context, char *low, size_t size, void (*entry)(), unsigned char poison);
// Saves the present context in `from` and continues at `to`.
void switch_context(Context &from, Context &to);

// Stacks of equal size side by side. The lowest page of each is not accessible, so that an overflow faults.
class Stacks {
 public:
  static constexpr size_t size = 64 * 1024;

  ~Stacks();
  void reserve(size_t count);
  char *operator[](size_t i) const { return base_ + i * size; }
  bool holds(uintptr_t address) const { return address - uintptr_t(base_) < uintptr_t(bytes_); }

 private:
  char *base_ = nullptr;
  ptrdiff_t bytes_ = 0;
};

}  // namespace emu
