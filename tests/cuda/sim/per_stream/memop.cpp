// SPDX-License-Identifier: GPL-2.0-or-later
// Values in memory that streams write and wait for.
#include "per_stream.hpp"

#include <chrono>
#include <thread>

namespace sim {
namespace {

template <typename T>
CUresult check(CUdeviceptr address)
{
    if (address % sizeof(T))
        return CUDA_ERROR_INVALID_VALUE;
    const mapping *m = the().space.find(address);
    return m && address + sizeof(T) <= m->end() ? CUDA_SUCCESS
                                                : CUDA_ERROR_INVALID_VALUE;
}

template <typename T>
CUresult write(stream &on, CUdeviceptr address, T value)
{
    if (CUresult r = check<T>(address))
        return r;
    operation op;
    op.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
    op.run = [address, value] {
        __atomic_store_n(reinterpret_cast<T *>(address), value,
                         __ATOMIC_RELEASE);
    };
    return submit(on, std::move(op));
}

template <typename T>
bool holds(T now, T value, unsigned flags)
{
    using Signed = std::make_signed_t<T>;
    switch (flags & 3) {
    case CU_STREAM_WAIT_VALUE_EQ:
        return now == value;
    case CU_STREAM_WAIT_VALUE_AND:
        return (now & value) != 0;
    case CU_STREAM_WAIT_VALUE_NOR:
        return static_cast<T>(~(now | value)) != 0;
    default:
        return static_cast<Signed>(static_cast<T>(now - value)) >= 0;
    }
}

template <typename T>
CUresult await(stream &on, CUdeviceptr address, T value, unsigned flags)
{
    if (CUresult r = check<T>(address))
        return r;
    operation op;
    op.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
    const std::atomic<bool> *closing = &on.owner->closing;
    op.run = [=] {
        const auto *at = reinterpret_cast<const T *>(address);
        while (!*closing &&
               !holds(__atomic_load_n(at, __ATOMIC_ACQUIRE), value, flags))
            std::this_thread::sleep_for(std::chrono::microseconds(20));
    };
    return submit(on, std::move(op));
}

} // namespace
} // namespace sim

using namespace sim;

#define SIM_ON_STREAM(handle)                                                  \
    SIM_ENTER(context);                                                        \
    auto on = resolve(*entered.current, handle, per_thread);                   \
    if (!on)                                                                   \
    return CUDA_ERROR_INVALID_HANDLE

CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr addr,
                              cuuint32_t value, unsigned)
{
    SIM_ON_STREAM(stream);
    return write(*on, addr, value);
}

CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr addr,
                              cuuint64_t value, unsigned)
{
    SIM_ON_STREAM(stream);
    return write(*on, addr, value);
}

CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr addr,
                             cuuint32_t value, unsigned flags)
{
    SIM_ON_STREAM(stream);
    return await(*on, addr, value, flags);
}

CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr addr,
                             cuuint64_t value, unsigned flags)
{
    SIM_ON_STREAM(stream);
    return await(*on, addr, value, flags);
}

CUresult cuStreamBatchMemOp(CUstream stream, unsigned count,
                            CUstreamBatchMemOpParams *paramArray, unsigned)
{
    SIM_ON_STREAM(stream);
    if (!paramArray || count == 0 || count > 256)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; ++i) {
        const auto &p = paramArray[i];
        CUresult r = CUDA_SUCCESS;
        switch (p.operation) {
        case CU_STREAM_MEM_OP_WRITE_VALUE_32:
            r = write(*on, p.writeValue.address, p.writeValue.value);
            break;
        case CU_STREAM_MEM_OP_WRITE_VALUE_64:
            r = write(*on, p.writeValue.address, p.writeValue.value64);
            break;
        case CU_STREAM_MEM_OP_WAIT_VALUE_32:
            r = await(*on, p.waitValue.address, p.waitValue.value,
                      p.waitValue.flags);
            break;
        case CU_STREAM_MEM_OP_WAIT_VALUE_64:
            r = await(*on, p.waitValue.address, p.waitValue.value64,
                      p.waitValue.flags);
            break;
        case CU_STREAM_MEM_OP_BARRIER:
        case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
            break;
        default:
            r = CUDA_ERROR_INVALID_VALUE;
        }
        if (r)
            return r;
    }
    return CUDA_SUCCESS;
}
