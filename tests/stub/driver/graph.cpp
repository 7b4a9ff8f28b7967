// Graphs by capture: what a stream was handed meanwhile, run in that order on each launch.
#include <algorithm>
#include <set>

#include "stub.hpp"

namespace stub {

static std::map<const void *, std::shared_ptr<Graph>> &graphs() {
    static auto *all = new std::map<const void *, std::shared_ptr<Graph>>;
    return *all;
}

std::shared_ptr<Graph> graph_of(CUgraph handle) { return alive("a graph", handle) ? graphs()[handle] : nullptr; }

template <class Handle>
static void keep(Handle *out, const char *kind, const char *call, std::shared_ptr<Graph> graph) {
    *out = reinterpret_cast<Handle>(new char);
    graphs()[*out] = std::move(graph);
    made(kind, *out, call);
}

static CUresult forget(const char *kind, const void *handle) {
    if (!alive(kind, handle)) return CUDA_ERROR_INVALID_HANDLE;
    graphs().erase(handle);
    released(kind, handle);
    delete static_cast<const char *>(handle);
    return CUDA_SUCCESS;
}

static const Node *node_of(CUgraphNode handle) {
    for (auto &[key, graph] : graphs())
        for (const Node &node : graph->nodes)
            if (reinterpret_cast<CUgraphNode>(const_cast<Node *>(&node)) == handle) return &node;
    violation("%p is no node of a graph that is alive", static_cast<void *>(handle));
    return nullptr;
}

// How many nodes of a capture come before these, themselves included.
static size_t reached(const std::vector<Node *> &tail) {
    std::vector<Node *> waiting = tail;
    std::set<Node *> seen;
    while (!waiting.empty()) {
        Node *node = waiting.back();
        waiting.pop_back();
        if (seen.insert(node).second) waiting.insert(waiting.end(), node->before.begin(), node->before.end());
    }
    return seen.size();
}

}  // namespace stub

using namespace stub;

extern "C" {

CUresult cuStreamBeginCapture(CUstream handle, CUstreamCaptureMode) {
    ENTER();
    Stream *stream = stream_of(handle);
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    if (stream->capture || !handle) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    stream->capture = std::make_shared<Graph>();
    keep(&stream->capture->handle, "a graph", __func__, stream->capture);
    stream->tail.clear();
    stream->begins_capture = true;
    log("%s of %p", __func__, (void *)handle);
    return CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph *out) {
    ENTER();
    Stream *stream = stream_of(handle);
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    if (!stream->capture || !stream->begins_capture) return CUDA_ERROR_ILLEGAL_STATE;
    auto graph = stream->capture;
    const bool joined = reached(stream->tail) == graph->nodes.size();
    leave_capture(graph);
    *out = joined ? graph->handle : nullptr;
    if (!joined) {
        forget("a graph", graph->handle);
        violation("a capture ended before another stream's work had joined it");
        return CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    }
    return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status) {
    ENTER();
    Stream *stream = stream_of(handle);
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    *status = stream->capture ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetCaptureInfo(CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                                const CUgraphNode **nodes, const CUgraphEdgeData **edges, size_t *count) {
    if (CUresult refused = cuStreamIsCapturing(handle, status)) return refused;
    ENTER();
    const auto capture = stream_of(handle)->capture;
    if (id) *id = reinterpret_cast<uintptr_t>(capture.get());
    if (graph) *graph = capture ? capture->handle : nullptr;
    if (nodes) *nodes = nullptr;
    if (edges) *edges = nullptr;
    if (count) *count = 0;
    return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph graph) {
    ENTER();
    return forget("a graph", graph);
}

CUresult cuGraphGetNodes(CUgraph handle, CUgraphNode *nodes, size_t *count) {
    ENTER();
    auto graph = graph_of(handle);
    if (!graph) return CUDA_ERROR_INVALID_HANDLE;
    const size_t room = nodes ? *count : 0;
    for (size_t i = 0; i < room; i++)
        nodes[i] = i < graph->nodes.size() ? reinterpret_cast<CUgraphNode>(&graph->nodes[i]) : nullptr;
    *count = nodes ? std::min(room, graph->nodes.size()) : graph->nodes.size();
    return CUDA_SUCCESS;
}

// What is no launch is a copy or fills memory, which is one kind here.
CUresult cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType *type) {
    ENTER();
    const Node *node = node_of(handle);
    if (!node) return CUDA_ERROR_INVALID_HANDLE;
    *type = node->entry.empty() ? CU_GRAPH_NODE_TYPE_MEMCPY : CU_GRAPH_NODE_TYPE_KERNEL;
    return CUDA_SUCCESS;
}

// A kernel of a library is in `kern`, a function of a module in `func`; the other one is null.
CUresult cuGraphKernelNodeGetParams(CUgraphNode handle, CUDA_KERNEL_NODE_PARAMS *params) {
    ENTER();
    const Node *node = node_of(handle);
    if (!node || node->entry.empty()) return CUDA_ERROR_INVALID_VALUE;
    *params = node->shape;
    return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph graph, unsigned long long) {
    ENTER();
    if (!alive("a graph", graph)) return CUDA_ERROR_INVALID_HANDLE;
    if (CUresult refused = may_block(__func__)) return refused;
    auto copy = std::make_shared<Graph>(*graphs()[graph]);
    for (auto &[object, references] : copy->objects) object->references += references;
    keep(out, "an executable graph", __func__, copy);
    return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *out, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *how) {
    how->result_out = CUDA_GRAPH_INSTANTIATE_SUCCESS;
    return cuGraphInstantiateWithFlags(out, graph, how->flags);
}

CUresult cuGraphExecDestroy(CUgraphExec graph) {
    ENTER();
    return forget("an executable graph", graph);
}

CUresult cuGraphUpload(CUgraphExec graph, CUstream stream) {
    ENTER();
    if (!alive("an executable graph", graph) || !stream_of(stream)) return CUDA_ERROR_INVALID_HANDLE;
    return CUDA_SUCCESS;
}

CUresult cuGraphLaunch(CUgraphExec handle, CUstream stream) {
    ENTER();
    if (!alive("an executable graph", handle)) return CUDA_ERROR_INVALID_HANDLE;
    auto graph = graphs()[handle];
    log("%s of %zu nodes on %p", __func__, graph->nodes.size(), (void *)stream);
    for (const Node &node : graph->nodes)  // in the order of capture, in which each comes after what it waits for
        if (CUresult status = submit(stream, {.entry = node.entry, .run = node.run, .length = node.length})) return status;
    return CUDA_SUCCESS;
}
}
