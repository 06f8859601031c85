/* Graphs that allocate: the memory is taken when the graph is launched and kept after that, so it is counted from when
 * the node is made until the graph and all that was instantiated from it are gone. The driver is then told to let go.
 */
#define _GNU_SOURCE
#include "shim.h"

static uint64_t key_of(const void *handle) {
    return (uint64_t)(uintptr_t)handle;
}

void *graph_captured(CUstream stream) {
    int status = CU_CAPTURE_STATUS_NONE;
    uint64_t id = 0;
    CUgraph graph = NULL;
    if (!real.cuStreamGetCaptureInfo_v2 ||
        real.cuStreamGetCaptureInfo_v2(stream, &status, &id, &graph, NULL, NULL) != CUDA_SUCCESS) {
        return NULL;
    }
    return status == CU_CAPTURE_STATUS_NONE ? NULL : graph;
}

/* ---- allocation nodes ---- */

static struct gpu *gpu_of(const CUmemAllocNodeParams *params) {
    bool named = params->location.type == CU_LOCATION_DEVICE;
    return named ? gpu_by_ordinal(params->location.id) : NULL; /* else it is memory of the host */
}

#define ALLOCATES(graph, params, call)                                                   \
    do {                                                                                 \
        const CUmemAllocNodeParams *wanted = (params);                                   \
        struct gpu *gpu = wanted ? gpu_of(wanted) : NULL;                                \
        uint64_t bytes = gpu ? wanted->bytes : 0;                                        \
        if (!gpu) {                                                                      \
            return call;                                                                 \
        }                                                                                \
        if (!quota_reserve(gpu, bytes)) {                                                \
            return CUDA_ERROR_OUT_OF_MEMORY;                                             \
        }                                                                                \
        CUresult result = call;                                                          \
        if (result == CUDA_SUCCESS) {                                                    \
            ledger_grow(KIND_GRAPH, key_of(graph), gpu, bytes);                          \
        } else {                                                                         \
            quota_give_back(gpu, bytes);                                                 \
        }                                                                                \
        return result;                                                                   \
    } while (0)

static const CUmemAllocNodeParams *allocation_in(const CUgraphNodeParams *params) {
    return params && params->type == CU_NODE_MEM_ALLOC ? &params->alloc : NULL;
}

EXPORT CUresult cuGraphAddMemAllocNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count,
                                       CUmemAllocNodeParams *params) {
    NEEDS(cuGraphAddMemAllocNode);
    ALLOCATES(graph, params, real.cuGraphAddMemAllocNode(out, graph, after, count, params));
}

EXPORT CUresult cuGraphAddNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count,
                               CUgraphNodeParams *params) {
    NEEDS(cuGraphAddNode);
    ALLOCATES(graph, allocation_in(params), real.cuGraphAddNode(out, graph, after, count, params));
}

EXPORT CUresult cuGraphAddNode_v2(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, const void *edges,
                                  size_t count, CUgraphNodeParams *params) {
    NEEDS(cuGraphAddNode_v2);
    ALLOCATES(graph, allocation_in(params), real.cuGraphAddNode_v2(out, graph, after, edges, count, params));
}

/* ---- what lives as long as the memory ---- */

static CUresult instantiated(CUresult result, CUgraphExec *out, CUgraph graph) {
    if (result == CUDA_SUCCESS && out && *out) {
        ledger_share(KIND_GRAPH, key_of(graph), KIND_GRAPH_EXEC, key_of(*out), 0);
    }
    return result;
}

#define INSTANTIATE(name)                                                                                   \
    EXPORT CUresult name(CUgraphExec *out, CUgraph graph, CUgraphNode *bad, char *log, size_t room) {       \
        NEEDS(name);                                                                                        \
        return instantiated(real.name(out, graph, bad, log, room), out, graph);                             \
    }
INSTANTIATE(cuGraphInstantiate)
INSTANTIATE(cuGraphInstantiate_v2)

EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph graph, unsigned long long flags) {
    NEEDS(cuGraphInstantiateWithFlags);
    return instantiated(real.cuGraphInstantiateWithFlags(out, graph, flags), out, graph);
}

#define INSTANTIATE_WITH_PARAMS(name)                                              \
    EXPORT CUresult name(CUgraphExec *out, CUgraph graph, void *params) {          \
        NEEDS(name);                                                               \
        return instantiated(real.name(out, graph, params), out, graph);            \
    }
INSTANTIATE_WITH_PARAMS(cuGraphInstantiateWithParams)
INSTANTIATE_WITH_PARAMS(cuGraphInstantiateWithParams_ptsz)

#define ENDS(kind, handle, call)                                              \
    do {                                                                      \
        struct entry *entry = ledger_take(kind, key_of(handle));              \
        CUresult result = call;                                               \
        if (result != CUDA_SUCCESS) {                                         \
            ledger_put_back(entry);                                           \
            return result;                                                    \
        }                                                                     \
        struct gpu *gpu = ledger_drop(entry);                                 \
        if (gpu && real.cuDeviceGraphMemTrim) {                               \
            int mode = flight_relax();                                        \
            real.cuDeviceGraphMemTrim(gpu->ordinal);                          \
            flight_restore(mode);                                             \
        }                                                                     \
        return result;                                                        \
    } while (0)

EXPORT CUresult cuGraphDestroy(CUgraph graph) {
    NEEDS(cuGraphDestroy);
    ENDS(KIND_GRAPH, graph, real.cuGraphDestroy(graph));
}

EXPORT CUresult cuGraphExecDestroy(CUgraphExec exec) {
    NEEDS(cuGraphExecDestroy);
    ENDS(KIND_GRAPH_EXEC, exec, real.cuGraphExecDestroy(exec));
}
