// Streams, events and the virtual clock. Work is a list in the order of submission; a stream runs its own as soon as
// what it waits for has ended. The clock stands still but for launches of a known length and the host's cost a call,
// unless it keeps pace with the machine's.
#include <algorithm>
#include <unistd.h>

#include "stub.hpp"

namespace stub {

static std::map<CUstream, Stream> &streams() {
    static auto *all = new std::map<CUstream, Stream>{{nullptr, {}}, {CU_STREAM_PER_THREAD, {}}};
    return *all;
}

Stream *stream_of(CUstream handle) {
    auto found = streams().find(handle == CU_STREAM_LEGACY ? nullptr : handle);
    if (found != streams().end()) return &found->second;
    violation("%p is no stream that is alive", static_cast<void *>(handle));
    return nullptr;
}

// Every GPU has a default stream, which is one here.
int device_of(CUstream handle) {
    auto found = streams().find(handle);
    return !handle || handle == CU_STREAM_LEGACY || found == streams().end() ? current_device() : found->second.device;
}

bool is_done(size_t work) { return work == SIZE_MAX || state().work[work].done; }

static bool advance(Stream &stream) {
    State &s = state();
    if (stream.pending.empty()) return false;
    Work &work = s.work[stream.pending.front()];
    if (!std::all_of(work.before.begin(), work.before.end(), is_done)) return false;
    if (!work.ends || (work.ready && !work.ready())) return false;
    Nanoseconds start = std::max(stream.free_at, work.ready ? s.now : work.submitted);
    for (size_t other : work.before) start = std::max(start, s.work[other].end);
    stream.free_at = work.end = start + work.length;
    if (work.run && !s.broken) s.broken = work.run();
    work.run = nullptr;
    work.done = true;
    stream.pending.pop_front();
    return true;
}

void drain() {
    state().draining = true;
    for (bool moved = true; moved;) {
        moved = false;
        for (auto &[handle, stream] : streams())
            while (advance(stream)) moved = true;
    }
    state().draining = false;
}

static Stream *held() {
    for (auto &[handle, stream] : streams())
        if (!stream.pending.empty() && state().work[stream.pending.front()].ready) return &stream;
    return nullptr;
}

CUresult may_block(const char *call) {
    if (held()) violation("%s was called while a stream was held", call);
    for (auto &[handle, stream] : streams())
        if (stream.capture) {
            violation("%s was called while a stream was capturing", call);
            return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    return CUDA_SUCCESS;
}

// Waits as the hardware would, for another thread to let the stream go; a test sets how long it has patience.
CUresult finish(const char *call, const std::function<bool()> &done, const std::function<Nanoseconds()> &end) {
    if (CUresult refused = may_block(call)) return refused;
    State &s = state();
    for (long left = setting("KM_STUB_PATIENCE_MS", 10000); !done(); left--) {
        if (left <= 0 && !is_hung()) return CUDA_ERROR_LAUNCH_TIMEOUT;
        s.lock.unlock();
        usleep(1000);
        s.lock.lock();
        drain();
    }
    if (s.broken) return s.broken;
    s.now = std::max({s.now, end(), keep_pace(end())});
    return CUDA_SUCCESS;
}

static CUresult capture(Stream &stream, Work &work) {
    if (work.ready) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    stream.capture->nodes.push_back({stream.tail, work.entry, work.shape, work.run, work.length});
    stream.tail = {&stream.capture->nodes.back()};
    return CUDA_SUCCESS;
}

void leave_capture(const std::shared_ptr<Graph> &graph) {
    for (auto &[handle, stream] : streams())
        if (stream.capture == graph) {
            stream.capture = nullptr;
            stream.tail.clear();
            stream.begins_capture = false;
        }
}

CUresult submit(CUstream handle, Work work) {
    State &s = state();
    Stream *stream = stream_of(handle);
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    if (stream->capture) return capture(*stream, work);
    const bool wrong = !work.entry.empty() && go_wrong(work);
    s.now += s.host_cost;
    work.stream = handle;
    work.submitted = s.now;
    work.done = false;
    work.before.insert(work.before.end(), stream->last.begin(), stream->last.end());
    s.work.push_back(std::move(work));
    stream->last = {s.work.size() - 1};
    stream->pending.push_back(s.work.size() - 1);
    if (!s.draining) drain();
    return wrong ? CUDA_SUCCESS : s.broken;  // a fault is reported by a later call
}

static CUresult wait_value(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags) {
    auto ready = [=] {
        uint32_t found = __atomic_load_n(reinterpret_cast<const uint32_t *>(address), __ATOMIC_ACQUIRE);
        switch (flags & 3) {
            case CU_STREAM_WAIT_VALUE_EQ: return found == value;
            case CU_STREAM_WAIT_VALUE_AND: return (found & value) != 0;
            case CU_STREAM_WAIT_VALUE_NOR: return ~(found | value) != 0;
            default: return static_cast<int32_t>(found - value) >= 0;
        }
    };
    return submit(stream, {.ready = ready});
}

}  // namespace stub

using namespace stub;

extern "C" {

CUresult cuStreamCreateWithPriority(CUstream *out, unsigned flags, int priority) {
    ENTER();
    *out = reinterpret_cast<CUstream>(new char);  // an address that nothing else has
    streams()[*out] = {current_device(), flags, priority};
    made("a stream", *out, __func__);
    return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *out, unsigned flags) { return cuStreamCreateWithPriority(out, flags, 0); }

CUresult cuStreamDestroy(CUstream handle) {
    ENTER();
    if (!alive("a stream", handle)) return CUDA_ERROR_INVALID_HANDLE;
    if (!stream_of(handle)->pending.empty()) violation("a stream was destroyed while it had work to do");
    streams().erase(handle);
    released("a stream", handle);
    delete reinterpret_cast<char *>(handle);
    return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream handle) {
    ENTER();
    Stream *stream = stream_of(handle);
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    return finish(__func__, [=] { return stream->pending.empty(); }, [=] { return stream->free_at; });
}

CUresult cuStreamQuery(CUstream handle) {
    ENTER();
    Stream *stream = stream_of(handle);
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    return stream->pending.empty() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuCtxSynchronize() {
    ENTER();
    const int device = current_device();
    auto idle = [=] {
        return std::all_of(streams().begin(), streams().end(),
                           [=](auto &one) { return device_of(one.first) != device || one.second.pending.empty(); });
    };
    auto end = [=] {
        Nanoseconds last = 0;
        for (auto &[handle, stream] : streams())
            if (device_of(handle) == device) last = std::max(last, stream.free_at);
        return last;
    };
    return finish(__func__, idle, end);
}

CUresult cuStreamGetFlags(CUstream handle, unsigned *flags) {
    ENTER();
    Stream *stream = stream_of(handle);
    if (stream) *flags = stream->flags;
    return stream ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuStreamGetPriority(CUstream handle, int *priority) {
    ENTER();
    Stream *stream = stream_of(handle);
    if (stream) *priority = stream->priority;
    return stream ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuStreamGetId(CUstream handle, unsigned long long *id) {
    ENTER();
    if (!stream_of(handle)) return CUDA_ERROR_INVALID_HANDLE;
    *id = reinterpret_cast<uintptr_t>(handle);
    return CUDA_SUCCESS;
}

// The stub has no caches.
CUresult cuStreamSetAttribute(CUstream handle, CUstreamAttrID attribute, const CUstreamAttrValue *) {
    ENTER();
    log("%s %d", __func__, int(attribute));
    return stream_of(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags) {
    ENTER();
    log("%s %p until %p has %u", __func__, (void *)stream, (void *)address, value);
    return wait_value(stream, address, value, flags);
}
}
