// CUDA's keywords and built-in variables, for g++.
#pragma once
#include "runtime.h"

// All static shared variables of a program, including those in templates, lie in its TLS segment, so there is only one
// range to poison and to shadow. constinit forbids dynamic initialisers, as CUDA does.
#define __shared__ constinit thread_local
#define __global__
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __maxnreg__(registers)
#define __cluster_dims__(...)
#define __builtin_assume(condition) ((void)0)
#define __align__(n) __attribute__((aligned(n)))
// Ignored, since with restrict g++ may keep values in registers across a barrier.
#define __restrict__

// Always inlined, so that the line of an access is that of the kernel, not that of the header.
#define EMU_INLINE inline __attribute__((always_inline))
// For functions whose accesses are the emulator's, not the kernel's. They are never inlined into instrumented code.
#define EMU_UNCHECKED __attribute__((no_sanitize("thread"), noinline))
#define EMU_UNCHECKED_LAMBDA __attribute__((no_sanitize("thread")))
#define EMU_SITE emu::Site site = emu::Site::current()

// The runtime sets these at each switch. They are const here because they are constant for each thread, so g++ neither
// reloads nor instruments them.
extern const uint3 threadIdx, blockIdx;
extern const dim3 blockDim, gridDim;
constexpr int warpSize = 32;

namespace emu {

// Returns the value at an address. Its access is not instrumented, unlike that of a copy constructor.
template <class T> EMU_UNCHECKED T value_at(const void *from) {
  struct Bytes { char each[sizeof(T)]; };
  if constexpr (std::is_trivially_copyable_v<T>) return __builtin_bit_cast(T, *static_cast<const Bytes *>(from));
  else return *static_cast<const T *>(from);
}

template <auto kernel> struct Call;
template <class... Args, void (*kernel)(Args...)> struct Call<kernel> {
  template <size_t... I> static void apply(void **arguments, std::index_sequence<I...>) {
    kernel(value_at<Args>(arguments[I])...);
  }
  __attribute__((no_sanitize("thread"))) static void call(void **arguments) {
    void *copies[sizeof...(Args) + 1];
    for (size_t i = 0; i < sizeof...(Args); ++i) copies[i] = arguments[i];
    apply(copies, std::index_sequence_for<Args...>{});
  }
  static const void *address() { return reinterpret_cast<const void *>(kernel); }
  __attribute__((no_sanitize("thread"))) static int sizes(int *out) {
    int count = 0;
    ((out[count++] = std::is_pointer_v<Args> ? -1 : int(sizeof(Args))), ...);
    return count;
  }
};

// Selects the kernel among functions of the same name: `select`, for instance, is also in the C library.
template <class... Args> constexpr auto only_kernel(void (*kernel)(Args...)) { return kernel; }

}  // namespace emu

// The entry for a name expression, as nvrtcAddNameExpression takes it.
#define EMU_CALL(...) emu::Call<emu::only_kernel(__VA_ARGS__)>
#define EMU_ENTRY(...) \
  { #__VA_ARGS__, EMU_CALL((__VA_ARGS__))::call, EMU_CALL((__VA_ARGS__))::sizes, EMU_CALL((__VA_ARGS__))::address() }
