// User objects: by these cuda-core keeps what a graph needs alive as long as the graph.
#include "stub.hpp"

namespace stub {

void release(UserObject *object, long references) {
    if ((object->references -= references) > 0) return;
    released("a user object", object);
    object->destroy(object->content);
    delete object;
}

static UserObject *object_of(CUuserObject handle) {
    return alive("a user object", handle) ? reinterpret_cast<UserObject *>(handle) : nullptr;
}

}  // namespace stub

using namespace stub;

extern "C" {

CUresult cuUserObjectCreate(CUuserObject *out, void *content, CUhostFn destroy, unsigned references, unsigned) {
    ENTER();
    *out = reinterpret_cast<CUuserObject>(new UserObject{content, destroy, references});
    made("a user object", *out, __func__);
    return CUDA_SUCCESS;
}

CUresult cuUserObjectRelease(CUuserObject handle, unsigned references) {
    ENTER();
    UserObject *object = object_of(handle);
    if (!object) return CUDA_ERROR_INVALID_HANDLE;
    release(object, references);
    return CUDA_SUCCESS;
}

CUresult cuGraphRetainUserObject(CUgraph handle, CUuserObject one, unsigned references, unsigned flags) {
    ENTER();
    auto graph = graph_of(handle);
    UserObject *object = object_of(one);
    if (!graph || !object) return CUDA_ERROR_INVALID_HANDLE;
    graph->objects[object] += references;
    if (!(flags & CU_GRAPH_USER_OBJECT_MOVE)) object->references += references;
    return CUDA_SUCCESS;
}

CUresult cuGraphReleaseUserObject(CUgraph handle, CUuserObject one, unsigned references) {
    ENTER();
    auto graph = graph_of(handle);
    UserObject *object = object_of(one);
    if (!graph || !object || graph->objects[object] < references) return CUDA_ERROR_INVALID_HANDLE;
    if ((graph->objects[object] -= references) == 0) graph->objects.erase(object);
    release(object, references);
    return CUDA_SUCCESS;
}
}
