// SPDX-License-Identifier: LGPL-2.1-or-later
// Recording a tape. Each function that a tape tells of has a stand-in, which
// takes the driver's place in the table of symbols. So every call is seen, by
// whichever hook it comes, and a program that is not recorded has none of this.
#include "hooks/recording.hpp"

#include "base/thread.hpp"
#include "hooks/session.hpp"
#include "interpose/message.hpp"
#include "movement/kernels.hpp"
#include "record/recorder.hpp"

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#include <cudaProfiler.h>
#include <unistd.h>

extern "C" {
void *emuv_resolve(unsigned index);
CUresult
cuGraphInstantiateWithParams_ptsz(CUgraphExec *made, CUgraph from,
                                  CUDA_GRAPH_INSTANTIATE_PARAMS *params);
}

namespace emuv::cuda {

namespace {

// They live as long as the process: programs call the driver to the end.
recorder *first;
tape_writer *file;
const driver *calls;
known_kernels *kernels; // null: nothing is proven
proofs *proved;         // them

// The recorder while it records.
constinit std::atomic<recorder *> active{nullptr};

// The driver's own, by symbol.
std::array<void *, static_cast<std::size_t>(symbol::count)> reals;

// A call of the driver's may come back by an exported function.
constinit thread_local int depth [[gnu::tls_model("initial-exec")]] = 0;

class inside
{
public:
    inside() : outermost_(depth++ == 0) {}
    inside(const inside &) = delete;
    inside &operator=(const inside &) = delete;
    ~inside() { depth--; }
    bool outermost() const { return outermost_; }

private:
    const bool outermost_;
};

// A function in the driver's place.
// @tparam body  makes the call: (recorder &, real, arguments...)
template <symbol which, typename Function, auto body>
struct stand_in;

template <symbol which, auto body, typename... Arguments>
struct stand_in<which, CUresult (*)(Arguments...), body>
{
    static CUresult call(Arguments... arguments)
    {
        const auto real = [&] {
            return reinterpret_cast<CUresult (*)(Arguments...)>(
                reals[static_cast<std::size_t>(which)])(arguments...);
        };
        const inside now;
        recorder *const to = active.load(std::memory_order_acquire);
        if (to == nullptr || !now.outermost())
            return real();
        return body(*to, real, arguments...);
    }
};

// Makes a call, and tells of it if it succeeds.
template <typename Real, typename Tell>
CUresult told(Real real, Tell tell)
{
    recorder::moment when{now_ns(), 0};
    const CUresult result = real();
    when.end = now_ns();
    if (result == CUDA_SUCCESS)
        tell(when);
    return result;
}

template <bool own>
CUstream in(CUstream stream)
{
    return own ? per_thread(stream) : legacy(stream);
}

// ---- Memory

constexpr auto allocate = [](recorder &to, auto real, CUdeviceptr *at,
                             std::size_t bytes) {
    return told(real, [&](const recorder::moment &when) {
        to.allocated(when, tape::memory_kind::device, *at, bytes, nullptr);
    });
};

constexpr auto allocate_pitch = [](recorder &to, auto real, CUdeviceptr *at,
                                   std::size_t *pitch, std::size_t,
                                   std::size_t height, unsigned) {
    return told(real, [&](const recorder::moment &when) {
        to.allocated(when, tape::memory_kind::device, *at, *pitch * height,
                     nullptr);
    });
};

constexpr auto allocate_managed = [](recorder &to, auto real, CUdeviceptr *at,
                                     std::size_t bytes, unsigned) {
    return told(real, [&](const recorder::moment &when) {
        to.allocated(when, tape::memory_kind::managed, *at, bytes, nullptr);
    });
};

template <bool own>
constexpr auto allocate_async = [](recorder &to, auto real, CUdeviceptr *at,
                                   std::size_t bytes, CUstream stream) {
    return told(real, [&](const recorder::moment &when) {
        to.allocated(when, tape::memory_kind::ordered, *at, bytes,
                     in<own>(stream));
    });
};

template <bool own>
constexpr auto allocate_from_pool = [](recorder &to, auto real, CUdeviceptr *at,
                                       std::size_t bytes, CUmemoryPool,
                                       CUstream stream) {
    return told(real, [&](const recorder::moment &when) {
        to.allocated(when, tape::memory_kind::ordered, *at, bytes,
                     in<own>(stream));
    });
};

constexpr auto allocate_host = [](recorder &to, auto real, void **at,
                                  std::size_t bytes, auto...) {
    return told(real, [&](const recorder::moment &when) {
        to.allocated(when, tape::memory_kind::pinned,
                     reinterpret_cast<CUdeviceptr>(*at), bytes, nullptr);
    });
};

constexpr auto register_host = [](recorder &to, auto real, void *at,
                                  std::size_t bytes, unsigned) {
    return told(real, [&](const recorder::moment &when) {
        to.allocated(when, tape::memory_kind::pinned,
                     reinterpret_cast<CUdeviceptr>(at), bytes, nullptr);
    });
};

template <typename Real>
CUresult goes(recorder &to, Real real, CUdeviceptr at, CUstream stream)
{
    const recorder::known_memory was = to.leaves(at, stream);
    const CUresult result = told(real, [&](const recorder::moment &when) {
        to.freed(when, was, stream);
    });
    if (result != CUDA_SUCCESS)
        to.stays(was);
    return result;
}

constexpr auto release = [](recorder &to, auto real, CUdeviceptr at) {
    return goes(to, real, at, nullptr);
};

constexpr auto release_host = [](recorder &to, auto real, void *at) {
    return goes(to, real, reinterpret_cast<CUdeviceptr>(at), nullptr);
};

template <bool own>
constexpr auto release_async =
    [](recorder &to, auto real, CUdeviceptr at, CUstream stream) {
        return goes(to, real, at, in<own>(stream));
    };

constexpr auto map = [](recorder &to, auto real, CUdeviceptr at,
                        std::size_t bytes, std::size_t,
                        CUmemGenericAllocationHandle, unsigned long long) {
    return told(real, [&](const recorder::moment &when) {
        to.allocated(when, tape::memory_kind::mapped, at, bytes, nullptr);
    });
};

constexpr auto unmap = [](recorder &to, auto real, CUdeviceptr at,
                          std::size_t bytes) {
    const std::vector<recorder::known_memory> were = to.leave(at, bytes);
    const CUresult result = told(real, [&](const recorder::moment &when) {
        for (const recorder::known_memory &each : were)
            to.freed({&each == were.data() ? when.begin : when.end, when.end},
                     each, nullptr);
    });
    if (result != CUDA_SUCCESS)
        for (const recorder::known_memory &each : were)
            to.stays(each);
    return result;
};

// ---- Launches

template <typename Real>
CUresult launched(recorder &to, Real real, CUfunction function,
                  const recorder::grid &size, CUstream stream,
                  void **parameters, void **extra)
{
    const std::uint64_t entered = now_ns();
    recorder::launching launch;
    to.begin_launch(launch, function, size, stream, parameters, extra);
    recorder::moment when{now_ns(), 0, entered};
    const CUresult result = real();
    when.end = now_ns();
    to.end_launch(when, launch, stream, result);
    return result;
}

template <bool own>
constexpr auto launch = [](recorder &to, auto real, CUfunction function,
                           unsigned grid_x, unsigned grid_y, unsigned grid_z,
                           unsigned block_x, unsigned block_y, unsigned block_z,
                           unsigned shared_bytes, CUstream stream,
                           void **parameters, auto... extra) {
    void **more = nullptr;
    ((more = extra), ...);
    return launched(
        to, real, function,
        {grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes},
        in<own>(stream), parameters, more);
};

template <bool own>
constexpr auto launch_ex = [](recorder &to, auto real,
                              const CUlaunchConfig *config, CUfunction function,
                              void **parameters, void **extra) {
    if (config == nullptr)
        return real();
    return launched(to, real, function,
                    {config->gridDimX, config->gridDimY, config->gridDimZ,
                     config->blockDimX, config->blockDimY, config->blockDimZ,
                     config->sharedMemBytes},
                    in<own>(config->hStream), parameters, extra);
};

template <bool own>
constexpr auto host_function =
    [](recorder &to, auto real, CUstream stream, auto...) {
        return told(real, [&](const recorder::moment &when) {
            to.host_work(when, in<own>(stream));
        });
    };

// ---- Copies and fills

// The addresses of a side, whichever it is.
CUdeviceptr as_address(CUdeviceptr at)
{
    return at;
}
CUdeviceptr as_address(const void *at)
{
    return reinterpret_cast<CUdeviceptr>(at);
}

// With one stream at most behind the size.
template <bool own, tape::copy_kind kind>
constexpr auto copy = [](recorder &to, auto real, auto target, auto source,
                         std::size_t bytes, auto... stream) {
    return told(real, [&](const recorder::moment &when) {
        CUstream order = nullptr;
        ((order = stream), ...);
        to.copied(when, kind, sizeof...(stream) == 0, in<own>(order),
                  as_address(target), as_address(source), bytes);
    });
};

template <bool own>
constexpr auto copy_peer = [](recorder &to, auto real, CUdeviceptr target,
                              CUcontext, CUdeviceptr source, CUcontext,
                              std::size_t bytes, auto... stream) {
    return told(real, [&](const recorder::moment &when) {
        CUstream order = nullptr;
        ((order = stream), ...);
        to.copied(when, tape::copy_kind::on_device, sizeof...(stream) == 0,
                  in<own>(order), target, source, bytes);
    });
};

CUdeviceptr described(CUmemorytype type, const void *host, CUdeviceptr device,
                      std::size_t offset)
{
    if (type == CU_MEMORYTYPE_ARRAY)
        return 0;
    return (type == CU_MEMORYTYPE_HOST ? as_address(host) : device) + offset;
}

tape::copy_kind way_of(CUmemorytype to, CUmemorytype from)
{
    const bool to_host = to == CU_MEMORYTYPE_HOST;
    const bool from_host = from == CU_MEMORYTYPE_HOST;
    if (to == CU_MEMORYTYPE_UNIFIED || from == CU_MEMORYTYPE_UNIFIED)
        return tape::copy_kind::any;
    return to_host
               ? (from_host ? tape::copy_kind::any : tape::copy_kind::to_host)
           : from_host ? tape::copy_kind::to_device
                       : tape::copy_kind::on_device;
}

// By a description of two or three dimensions.
template <bool own>
constexpr auto copy_described = [](recorder &to, auto real, const auto *how,
                                   auto... stream) {
    return told(real, [&](const recorder::moment &when) {
        CUstream order = nullptr;
        ((order = stream), ...);
        std::size_t bytes = how->WidthInBytes * how->Height;
        std::size_t into = how->dstY * how->dstPitch + how->dstXInBytes;
        std::size_t out_of = how->srcY * how->srcPitch + how->srcXInBytes;
        if constexpr (requires { how->Depth; }) {
            bytes *= how->Depth;
            into += how->dstZ * how->dstHeight * how->dstPitch;
            out_of += how->srcZ * how->srcHeight * how->srcPitch;
        }
        to.copied(
            when, way_of(how->dstMemoryType, how->srcMemoryType),
            sizeof...(stream) == 0, in<own>(order),
            described(how->dstMemoryType, how->dstHost, how->dstDevice, into),
            described(how->srcMemoryType, how->srcHost, how->srcDevice, out_of),
            bytes);
    });
};

template <bool own, std::size_t element>
constexpr auto fill = [](recorder &to, auto real, CUdeviceptr at, auto,
                         std::size_t count, auto... stream) {
    return told(real, [&](const recorder::moment &when) {
        CUstream order = nullptr;
        ((order = stream), ...);
        to.filled(when, sizeof...(stream) == 0, in<own>(order), at,
                  count * element);
    });
};

template <bool own, std::size_t element>
constexpr auto fill_rows = [](recorder &to, auto real, CUdeviceptr at,
                              std::size_t pitch, auto, std::size_t width,
                              std::size_t height, auto... stream) {
    return told(real, [&](const recorder::moment &when) {
        CUstream order = nullptr;
        ((order = stream), ...);
        to.filled(when, sizeof...(stream) == 0, in<own>(order), at,
                  height > 0 ? (height - 1) * pitch + width * element : 0);
    });
};

// ---- Graphs

constexpr auto instantiate = [](recorder &to, auto real, CUgraphExec *made,
                                CUgraph from, auto...) {
    return told(real, [&](const recorder::moment &when) {
        to.instantiated(when, *made, from);
    });
};

constexpr auto update = [](recorder &to, auto real, CUgraphExec which,
                           CUgraph from, auto...) {
    return told(real, [&](const recorder::moment &when) {
        to.updated(when, which, from);
    });
};

constexpr auto change_node = [](recorder &to, auto real, CUgraphExec which,
                                CUgraphNode node, const auto *params) {
    return told(real, [&](const recorder::moment &when) {
        CUfunction function = params->func;
        if constexpr (requires { params->kern; })
            if (function == nullptr)
                function = reinterpret_cast<CUfunction>(params->kern);
        to.node_changed(when, which, node, function,
                        {params->gridDimX, params->gridDimY, params->gridDimZ,
                         params->blockDimX, params->blockDimY,
                         params->blockDimZ, params->sharedMemBytes},
                        params->kernelParams, params->extra);
    });
};

constexpr auto change_child = [](recorder &to, auto real, CUgraphExec which,
                                 CUgraphNode node, CUgraph from) {
    return told(real, [&](const recorder::moment &when) {
        to.child_changed(when, which, node, from);
    });
};

constexpr auto change_copy_or_fill = [](recorder &to, auto real,
                                        CUgraphExec which, CUgraphNode node,
                                        const auto *params, CUcontext) {
    return told(real, [&](const recorder::moment &when) {
        to.node_changed(when, which, node, *params);
    });
};

template <bool own>
constexpr auto launch_graph =
    [](recorder &to, auto real, CUgraphExec which, CUstream stream) {
        const std::uint64_t entered = now_ns();
        recorder::launching launch;
        to.begin_graph(launch, in<own>(stream));
        recorder::moment when{now_ns(), 0, entered};
        const CUresult result = real();
        when.end = now_ns();
        to.end_graph(when, launch, which, in<own>(stream), result);
        return result;
    };

constexpr auto end_graph = [](recorder &to, auto real, CUgraphExec which) {
    return told(real, [&](const recorder::moment &when) {
        to.graph_gone(when, which);
    });
};

// ---- Order

template <bool own>
constexpr auto record_event =
    [](recorder &to, auto real, CUevent event, CUstream stream, auto...) {
        return told(real, [&](const recorder::moment &when) {
            to.event_recorded(when, event, in<own>(stream));
        });
    };

template <bool own>
constexpr auto await_event =
    [](recorder &to, auto real, CUstream stream, CUevent event, unsigned) {
        return told(real, [&](const recorder::moment &when) {
            to.event_awaited(when, in<own>(stream), event);
        });
    };

constexpr auto end_event = [](recorder &to, auto real, CUevent event) {
    to.event_gone(event);
    return real();
};

constexpr auto synchronize = [](recorder &to, auto real, auto...) {
    to.waits();
    return told(real, [&](const recorder::moment &when) {
        to.synchronized(when, tape::wait_kind::context, nullptr, nullptr);
    });
};

template <bool own>
constexpr auto synchronize_stream =
    [](recorder &to, auto real, CUstream stream) {
        to.waits();
        return told(real, [&](const recorder::moment &when) {
            to.synchronized(when, tape::wait_kind::stream, in<own>(stream),
                            nullptr);
        });
    };

constexpr auto synchronize_event = [](recorder &to, auto real, CUevent event) {
    to.waits();
    return told(real, [&](const recorder::moment &when) {
        to.synchronized(when, tape::wait_kind::event, nullptr, event);
    });
};

constexpr auto end_stream = [](recorder &to, auto real, CUstream stream) {
    return told(real, [&](const recorder::moment &when) {
        to.stream_gone(when, stream);
    });
};

template <std::uint64_t value>
constexpr auto mark = [](recorder &to, auto real) {
    return told(real,
                [&](const recorder::moment &when) { to.marked(when, value); });
};

// ---- Kernels

static_assert(recorder::least_divided == mover::least_moving_bytes);

// Reads a launch for the recorder.
void read_launch(CUfunction which, void **parameters, void **extra, work &out)
{
    kernels->scan(*calls, which, parameters, extra, out);
}

// ---- Ends

constexpr auto unload = [](recorder &to, auto real, auto) {
    to.module_goes();
    return real();
};

constexpr auto end_context = [](recorder &to, auto real, auto which) {
    to.context_goes();
    if constexpr (std::is_same_v<decltype(which), CUcontext>)
        if (kernels != nullptr)
            kernels->gone(which);
    return real();
};

struct stand
{
    symbol which;
    const char *name;
    void *ours;
};

#define STAND(name, ...)                                                       \
    {                                                                          \
        symbol::name, #name,                                                   \
            reinterpret_cast<void *>(                                          \
                &stand_in<symbol::name, decltype(&::name),                     \
                          (__VA_ARGS__)>::call)                                \
    }
#define STANDS(name, suffix, body)                                             \
    STAND(name, body<false>), STAND(name##suffix, body<true>)
#define STAND_COPIES(name, suffix, kind)                                       \
    STAND(name, copy<false, tape::copy_kind::kind>),                           \
        STAND(name##suffix, copy<true, tape::copy_kind::kind>)
#define STAND_FILLS(name, suffix, body, element)                               \
    STAND(name, body<false, element>), STAND(name##suffix, body<true, element>)

const stand stands[] = {
    STAND(cuMemAlloc_v2, allocate),
    STAND(cuMemAllocPitch_v2, allocate_pitch),
    STAND(cuMemAllocManaged, allocate_managed),
    STANDS(cuMemAllocAsync, _ptsz, allocate_async),
    STANDS(cuMemAllocFromPoolAsync, _ptsz, allocate_from_pool),
    STAND(cuMemAllocHost_v2, allocate_host),
    STAND(cuMemHostAlloc, allocate_host),
    STAND(cuMemHostRegister_v2, register_host),
    STAND(cuMemFree_v2, release),
    STAND(cuMemFreeHost, release_host),
    STAND(cuMemHostUnregister, release_host),
    STANDS(cuMemFreeAsync, _ptsz, release_async),
    STAND(cuMemMap, map),
    STAND(cuMemUnmap, unmap),
    STANDS(cuLaunchKernel, _ptsz, launch),
    STANDS(cuLaunchCooperativeKernel, _ptsz, launch),
    STANDS(cuLaunchKernelEx, _ptsz, launch_ex),
    STANDS(cuLaunchHostFunc, _ptsz, host_function),
    STAND_COPIES(cuMemcpy, _ptds, any),
    STAND_COPIES(cuMemcpyAsync, _ptsz, any),
    STAND_COPIES(cuMemcpyHtoD_v2, _ptds, to_device),
    STAND_COPIES(cuMemcpyHtoDAsync_v2, _ptsz, to_device),
    STAND_COPIES(cuMemcpyDtoH_v2, _ptds, to_host),
    STAND_COPIES(cuMemcpyDtoHAsync_v2, _ptsz, to_host),
    STAND_COPIES(cuMemcpyDtoD_v2, _ptds, on_device),
    STAND_COPIES(cuMemcpyDtoDAsync_v2, _ptsz, on_device),
    STANDS(cuMemcpyPeer, _ptds, copy_peer),
    STANDS(cuMemcpyPeerAsync, _ptsz, copy_peer),
    STANDS(cuMemcpy2D_v2, _ptds, copy_described),
    STANDS(cuMemcpy2DUnaligned_v2, _ptds, copy_described),
    STANDS(cuMemcpy2DAsync_v2, _ptsz, copy_described),
    STANDS(cuMemcpy3D_v2, _ptds, copy_described),
    STANDS(cuMemcpy3DAsync_v2, _ptsz, copy_described),
    STAND_FILLS(cuMemsetD8_v2, _ptds, fill, 1),
    STAND_FILLS(cuMemsetD16_v2, _ptds, fill, 2),
    STAND_FILLS(cuMemsetD32_v2, _ptds, fill, 4),
    STAND_FILLS(cuMemsetD8Async, _ptsz, fill, 1),
    STAND_FILLS(cuMemsetD16Async, _ptsz, fill, 2),
    STAND_FILLS(cuMemsetD32Async, _ptsz, fill, 4),
    STAND_FILLS(cuMemsetD2D8_v2, _ptds, fill_rows, 1),
    STAND_FILLS(cuMemsetD2D16_v2, _ptds, fill_rows, 2),
    STAND_FILLS(cuMemsetD2D32_v2, _ptds, fill_rows, 4),
    STAND_FILLS(cuMemsetD2D8Async, _ptsz, fill_rows, 1),
    STAND_FILLS(cuMemsetD2D16Async, _ptsz, fill_rows, 2),
    STAND_FILLS(cuMemsetD2D32Async, _ptsz, fill_rows, 4),
    STAND(cuGraphInstantiate, instantiate),
    STAND(cuGraphInstantiate_v2, instantiate),
    STAND(cuGraphInstantiateWithFlags, instantiate),
    STAND(cuGraphInstantiateWithParams, instantiate),
    STAND(cuGraphInstantiateWithParams_ptsz, instantiate),
    STAND(cuGraphExecUpdate, update),
    STAND(cuGraphExecUpdate_v2, update),
    STAND(cuGraphExecKernelNodeSetParams, change_node),
    STAND(cuGraphExecKernelNodeSetParams_v2, change_node),
    STAND(cuGraphExecChildGraphNodeSetParams, change_child),
    STAND(cuGraphExecMemcpyNodeSetParams, change_copy_or_fill),
    STAND(cuGraphExecMemsetNodeSetParams, change_copy_or_fill),
    STANDS(cuGraphLaunch, _ptsz, launch_graph),
    STAND(cuGraphExecDestroy, end_graph),
    STANDS(cuEventRecord, _ptsz, record_event),
    STANDS(cuEventRecordWithFlags, _ptsz, record_event),
    STANDS(cuStreamWaitEvent, _ptsz, await_event),
    STAND(cuEventDestroy, end_event),
    STAND(cuEventDestroy_v2, end_event),
    STAND(cuEventSynchronize, synchronize_event),
    STANDS(cuStreamSynchronize, _ptsz, synchronize_stream),
    STAND(cuCtxSynchronize, synchronize),
    STAND(cuCtxSynchronize_v2, synchronize),
    STAND(cuStreamDestroy, end_stream),
    STAND(cuStreamDestroy_v2, end_stream),
    STAND(cuProfilerStart, mark<0>),
    STAND(cuProfilerStop, mark<1>),
    STAND(cuModuleUnload, unload),
    STAND(cuLibraryUnload, unload),
    STAND(cuCtxDestroy, end_context),
    STAND(cuCtxDestroy_v2, end_context),
    STAND(cuDevicePrimaryCtxRelease, end_context),
    STAND(cuDevicePrimaryCtxRelease_v2, end_context),
    STAND(cuDevicePrimaryCtxReset, end_context),
    STAND(cuDevicePrimaryCtxReset_v2, end_context),
};

void at_end()
{
    recorder *const to = active.exchange(nullptr);
    if (to == nullptr)
        return;
    if (proved != nullptr)
        proved->leave();
    if (!to->finish())
        return;
    if (const int error = file->failed(); error != 0)
        say("EMUV_RECORD=%s: %s: the tape ends there", file->path(),
            std::strerror(error));
}

void tell_about(recorder &to)
{
    char text[512] = "";
    const ssize_t length = readlink("/proc/self/exe", text, sizeof text - 1);
    if (length > 0) {
        text[length] = '\0';
        const char *const slash = std::strrchr(text, '/');
        to.about("program", slash != nullptr ? slash + 1 : text);
    }
    if (EMUV_REAL(cuDeviceGetName)(text, sizeof text, 0) == CUDA_SUCCESS)
        to.about("card", text);
    std::size_t bytes = 0;
    if (EMUV_REAL(cuDeviceTotalMem_v2)(&bytes, 0) == CUDA_SUCCESS) {
        std::snprintf(text, sizeof text, "%zu", bytes);
        to.about("card_bytes", text);
    }
    int number = 0;
    if (EMUV_REAL(cuDriverGetVersion)(&number) == CUDA_SUCCESS) {
        std::snprintf(text, sizeof text, "%d.%d", number / 1000,
                      number % 1000 / 10);
        to.about("cuda", text);
    }
}

} // namespace

bool start_recording(const settings &asked, const driver &driver_calls,
                     proofs *proving)
{
    const char *const path = asked.record_path;
    file = new tape_writer;
    if (const int error = file->open(path); error != 0) {
        say("EMUV_RECORD=%s: %s", path, std::strerror(error));
        return false;
    }
    if (std::strcmp(file->path(), path) != 0)
        say("EMUV_RECORD=%s: another process's tape is there; this one's is %s",
            path, file->path());
    auto *const graphs = new graph_calls;
#define EMUV_GRAPH_FILL(name)                                                  \
    graphs->name = reinterpret_cast<decltype(graphs->name)>(                   \
        emuv_resolve(static_cast<unsigned>(symbol::name)));
    EMUV_GRAPH_CALLS(EMUV_GRAPH_FILL)
#undef EMUV_GRAPH_FILL
    calls = &driver_calls;
    proved = proving;
    if (proving != nullptr)
        kernels = new known_kernels(asked.trust, *new trace, nullptr, proving);
    first = new recorder(*calls, *graphs, *file,
                         kernels != nullptr ? read_launch : nullptr);
    tell_about(*first);
    for (const stand &each : stands) {
        if (real_address(each.name) == nullptr)
            continue;
        const auto at = static_cast<std::size_t>(each.which);
        reals[at] = emuv_resolve(static_cast<unsigned>(each.which));
        __atomic_store_n(&emuv_table[at], each.ours, __ATOMIC_RELEASE);
    }
    static bool registered;
    if (!registered)
        std::atexit(at_end);
    registered = true;
    active.store(first, std::memory_order_release);
    return true;
}

known_kernels *recorded_kernels()
{
    return active.load(std::memory_order_acquire) != nullptr ? kernels
                                                             : nullptr;
}

void record_part(CUdeviceptr at, std::int64_t bytes)
{
    recorder *const to = active.load(std::memory_order_acquire);
    if (to == nullptr)
        return;
    if (bytes > 0)
        to->handed_out(at, static_cast<std::uint64_t>(bytes));
    else
        to->taken_back(at);
}

void stop_recording_after_fork()
{
    if (active.exchange(nullptr) != nullptr)
        file->close_after_fork();
}

} // namespace emuv::cuda
