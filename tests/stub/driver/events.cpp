// Events: records, waits and spans, and the rule that what runs between two records runs on their stream.
#include <algorithm>

#include "stub.hpp"

namespace stub {

// A launch between two records counts where it comes after the first and before the second by the order of its stream
// or by waits for events: then the span holds it whatever else the device does.
void check_span(size_t first, size_t last) {
    auto &work = state().work;
    if (first >= last) return;
    std::vector<bool> after(last - first + 1), before(last - first + 1);
    after[0] = before[last - first] = true;
    for (size_t i = first + 1; i <= last; i++)
        for (size_t other : work[i].before) after[i - first] = after[i - first] || (other >= first && after[other - first]);
    for (size_t i = last; i > first; i--)
        if (before[i - first])
            for (size_t other : work[i].before)
                if (other >= first) before[other - first] = true;
    for (size_t i = first; i <= last; i++)
        if (!work[i].entry.empty() && !(after[i - first] && before[i - first]))
            violation("%s ran on stream %p between two events of stream %p", work[i].entry.c_str(),
                      static_cast<void *>(work[i].stream), static_cast<void *>(work[first].stream));
}

static Event *event_of(CUevent handle) {
    return alive("an event", handle) ? reinterpret_cast<Event *>(handle) : nullptr;
}

}  // namespace stub

using namespace stub;

extern "C" {

CUresult cuEventCreate(CUevent *out, unsigned flags) {
    ENTER();
    *out = reinterpret_cast<CUevent>(new Event{flags, current_device()});
    made("an event", *out, __func__);
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent handle) {
    ENTER();
    Event *event = event_of(handle);
    if (!event) return CUDA_ERROR_INVALID_HANDLE;
    released("an event", handle);
    delete event;
    return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent handle, CUstream stream) {
    ENTER();
    Event *event = event_of(handle);
    Stream *on = stream_of(stream);
    if (!event || !on) return CUDA_ERROR_INVALID_HANDLE;
    log("%s %p on %p", __func__, (void *)handle, (void *)stream);
    if (device_of(stream) != event->device) {
        violation("%s: an event of GPU %d on a stream of GPU %d", __func__, event->device, device_of(stream));
        return CUDA_ERROR_INVALID_HANDLE;
    }
    event->capture = on->capture;
    event->tail = on->tail;
    if (on->capture) return CUDA_SUCCESS;
    CUresult status = submit(stream, {});
    event->record = state().work.size() - 1;
    event->shift = clock_shift();
    return status;
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned) { return cuEventRecord(event, stream); }

CUresult cuStreamWaitEvent(CUstream stream, CUevent handle, unsigned) {
    ENTER();
    Event *event = event_of(handle);
    Stream *on = stream_of(stream);
    if (!event || !on) return CUDA_ERROR_INVALID_HANDLE;
    log("%s %p on %p", __func__, (void *)handle, (void *)stream);
    if (event->capture) {  // the stream joins the capture
        if (on->capture && on->capture != event->capture) return CUDA_ERROR_STREAM_CAPTURE_MERGE;
        on->capture = event->capture;
        on->tail.insert(on->tail.end(), event->tail.begin(), event->tail.end());
        return CUDA_SUCCESS;
    }
    return event->record == SIZE_MAX ? CUDA_SUCCESS : submit(stream, {.before = {event->record}});
}

CUresult cuEventQuery(CUevent handle) {
    ENTER();
    Event *event = event_of(handle);
    if (!event) return CUDA_ERROR_INVALID_HANDLE;
    return is_done(event->record) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent handle) {
    ENTER();
    Event *event = event_of(handle);
    if (!event) return CUDA_ERROR_INVALID_HANDLE;
    auto end = [=] { return event->record == SIZE_MAX ? 0 : state().work[event->record].end; };
    return finish(__func__, [=] { return is_done(event->record); }, end);
}

CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent stop) {
    ENTER();
    Event *first = event_of(start), *last = event_of(stop);
    if (!first || !last || first->record == SIZE_MAX || last->record == SIZE_MAX) return CUDA_ERROR_INVALID_HANDLE;
    if ((first->flags | last->flags) & CU_EVENT_DISABLE_TIMING) return CUDA_ERROR_INVALID_HANDLE;
    if (!is_done(first->record) || !is_done(last->record)) return CUDA_ERROR_NOT_READY;
    check_span(first->record, last->record);
    auto &work = state().work;
    const Nanoseconds span = work[last->record].end - work[first->record].end + last->shift - first->shift;
    *milliseconds = static_cast<float>(span / 1e6);
    return CUDA_SUCCESS;
}
}
