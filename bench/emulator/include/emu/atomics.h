// Atomics: plain operations, since one OS thread runs every fiber; they are reported to the checker as atomic.
#pragma once
#include "keywords.h"

namespace emu {

// Updates an atomic by plain accesses, which the checker does not see.
template <class T, class Update> EMU_UNCHECKED T update(T *address, Update change) {
  const T old = value_at<T>(address), now = change(old);
  __builtin_memcpy(address, &now, sizeof(T));
  return old;
}

}  // namespace emu

#define EMU_ATOMIC(name, expression)                                                     \
  template <class T> EMU_INLINE T name(T *address, std::type_identity_t<T> value) {      \
    emu::note_atomic((void *)address, sizeof(T));                                        \
    const auto change = [value](T old) EMU_UNCHECKED_LAMBDA -> T { return expression; }; \
    return emu::update(address, change);                                                 \
  }
EMU_ATOMIC(atomicAdd, old + value)
EMU_ATOMIC(atomicSub, old - value)
EMU_ATOMIC(atomicExch, value)
EMU_ATOMIC(atomicMin, value < old ? value : old)
EMU_ATOMIC(atomicMax, value > old ? value : old)
EMU_ATOMIC(atomicAnd, old &value)
EMU_ATOMIC(atomicOr, old | value)
EMU_ATOMIC(atomicXor, old ^ value)
EMU_ATOMIC(atomicInc, old >= value ? T(0) : T(old + 1))
EMU_ATOMIC(atomicDec, old == 0 || old > value ? value : T(old - 1))
#undef EMU_ATOMIC

template <class T>
EMU_INLINE T atomicCAS(T *address, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  emu::note_compared((void *)address, &expected, sizeof(T));
  emu::note_atomic((void *)address, sizeof(T));
  const auto change = [=](T now) EMU_UNCHECKED_LAMBDA -> T { return now == expected ? value : now; };
  const T old = emu::update(address, change);
  if (!(old == expected)) emu::yield();  // another thread holds the lock: let it run
  return old;
}

// Scopes are not modelled.
#define EMU_SCOPED(name)                                                                                      \
  template <class T> EMU_INLINE T name##_block(T *address, std::type_identity_t<T> x) { return name(address, x); } \
  template <class T> EMU_INLINE T name##_system(T *address, std::type_identity_t<T> x) { return name(address, x); }
EMU_SCOPED(atomicAdd)
EMU_SCOPED(atomicSub)
EMU_SCOPED(atomicExch)
EMU_SCOPED(atomicMin)
EMU_SCOPED(atomicMax)
EMU_SCOPED(atomicAnd)
EMU_SCOPED(atomicOr)
EMU_SCOPED(atomicXor)
#undef EMU_SCOPED
