// SPDX-License-Identifier: LGPL-2.1-or-later
// Work for the device whose arguments say all that it touches: copies, sets and
// waits. Other things that a stream waits for are here, too. One template
// stands for all of these functions.
#pragma once

#include "hooks/session.hpp"

#include <initializer_list>
#include <string_view>
#include <type_traits>

namespace emuv::cuda::watching {

// Tells what an argument says of the work: the addresses it has ...
template <typename T>
inline void add(work &, T)
{}
inline void add(work &out, CUdeviceptr address)
{
    out.add(address, true);
}
// The driver takes an address of the device's as the host's, too.
inline void add(work &out, const void *address)
{
    out.add(reinterpret_cast<CUdeviceptr>(address), true);
}
inline void add(work &out, void *address)
{
    out.add(reinterpret_cast<CUdeviceptr>(address), true);
}
template <typename Copy>
void add_both(work &out, const Copy *copy)
{
    if (copy == nullptr)
        return;
    if (copy->srcMemoryType != CU_MEMORYTYPE_HOST)
        out.add(copy->srcDevice, true);
    else
        add(out, copy->srcHost);
    if (copy->dstMemoryType != CU_MEMORYTYPE_HOST)
        out.add(copy->dstDevice, true);
    else
        add(out, copy->dstHost);
}
inline void add(work &out, const CUDA_MEMCPY2D *copy)
{
    add_both(out, copy);
}
inline void add(work &out, const CUDA_MEMCPY3D *copy)
{
    add_both(out, copy);
}
inline void add(work &out, const CUDA_MEMCPY3D_PEER *copy)
{
    add_both(out, copy);
}
// ... or that it has more than is looked at here.
inline void add(work &out, CUdeviceptr *)
{
    out.trusted = false;
}
inline void add(work &out, CUDA_MEMCPY3D_BATCH_OP *)
{
    out.trusted = false;
}
inline void add(work &out, CUmemDecompressParams *)
{
    out.trusted = false;
}
inline void add(work &out, CUstreamBatchMemOpParams *)
{
    out.trusted = false;
}
inline void add(work &out, CUgraphExec which)
{
    out.trusted = false;
    state *const ours = current_state();
    out.why = ours != nullptr ? ours->unrolled.why_whole(which) : nullptr;
}
inline void add(work &out, CUfunction)
{
    out.trusted = false;
}
inline void add(work &out, CUDA_LAUNCH_PARAMS *)
{
    out.trusted = false;
}

// The stream that the work runs in.
template <typename T>
void pick(CUstream &, T)
{}
inline void pick(CUstream &where, CUstream stream)
{
    if (stream != nullptr)
        where = stream;
}

// Bytes that are copied to the device may be addresses.
template <typename... Rest>
void from_host(const state &ours, CUdeviceptr, const void *words,
               std::size_t bytes, Rest...)
{
    ours.note_table(words, bytes);
}
// The driver finds out which side is whose.
template <typename... Rest>
void from_host(const state &ours, CUdeviceptr, CUdeviceptr words,
               std::size_t bytes, Rest...)
{
    allocation_view view;
    if (!ours.table->find(words, view))
        ours.note_table(reinterpret_cast<const void *>(words), bytes);
}

// The same of rows and planes.
template <typename Copy>
void from_rows(const state &ours, const Copy *copy)
{
    if (copy == nullptr || (copy->srcMemoryType != CU_MEMORYTYPE_HOST &&
                            copy->srcMemoryType != CU_MEMORYTYPE_UNIFIED))
        return;
    const CUdeviceptr words = copy->srcMemoryType == CU_MEMORYTYPE_HOST
                                  ? reinterpret_cast<CUdeviceptr>(copy->srcHost)
                                  : copy->srcDevice;
    allocation_view view;
    if (ours.table->find(words, view))
        return;
    std::size_t pitch = copy->srcPitch;
    if (pitch == 0)
        pitch = copy->srcXInBytes + copy->WidthInBytes;
    std::size_t planes = 1;
    std::size_t height = 0;
    std::size_t first = 0;
    if constexpr (requires { copy->Depth; }) {
        planes = copy->Depth;
        height =
            copy->srcHeight == 0 ? copy->srcY + copy->Height : copy->srcHeight;
        first = copy->srcZ;
    }
    for (std::size_t z = 0; z < planes; z++)
        ours.note_table(reinterpret_cast<const void *>(
                            words +
                            ((first + z) * height + copy->srcY) * pitch +
                            copy->srcXInBytes),
                        copy->WidthInBytes, pitch, copy->Height);
}
template <typename... Rest>
void from_host(const state &ours, const CUDA_MEMCPY2D *copy, Rest...)
{
    from_rows(ours, copy);
}
template <typename... Rest>
void from_host(const state &ours, const CUDA_MEMCPY3D *copy, Rest...)
{
    from_rows(ours, copy);
}
template <typename... Rest>
void from_host(const state &ours, const CUDA_MEMCPY3D_PEER *copy, Rest...)
{
    from_rows(ours, copy);
}

constexpr bool is_among(symbol which, std::initializer_list<symbol> these)
{
    for (const symbol each : these)
        if (each == which)
            return true;
    return false;
}

// No work of its own, but other work may have to wait for it.
constexpr bool only_waits(symbol which)
{
    return is_among(
        which, {symbol::cuLaunchHostFunc, symbol::cuLaunchHostFunc_ptsz,
                symbol::cuStreamAddCallback, symbol::cuStreamAddCallback_ptsz,
                symbol::cuStreamWaitEvent, symbol::cuStreamWaitEvent_ptsz,
                symbol::cuWaitExternalSemaphoresAsync,
                symbol::cuWaitExternalSemaphoresAsync_ptsz});
}

// Copies whose source may be the program's memory.
constexpr bool copies_from_host(symbol which)
{
    return is_among(which, {symbol::cuMemcpyHtoD_v2,
                            symbol::cuMemcpyHtoD_v2_ptds,
                            symbol::cuMemcpyHtoDAsync_v2,
                            symbol::cuMemcpyHtoDAsync_v2_ptsz,
                            symbol::cuMemcpy,
                            symbol::cuMemcpy_ptds,
                            symbol::cuMemcpyAsync,
                            symbol::cuMemcpyAsync_ptsz,
                            symbol::cuMemcpy2D_v2,
                            symbol::cuMemcpy2D_v2_ptds,
                            symbol::cuMemcpy2DUnaligned_v2,
                            symbol::cuMemcpy2DUnaligned_v2_ptds,
                            symbol::cuMemcpy2DAsync_v2,
                            symbol::cuMemcpy2DAsync_v2_ptsz,
                            symbol::cuMemcpy3D_v2,
                            symbol::cuMemcpy3D_v2_ptds,
                            symbol::cuMemcpy3DAsync_v2,
                            symbol::cuMemcpy3DAsync_v2_ptsz,
                            symbol::cuMemcpy3DPeer,
                            symbol::cuMemcpy3DPeer_ptds,
                            symbol::cuMemcpy3DPeerAsync,
                            symbol::cuMemcpy3DPeerAsync_ptsz});
}

template <symbol which, bool per_thread, typename Function>
struct watched;

template <symbol which, bool per_thread, typename... Arguments>
struct watched<which, per_thread, CUresult (*)(Arguments...)>
{
    static CUresult call(Arguments... arguments)
    {
        const entry ours;
        const auto real = [&] {
            return reinterpret_cast<CUresult (*)(Arguments...)>(target(which))(
                arguments...);
        };
        if constexpr (which == symbol::cuLaunchCooperativeKernelMultiDevice)
            if (ours)
                ours->fix_all("the program runs a kernel on several devices");
        if constexpr (only_waits(which)) {
            if (ours)
                ours->stream_waits();
            return real();
        }
        mover *const moves = ours ? ours.moving() : nullptr;
        if (!ours || ours->movers.empty())
            return real();
        if constexpr (copies_from_host(which))
            from_host(*ours.operator->(), arguments...);
        CUstream stream = per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
        (pick(stream, arguments), ...);
        const auto collect = [&](work &out) {
            out.what = static_cast<std::uint64_t>(which) + 1;
            out.trusted = true;
            (add(out, arguments), ...);
        };
        // A capture records work for the memory as it lies, and movers of
        // other devices hear nothing of this work.
        const bool later = is_capturing(ours->calls, stream);
        if (later || moves == nullptr || ours->movers.size() > 1) {
            work reached;
            collect(reached);
            for (std::uint32_t i = 0; i < reached.count; i++)
                ours->fix(reached.addresses[i], later ? nullptr : moves);
            // It may run on any device, whichever it is launched on.
            if constexpr ((std::is_same_v<Arguments, CUgraphExec> || ...))
                ours->fix_others(moves, "the program launches graphs, and "
                                        "memory of several devices moves");
        }
        return moves != nullptr ? moves->run(stream, collect, real) : real();
    }
};

/// True if a symbol's null stream is the calling thread's own.
constexpr bool is_per_thread(std::string_view symbol_name)
{
    return symbol_name.ends_with("_ptsz") || symbol_name.ends_with("_ptds");
}

} // namespace emuv::cuda::watching

/// The real function of a name as EMUV_REAL() has it, its work followed.
#define EMUV_FOLLOWED(name)                                                    \
    (::emuv::cuda::watching::watched<::emuv::cuda::symbol::name,               \
                                     ::emuv::cuda::watching::is_per_thread(    \
                                         #name),                               \
                                     decltype(&::name)>::call)
