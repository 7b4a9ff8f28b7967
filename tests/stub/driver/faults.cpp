// What a device does wrong, as KM_STUB_FAULT names it, from a launch or an allocation of this process on:
//   illegal   the launch reads an illegal address: every call after it returns error 700
//   hang      the launch never ends, and what waits for it never returns
//   crash     the process ends with SIGSEGV within the call that launches
//   clock     the clock of events jumps by an hour with every launch, forward and back
//   oom       allocations return error 2
// KM_STUB_FAULT_AT is the number of that launch or allocation, 1 for the first, or a part of the names of entries, all of
// whose launches are faulty.
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "stub.hpp"

namespace stub {

static bool is_asked(const char *fault) {
    const char *named = getenv("KM_STUB_FAULT");
    return named && !strcmp(named, fault);
}

static bool is_reached(long number, const std::string &entry) {
    const char *at = getenv("KM_STUB_FAULT_AT");
    if (!at) return true;
    return atol(at) ? number >= atol(at) : entry.find(at) != entry.npos;
}

Nanoseconds clock_shift() { return state().shifted ? 3'600'000'000'000 : 0; }

bool is_hung() { return state().hung; }

bool is_out_of_memory() { return is_asked("oom") && is_reached(++state().allocations, ""); }

// Changes a launch to the faulty one that is asked for; returns whether it is one.
bool go_wrong(Work &work) {
    State &s = state();
    if (!is_reached(++s.launches, work.entry)) return false;
    if (is_asked("illegal"))
        work.run = [] { return CUDA_ERROR_ILLEGAL_ADDRESS; };
    else if (is_asked("hang"))
        s.hung = true, work.ends = false;
    else if (is_asked("crash"))
        raise(SIGSEGV);
    else if (is_asked("clock"))
        s.shifted = !s.shifted;
    else
        return false;
    log("fault %s in launch %ld, %s", getenv("KM_STUB_FAULT"), s.launches, work.entry.c_str());
    return true;
}

}  // namespace stub
