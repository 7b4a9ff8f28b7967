// The log, the ledger of handles and the calls of the test's process.
#include <algorithm>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "stub.hpp"

namespace stub {

State &state() {
    static State *one = new State;  // never destroyed: threads may still call while the process exits
    return *one;
}

static FILE *log_file() {
    static FILE *file = [] {
        const char *path = getenv("KM_STUB_LOG");
        FILE *opened = path ? fopen(path, "a") : nullptr;
        if (opened) setvbuf(opened, nullptr, _IOLBF, 0);
        return opened;
    }();
    return file;
}

static void write(const char *before, const char *format, va_list arguments) {
    if (FILE *file = log_file()) {
        fputs(before, file);
        vfprintf(file, format, arguments);
        fputc('\n', file);
    }
}

void log(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    write("", format, arguments);
    va_end(arguments);
}

void violation(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    write("violation: ", format, arguments);
    va_end(arguments);
}

long setting(const char *variable, long otherwise) {
    const char *text = getenv(variable);
    return text ? atol(text) : otherwise;
}

Nanoseconds machine_time() {
    static const auto began = std::chrono::steady_clock::now();
    return std::chrono::nanoseconds(std::chrono::steady_clock::now() - began).count();
}

// With KM_STUB_PACED, virtual time is the machine's without what launches took to be emulated: waits until then and
// returns the time. Without it, returns 0.
Nanoseconds keep_pace(Nanoseconds until) {
    static const bool paced = setting("KM_STUB_PACED", 0);
    if (!paced) return 0;
    const Nanoseconds skipped = state().emulating;
    std::this_thread::sleep_for(std::chrono::nanoseconds(until - (machine_time() - skipped)));
    return machine_time() - skipped;
}

Enter::Enter(const char *name) : guard(state().lock) {
    State &s = state();
    if (!s.called[name]++) log("first call of %s", name);
    s.now = std::max(s.now, keep_pace());
    if (!s.draining) drain();
    status = s.broken;
}

void made(const char *kind, const void *handle, const char *by) { state().handles[{kind, handle}] = by; }

void released(const char *kind, const void *handle) { state().handles.erase({kind, handle}); }

bool alive(const char *kind, const void *handle) {
    if (state().handles.count({kind, handle})) return true;
    violation("%p is no %s that is alive", handle, kind);
    return false;
}

// What is still held when the process ends.
__attribute__((destructor)) static void at_exit() {
    State &s = state();
    for (const auto &[key, by] : s.handles)
        if (key.first == "a library")
            log("left %s of %s", key.first.c_str(), by.c_str());  // cuda-core 1.2 never calls cuLibraryUnload
        else
            violation("%s of %s was never released", key.first.c_str(), by.c_str());
}

}  // namespace stub

using namespace stub;

extern "C" {

void km_stub_on_launch(km_run run) { state().run = run; }

// Every launch takes this long.
void km_stub_length(long long nanoseconds) { state().length = nanoseconds; }

// What the host spends on each call that submits work.
void km_stub_host_cost(long long nanoseconds) { state().host_cost = nanoseconds; }

// Puts a line of the test's into the log.
void km_stub_note(const char *text) { log("%s", text); }

// The virtual time of the host, in nanoseconds.
long long km_stub_now() { return state().now; }

// How long launches took to be emulated, in nanoseconds.
long long km_stub_emulating() { return state().emulating; }

// Finds the allocation that holds an address; returns 0 where there is none.
int km_stub_allocation(uintptr_t address, uintptr_t *base, size_t *bytes) {
    const Allocation *found = allocation(address, base);
    if (found) *bytes = found->bytes;
    return found != nullptr;
}
}
