// What the modules of the stub driver share: its state, the log and the rules. Every entry begins with ENTER, which
// takes the one lock, counts the call and lets the streams run as far as they can.
#pragma once
#include <cuda.h>
#include <cudaTypedefs.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

extern "C" {
// A launch as the test's process sees it: `args` are the addresses of the parameters' bytes, `sizes` their lengths.
struct km_launch {
    const char *entry;
    unsigned grid[3], block[3], cluster[3];
    unsigned shared_bytes;
    int cooperative, count;
    const void *const *args;
    const size_t *sizes;
};
// Runs a launch; what it returns is the status that a later call reports, 0 for success.
typedef int (*km_run)(const km_launch *);
}

namespace stub {

using Nanoseconds = int64_t;

// One piece of work, in the order of submission. `before` are the pieces that must have ended before it starts.
struct Work {
    CUstream stream = nullptr;
    std::vector<size_t> before = {};
    std::string entry = {};  // of a launch
    CUDA_KERNEL_NODE_PARAMS shape = {};  // of a launch: its kernel, grid and block
    std::function<CUresult()> run = nullptr;
    std::function<bool()> ready = nullptr;  // of a wait for a value in memory
    Nanoseconds submitted = 0, length = 0, end = 0;
    bool ends = true, done = false;
};

struct Node {
    std::vector<Node *> before;
    std::string entry;
    CUDA_KERNEL_NODE_PARAMS shape;
    std::function<CUresult()> run;
    Nanoseconds length;
};

// What a package ties to a graph's life: destroyed with the last reference, of which graphs hold some.
struct UserObject {
    void *content;
    CUhostFn destroy;
    long references;
};
void release(UserObject *object, long references);

struct Graph {
    std::deque<Node> nodes = {};
    CUgraph handle = nullptr;
    std::map<UserObject *, long> objects = {};
    ~Graph() {
        for (auto &[object, references] : objects) release(object, references);
    }
};
std::shared_ptr<Graph> graph_of(CUgraph handle);

struct Stream {
    int device = 0;
    unsigned flags = 0;
    int priority = 0;
    std::deque<size_t> pending = {};
    std::vector<size_t> last = {};  // what the next piece of work comes after
    Nanoseconds free_at = 0;
    std::shared_ptr<Graph> capture = nullptr;  // into which work goes instead, while the stream captures
    std::vector<Node *> tail = {};
    bool begins_capture = false;
};

struct Event {
    unsigned flags = 0;
    int device = 0;
    size_t record = SIZE_MAX;
    Nanoseconds shift = 0;  // by which a jump of the clock has moved the record
    std::shared_ptr<Graph> capture = nullptr;
    std::vector<Node *> tail = {};
};

struct Function {
    std::string name;
    std::vector<size_t> sizes, offsets;  // of the parameters
    int registers = 0, static_shared = 0, max_threads = 1024;
    int dynamic_shared = 0, non_portable_cluster = 0, carve_out = -1;  // as set
};

struct Library {
    std::map<std::string, Function> functions;
    bool as_module = false;
};

struct Allocation {
    size_t bytes;
    bool host;
    int device;
};

long setting(const char *variable, long otherwise);

struct State {
    std::recursive_mutex lock;
    std::map<std::string, long> called;
    std::map<std::pair<std::string, const void *>, std::string> handles;  // kind and address, with what made it
    std::map<uintptr_t, Allocation> memory;
    std::deque<Work> work;
    Nanoseconds now = 0, length = setting("KM_STUB_LENGTH_NS", 1000), host_cost = 0, emulating = 0;
    CUresult broken = CUDA_SUCCESS;
    km_run run = nullptr;
    bool draining = false;
    long launches = 0, allocations = 0;
    bool shifted = false, hung = false;  // the clock of events and a launch, by a fault
};
State &state();

struct Enter {
    explicit Enter(const char *name);
    std::lock_guard<std::recursive_mutex> guard;
    CUresult status;
};
#define ENTER()                        \
    stub::Enter entered(__func__);     \
    if (entered.status) return entered.status

void log(const char *format, ...) __attribute__((format(printf, 1, 2)));
void violation(const char *format, ...) __attribute__((format(printf, 1, 2)));

void made(const char *kind, const void *handle, const char *by);
void released(const char *kind, const void *handle);
bool alive(const char *kind, const void *handle);

// Reports a call that a held stream would keep from returning, or that a capture forbids.
CUresult may_block(const char *call);

Stream *stream_of(CUstream handle);
CUresult submit(CUstream handle, Work work);
bool go_wrong(Work &work);
bool is_hung();
bool is_out_of_memory();
Nanoseconds clock_shift();
void drain();
Nanoseconds machine_time();
Nanoseconds keep_pace(Nanoseconds until = 0);
void leave_capture(const std::shared_ptr<Graph> &graph);
bool is_done(size_t work);
CUresult finish(const char *call, const std::function<bool()> &done, const std::function<Nanoseconds()> &end);
void check_span(size_t first, size_t last);
const Allocation *allocation(uintptr_t address, uintptr_t *base);
std::shared_ptr<Library> read_cubin(const char *image);
int blocks_per_multiprocessor(const Function &f, int threads, size_t dynamic_shared);
Function *function_of(const void *handle);
// Whether a kernel was loaded by cuModuleLoadData, not by cuLibraryLoadData.
bool is_of_module(const void *function);
int device_attribute(int attribute);
// The number of the thread's current GPU, the first one where it has none; of a context, of a stream.
int current_device();
int device_of(CUcontext context);
int device_of(CUstream stream);
// Reports memory on a GPU that a GPU cannot use.
bool within_reach(const char *call, int device, uintptr_t address);
// Reports what reaches beyond its block, and memory that is in none where it `must` be.
bool inside(const char *call, uintptr_t address, size_t bytes, bool must);
bool pageable(uintptr_t address);
// Of a GPU by its number on the machine; the numbers of those that this process sees.
std::string identity(int number);
const std::vector<int> &visible();

}  // namespace stub
