// SPDX-License-Identifier: GPL-2.0-or-later
// Which calls of the driver wait while another thread's call waits for the
// device, and the device for the host. The mover makes calls while untrusted
// work waits at a barrier: one that waits there would wait for good. Needs no
// library of ours. Prints lines of "name value"; "waits" is what must be 0.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <cuda.h>

namespace {

using namespace std::chrono_literals;

constexpr std::size_t unit = std::size_t{2} << 20;

void check(CUresult result, const char *what)
{
    if (result == CUDA_SUCCESS)
        return;
    const char *name = nullptr;
    cuGetErrorName(result, &name);
    std::printf("failed %s: %s\n", what, name != nullptr ? name : "unknown");
    std::exit(1);
}
#define CHECK(call) check(call, #call)

CUcontext context;
CUmemAllocationProp properties;
CUmemAccessDesc both_ways;

// A stream whose work waits until open() is called.
class gate
{
public:
    gate()
    {
        void *word = nullptr;
        CHECK(cuMemHostAlloc(&word, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
        CHECK(cuMemHostGetDevicePointer(&seen_, word, 0));
        word_ = static_cast<unsigned *>(word);
        CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        CHECK(cuMemAlloc(&target, unit));
        CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
        CHECK(cuMemHostAlloc(&host, unit, 0));
        CHECK(cuMemAlloc(&spare, unit));
    }
    gate(const gate &) = delete;
    gate &operator=(const gate &) = delete;

    void close()
    {
        *word_ = 0;
        CHECK(cuStreamWaitValue32(stream, seen_, 1, CU_STREAM_WAIT_VALUE_GEQ));
        CHECK(cuMemsetD32Async(target, 7, unit / 4, stream));
        CHECK(cuEventRecord(event, stream));
    }
    void open() { *word_ = 1; }

    CUstream stream = nullptr;
    CUdeviceptr target = 0;
    CUdeviceptr spare = 0;
    CUevent event = nullptr;
    void *host = nullptr;

private:
    volatile unsigned *word_ = nullptr;
    CUdeviceptr seen_ = 0;
};

// Made beforehand, since only the call itself is measured.
struct parts
{
    CUdeviceptr mapped = 0;
    CUdeviceptr reserved = 0;
    CUdeviceptr empty = 0;
    CUmemGenericAllocationHandle handle = 0;
    CUmemGenericAllocationHandle under = 0;
    CUmemGenericAllocationHandle unused = 0;
    CUevent done = nullptr;
    CUevent fresh = nullptr;
    void *pages = nullptr;
    void *registered = nullptr;
    CUstream other = nullptr;
};

struct call
{
    const char *name;
    bool by_mover; // while work waits at a barrier
    std::function<CUresult(parts &)> make;
};

struct waiter
{
    const char *name;
    std::function<CUresult(gate &)> make;
};

parts prepare()
{
    parts made;
    for (CUdeviceptr *at : {&made.mapped, &made.reserved, &made.empty})
        CHECK(cuMemAddressReserve(at, unit, unit, 0, 0));
    for (auto *at : {&made.handle, &made.under, &made.unused})
        CHECK(cuMemCreate(at, unit, &properties, 0));
    CHECK(cuMemMap(made.mapped, unit, 0, made.under, 0));
    CHECK(cuMemSetAccess(made.mapped, unit, &both_ways, 1));
    CHECK(cuEventCreate(&made.done, CU_EVENT_DISABLE_TIMING));
    CHECK(cuStreamCreate(&made.other, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventRecord(made.done, made.other));
    CHECK(cuStreamSynchronize(made.other));
    made.pages = std::aligned_alloc(unit, unit);
    made.registered = std::aligned_alloc(unit, unit);
    std::memset(made.pages, 1, unit);
    std::memset(made.registered, 1, unit);
    CHECK(cuMemHostRegister(made.registered, unit, 0));
    return made;
}

// Runs in a thread of its own.
class runner
{
public:
    explicit runner(std::function<CUresult()> make)
        : thread_([this, make = std::move(make)] {
              cuCtxSetCurrent(context);
              const auto begun = std::chrono::steady_clock::now();
              result_ = make();
              took_ = std::chrono::duration<double, std::micro>(
                          std::chrono::steady_clock::now() - begun)
                          .count();
              done_.store(true);
          })
    {}
    bool ended_within(std::chrono::milliseconds most) const
    {
        const auto until = std::chrono::steady_clock::now() + most;
        while (!done_.load() && std::chrono::steady_clock::now() < until)
            std::this_thread::sleep_for(1ms);
        return done_.load();
    }
    void join() { thread_.join(); }
    CUresult result() const { return result_; }
    double took() const { return took_; }

private:
    std::atomic<bool> done_{false};
    CUresult result_ = CUDA_SUCCESS;
    double took_ = 0;
    std::thread thread_;
};

const std::vector<call> calls = {
    {"cuMemMap+cuMemSetAccess", true,
     [](parts &at) {
         const CUresult mapped = cuMemMap(at.reserved, unit, 0, at.handle, 0);
         return mapped != CUDA_SUCCESS
                    ? mapped
                    : cuMemSetAccess(at.reserved, unit, &both_ways, 1);
     }},
    {"cuMemUnmap", true, [](parts &at) { return cuMemUnmap(at.mapped, unit); }},
    {"cuMemCreate", true,
     [](parts &) {
         CUmemGenericAllocationHandle made = 0;
         return cuMemCreate(&made, unit, &properties, 0);
     }},
    {"cuMemRelease", true, [](parts &at) { return cuMemRelease(at.unused); }},
    {"cuMemAddressReserve", true,
     [](parts &) {
         CUdeviceptr made = 0;
         return cuMemAddressReserve(&made, unit, unit, 0, 0);
     }},
    {"cuMemAddressFree", true,
     [](parts &at) { return cuMemAddressFree(at.empty, unit); }},
    {"cuThreadExchangeStreamCaptureMode", true,
     [](parts &) {
         CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
         return cuThreadExchangeStreamCaptureMode(&mode);
     }},
    {"cuEventQuery", true, [](parts &at) { return cuEventQuery(at.done); }},
    {"cuStreamIsCapturing", true,
     [](parts &at) {
         CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
         return cuStreamIsCapturing(at.other, &status);
     }},
    {"cuMemHostRegister", false,
     [](parts &at) { return cuMemHostRegister(at.pages, unit, 0); }},
    {"cuMemHostUnregister", false,
     [](parts &at) { return cuMemHostUnregister(at.registered); }},
    {"cuEventCreate", false,
     [](parts &at) {
         return cuEventCreate(&at.fresh, CU_EVENT_DISABLE_TIMING);
     }},
    {"cuEventDestroy", false,
     [](parts &at) { return cuEventDestroy(at.done); }},
    {"cuEventRecord", false,
     [](parts &at) { return cuEventRecord(at.done, at.other); }},
    {"cuStreamWaitEvent", false,
     [](parts &at) { return cuStreamWaitEvent(at.other, at.done, 0); }},
};

const std::vector<waiter> waiters = {
    {"nothing", [](gate &) { return CUDA_SUCCESS; }},
    {"cuCtxSynchronize", [](gate &) { return cuCtxSynchronize(); }},
    {"cuStreamSynchronize",
     [](gate &at) { return cuStreamSynchronize(at.stream); }},
    {"cuEventSynchronize",
     [](gate &at) { return cuEventSynchronize(at.event); }},
    {"cuMemFree",
     [](gate &at) {
         const CUdeviceptr old = at.spare;
         at.spare = 0;
         return cuMemFree(old);
     }},
    {"cuMemFreeHost",
     [](gate &at) {
         void *const old = at.host;
         at.host = nullptr;
         return cuMemFreeHost(old);
     }},
    {"cuMemcpyDtoHAsync+sync",
     [](gate &at) {
         static char to[4096];
         cuMemcpyDtoHAsync(to, at.target, sizeof to, at.stream);
         return cuStreamSynchronize(at.stream);
     }},
};

} // namespace

int main()
{
    CUdevice device = 0;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device;
    both_ways.location = properties.location;
    both_ways.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;

    int waits = 0;
    int failures = 0;
    for (const waiter &program : waiters) {
        gate at;
        std::string held_up;
        double worst = 0;
        for (const call &asked : calls) {
            parts made = prepare();
            if (at.spare == 0)
                CHECK(cuMemAlloc(&at.spare, unit));
            if (at.host == nullptr)
                CHECK(cuMemHostAlloc(&at.host, unit, 0));
            at.close();
            runner theirs([&] { return program.make(at); });
            theirs.ended_within(30ms);
            runner ours([&] { return asked.make(made); });
            const bool goes_on = ours.ended_within(500ms);
            at.open();
            ours.join();
            theirs.join();
            CHECK(cuCtxSynchronize());
            if (ours.result() != CUDA_SUCCESS) {
                std::printf("failed %s beside %s: %d\n", asked.name,
                            program.name, static_cast<int>(ours.result()));
                ++failures;
            }
            if (goes_on)
                worst = std::max(worst, ours.took());
            else
                (held_up += held_up.empty() ? "" : ",") += asked.name;
            if (!goes_on && asked.by_mover)
                ++waits;
        }
        std::printf("beside_%s %s\n", program.name,
                    held_up.empty() ? "none" : held_up.c_str());
        std::printf("beside_%s_slowest_us %.0f\n", program.name, worst);
    }
    std::printf("waits %d\nfailures %d\n", waits, failures);
    return waits + failures == 0 ? 0 : 1;
}
