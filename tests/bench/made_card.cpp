// SPDX-License-Identifier: GPL-2.0-or-later
// A made-up card: copies, kernels and mappings last as long as on a real one.
#include "made_card.hpp"

#include "idle_driver.hpp"

#include <cstdlib>

using namespace emuv::cuda;

namespace bench {

card_costs costs;

card *the;

namespace {

CUresult copy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes,
              CUstream stream)
{
    const std::lock_guard guard(the->lock);
    card::piece &source = the->at(from);
    card::piece &target = the->at(to);
    target.version = source.version;
    const std::uint64_t now = now_ns();
    std::uint64_t &engine = target.ram ? the->leaving_until : the->coming_until;
    const std::uint64_t other =
        target.ram ? the->coming_until : the->leaving_until;
    const std::uint64_t start = std::max({now, engine, the->streams[stream]});
    const std::uint64_t rate =
        target.ram
            ? (other > start ? costs.link_out_beside : costs.link_out_alone)
            : (other > start ? costs.link_in_beside : costs.link_in_alone);
    engine = the->streams[stream] = start + bytes * 1000 / rate;
    return CUDA_SUCCESS;
}

CUresult launch(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
                unsigned, unsigned, CUstream stream, void **parameters, void **)
{
    const std::lock_guard guard(the->lock);
    const CUdeviceptr at = *static_cast<CUdeviceptr *>(parameters[0]);
    const std::uint64_t count = *static_cast<std::uint64_t *>(parameters[1]);
    auto *const sum = reinterpret_cast<std::uint64_t *>(
        *static_cast<CUdeviceptr *>(parameters[3]));
    sum[0] = the->at(at).version;
    sum[1] = 0;
    std::uint64_t &free = the->streams[stream];
    free = the->gap(free) + count * 16 * 1000 / costs.digest;
    return CUDA_SUCCESS;
}

CUresult pool(CUmemoryPool *usual, CUdevice)
{
    *usual = reinterpret_cast<CUmemoryPool>(0x30);
    return CUDA_SUCCESS;
}

// Words of the device's own, by which copies take turns, cost nothing.
bool is_the_hosts(CUdeviceptr at)
{
    return at >> 40 != 0;
}

} // namespace

driver slow_driver()
{
    driver calls = idle_driver();
    // As on a card, where hints of so many bytes are heeded.
    calls.cuMemAddressReserve = [](CUdeviceptr *at, std::size_t bytes,
                                   std::size_t, CUdeviceptr hint,
                                   unsigned long long) {
        const std::lock_guard guard(the->lock);
        if (hint != 0 && hint % (32 * MiB) == 0) {
            *at = hint;
        } else {
            *at = the->next_address;
            the->next_address += bytes;
        }
        return CUDA_SUCCESS;
    };
    calls.cuMemCreate = [](CUmemGenericAllocationHandle *handle,
                           std::size_t bytes, const CUmemAllocationProp *of,
                           unsigned long long) {
        const bool ram = of->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
        if (the->has_begun()) {
            // Nothing is mapped meanwhile.
            const std::lock_guard turn(the->mapping);
            sleep_until(now_ns() +
                        (ram ? costs.make_room_ns * bytes / (64 * MiB)
                             : costs.make_frame_ns));
        }
        const std::lock_guard guard(the->lock);
        *handle = the->next++;
        the->pieces[*handle] = {ram, *handle << 32};
        the->room_bytes += ram ? bytes : 0;
        return CUDA_SUCCESS;
    };
    calls.cuMemRelease = [](CUmemGenericAllocationHandle) {
        if (the->has_begun())
            sleep_until(now_ns() + costs.drop_frame_ns);
        return CUDA_SUCCESS;
    };
    calls.cuMemMap = [](CUdeviceptr at, std::size_t, std::size_t,
                        CUmemGenericAllocationHandle handle,
                        unsigned long long) {
        const std::lock_guard guard(the->lock);
        the->mapped[at] = handle;
        return CUDA_SUCCESS;
    };
    calls.cuMemSetAccess = [](CUdeviceptr at, std::size_t bytes,
                              const CUmemAccessDesc *, std::size_t) {
        bool ram = false;
        {
            const std::lock_guard guard(the->lock);
            ram = the->at(at).ram;
        }
        if (the->has_begun())
            the->take(ram ? costs.map_ram : costs.map_vram, ram, bytes);
        return CUDA_SUCCESS;
    };
    calls.cuMemUnmap = [](CUdeviceptr at, std::size_t bytes) {
        bool ram = false;
        {
            const std::lock_guard guard(the->lock);
            ram = the->at(at).ram;
        }
        the->take(ram ? costs.unmap_ram : costs.unmap_vram, ram, bytes);
        return CUDA_SUCCESS;
    };
    calls.cuMemAlloc_v2 = [](CUdeviceptr *at, std::size_t) {
        const std::lock_guard guard(the->lock);
        *at = the->next++ << 12;
        return CUDA_SUCCESS;
    };
    calls.cuEventCreate = [](CUevent *event, unsigned) {
        const std::lock_guard guard(the->lock);
        *event = reinterpret_cast<CUevent>(the->next++);
        the->events[*event] = 0;
        return CUDA_SUCCESS;
    };
    calls.cuEventRecord = [](CUevent event, CUstream stream) {
        const std::lock_guard guard(the->lock);
        the->enqueue(stream, {.what = card::request::event, .recorded = event});
        return CUDA_SUCCESS;
    };
    calls.cuStreamWriteValue32_v2 = [](CUstream stream, CUdeviceptr at,
                                       cuuint32_t value, unsigned) {
        const std::lock_guard guard(the->lock);
        if (is_the_hosts(at))
            the->enqueue(stream, {.what = card::request::write,
                                  .at = reinterpret_cast<std::uint32_t *>(at),
                                  .value = value});
        return CUDA_SUCCESS;
    };
    calls.cuStreamWaitValue32_v2 = [](CUstream stream, CUdeviceptr at,
                                      cuuint32_t value, unsigned) {
        const std::lock_guard guard(the->lock);
        if (is_the_hosts(at))
            the->enqueue(stream, {.what = card::request::wait,
                                  .at = reinterpret_cast<std::uint32_t *>(at),
                                  .value = value});
        return CUDA_SUCCESS;
    };
    calls.cuEventQuery = [](CUevent event) {
        const std::lock_guard guard(the->lock);
        return the->events[event] <= now_ns() ? CUDA_SUCCESS
                                              : CUDA_ERROR_NOT_READY;
    };
    calls.cuStreamCreateWithPriority = [](CUstream *stream, unsigned, int) {
        const std::lock_guard guard(the->lock);
        *stream = reinterpret_cast<CUstream>(the->next++);
        return CUDA_SUCCESS;
    };
    calls.cuDeviceGetDefaultMemPool = pool;
    calls.cuDeviceGetMemPool = pool;
    calls.cuMemcpyAsync = copy;
    calls.cuLaunchKernel = launch;
    return calls;
}

served::served(card &which) : of_(which)
{
    const auto begin = [](void *self) -> void * {
        static_cast<served *>(self)->serve();
        return nullptr;
    };
    if (!thread_.start(begin, this))
        std::abort();
}

served::~served()
{
    {
        const std::lock_guard guard(of_.lock);
        ended_ = true;
        of_.to_serve.notify_all();
    }
    thread_.join();
}

// A word that the host writes is seen within some microseconds.
void served::serve()
{
    std::unique_lock lock(of_.lock);
    while (!ended_) {
        of_.go_on();
        const bool idle = of_.waiting.empty() && of_.writes.empty();
        of_.to_serve.wait_for(lock, idle ? UINT64_MAX : 5000);
    }
}

} // namespace bench
