// SPDX-License-Identifier: GPL-2.0-or-later
// The entry points of copies and fills, thin over copy.hpp.
#include "../copy.hpp"

#include "../array.hpp"
#include "per_stream.hpp"

#include <cstdio>
#include <cstdlib>

using namespace sim;

namespace {

std::uintptr_t at(const void *p)
{
    return reinterpret_cast<std::uintptr_t>(p);
}

CUresult line(call &entered, CUstream stream, bool synchronous,
              std::uintptr_t dst, side dst_side, std::uintptr_t src,
              side src_side, std::size_t bytes)
{
    return copy(entered, resolve(*entered.current, stream, per_thread),
                block_copy::line(dst, dst_side, src, src_side, bytes),
                synchronous);
}

template <typename T>
CUresult block(call &entered, CUstream stream, bool synchronous, const T *in)
{
    block_copy what;
    if (CUresult r = from_api(in, what))
        return r;
    return copy(entered, resolve(*entered.current, stream, per_thread), what,
                synchronous);
}

CUresult fill_of(call &entered, CUstream stream, bool synchronous,
                 CUdeviceptr dst, std::size_t pitch, unsigned value,
                 unsigned element, std::size_t width, std::size_t height)
{
    return set(entered, resolve(*entered.current, stream, per_thread),
               {dst, pitch, value, element, width, height}, synchronous);
}

// A place in an array, counted as one line.
CUresult in_array(CUarray handle, std::size_t offset, std::size_t bytes,
                  std::uintptr_t &out)
{
    auto found = the().arrays.find(handle);
    if (!found)
        return CUDA_ERROR_INVALID_HANDLE;
    if (offset + bytes > found->bytes())
        return CUDA_ERROR_INVALID_VALUE;
    out = found->base + offset;
    return CUDA_SUCCESS;
}

// As the driver does (580.159), with a null pointer of its own.
void no_handles_of_system_ram(std::uintptr_t at)
{
    const mapping *m = the().space.find(at);
    if (m == nullptr || !m->memory || m->memory->on_device())
        return;
    std::fputs("simulated CUDA driver: a copy between devices, of a handle in "
               "system RAM\n",
               stderr);
    std::abort();
}

// Each side of a copy between contexts is reached by its own.
CUresult between(call &entered, CUstream stream, bool synchronous,
                 block_copy what, CUcontext dst_context, CUcontext src_context)
{
    auto dst = the().contexts.find(dst_context);
    auto src = the().contexts.find(src_context);
    if (!dst || !src)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (&dst->dev != &src->dev) {
        no_handles_of_system_ram(what.dst);
        no_handles_of_system_ram(what.src);
    }
    what.dst_owner = dst.get();
    what.src_owner = src.get();
    return copy(entered, resolve(*entered.current, stream, per_thread), what,
                synchronous);
}

} // namespace

CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t n)
{
    SIM_ENTER(context);
    return line(entered, nullptr, true, dst, side::any, src, side::any, n);
}

CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t n,
                       CUstream stream)
{
    SIM_ENTER(context);
    return line(entered, stream, false, dst, side::any, src, side::any, n);
}

CUresult cuMemcpyHtoD(CUdeviceptr dst, const void *src, size_t n)
{
    SIM_ENTER(context);
    return line(entered, nullptr, true, dst, side::device, at(src), side::host,
                n);
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr dst, const void *src, size_t n,
                           CUstream stream)
{
    SIM_ENTER(context);
    return line(entered, stream, false, dst, side::device, at(src), side::host,
                n);
}

CUresult cuMemcpyDtoH(void *dst, CUdeviceptr src, size_t n)
{
    SIM_ENTER(context);
    return line(entered, nullptr, true, at(dst), side::host, src, side::device,
                n);
}

CUresult cuMemcpyDtoHAsync(void *dst, CUdeviceptr src, size_t n,
                           CUstream stream)
{
    SIM_ENTER(context);
    return line(entered, stream, false, at(dst), side::host, src, side::device,
                n);
}

CUresult cuMemcpyDtoD(CUdeviceptr dst, CUdeviceptr src, size_t n)
{
    SIM_ENTER(context);
    return line(entered, nullptr, true, dst, side::device, src, side::device,
                n);
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr dst, CUdeviceptr src, size_t n,
                           CUstream stream)
{
    SIM_ENTER(context);
    return line(entered, stream, false, dst, side::device, src, side::device,
                n);
}

CUresult cuMemcpyPeer(CUdeviceptr dst, CUcontext dstContext, CUdeviceptr src,
                      CUcontext srcContext, size_t n)
{
    SIM_ENTER(context);
    return between(entered, nullptr, true,
                   block_copy::line(dst, side::device, src, side::device, n),
                   dstContext, srcContext);
}

CUresult cuMemcpyPeerAsync(CUdeviceptr dst, CUcontext dstContext,
                           CUdeviceptr src, CUcontext srcContext, size_t n,
                           CUstream stream)
{
    SIM_ENTER(context);
    return between(entered, stream, false,
                   block_copy::line(dst, side::device, src, side::device, n),
                   dstContext, srcContext);
}

CUresult cuMemcpyDtoA(CUarray dst, size_t offset, CUdeviceptr src, size_t n)
{
    SIM_ENTER(context);
    std::uintptr_t to = 0;
    if (CUresult r = in_array(dst, offset, n, to))
        return r;
    return line(entered, nullptr, true, to, side::device, src, side::device, n);
}

CUresult cuMemcpyAtoD(CUdeviceptr dst, CUarray src, size_t offset, size_t n)
{
    SIM_ENTER(context);
    std::uintptr_t from = 0;
    if (CUresult r = in_array(src, offset, n, from))
        return r;
    return line(entered, nullptr, true, dst, side::device, from, side::device,
                n);
}

CUresult cuMemcpyHtoA(CUarray dst, size_t offset, const void *src, size_t n)
{
    SIM_ENTER(context);
    std::uintptr_t to = 0;
    if (CUresult r = in_array(dst, offset, n, to))
        return r;
    return line(entered, nullptr, true, to, side::device, at(src), side::host,
                n);
}

CUresult cuMemcpyHtoAAsync(CUarray dst, size_t offset, const void *src,
                           size_t n, CUstream stream)
{
    SIM_ENTER(context);
    std::uintptr_t to = 0;
    if (CUresult r = in_array(dst, offset, n, to))
        return r;
    return line(entered, stream, false, to, side::device, at(src), side::host,
                n);
}

CUresult cuMemcpyAtoH(void *dst, CUarray src, size_t offset, size_t n)
{
    SIM_ENTER(context);
    std::uintptr_t from = 0;
    if (CUresult r = in_array(src, offset, n, from))
        return r;
    return line(entered, nullptr, true, at(dst), side::host, from, side::device,
                n);
}

CUresult cuMemcpyAtoHAsync(void *dst, CUarray src, size_t offset, size_t n,
                           CUstream stream)
{
    SIM_ENTER(context);
    std::uintptr_t from = 0;
    if (CUresult r = in_array(src, offset, n, from))
        return r;
    return line(entered, stream, false, at(dst), side::host, from, side::device,
                n);
}

CUresult cuMemcpyAtoA(CUarray dst, size_t dst_offset, CUarray src,
                      size_t src_offset, size_t n)
{
    SIM_ENTER(context);
    std::uintptr_t to = 0, from = 0;
    if (CUresult r = in_array(dst, dst_offset, n, to))
        return r;
    if (CUresult r = in_array(src, src_offset, n, from))
        return r;
    return line(entered, nullptr, true, to, side::device, from, side::device,
                n);
}

CUresult cuMemcpy2D(const CUDA_MEMCPY2D *pCopy)
{
    SIM_ENTER(context);
    return block(entered, nullptr, true, pCopy);
}

CUresult cuMemcpy2DUnaligned(const CUDA_MEMCPY2D *pCopy)
{
    SIM_ENTER(context);
    return block(entered, nullptr, true, pCopy);
}

CUresult cuMemcpy2DAsync(const CUDA_MEMCPY2D *pCopy, CUstream stream)
{
    SIM_ENTER(context);
    return block(entered, stream, false, pCopy);
}

CUresult cuMemcpy3D(const CUDA_MEMCPY3D *pCopy)
{
    SIM_ENTER(context);
    return block(entered, nullptr, true, pCopy);
}

CUresult cuMemcpy3DAsync(const CUDA_MEMCPY3D *pCopy, CUstream stream)
{
    SIM_ENTER(context);
    return block(entered, stream, false, pCopy);
}

CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER *pCopy)
{
    SIM_ENTER(context);
    block_copy what;
    if (CUresult r = from_api(pCopy, what))
        return r;
    return between(entered, nullptr, true, what, pCopy->dstContext,
                   pCopy->srcContext);
}

CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *pCopy, CUstream stream)
{
    SIM_ENTER(context);
    block_copy what;
    if (CUresult r = from_api(pCopy, what))
        return r;
    return between(entered, stream, false, what, pCopy->dstContext,
                   pCopy->srcContext);
}

CUresult cuMemsetD8(CUdeviceptr dst, unsigned char value, size_t n)
{
    SIM_ENTER(context);
    return fill_of(entered, nullptr, true, dst, 0, value, 1, n, 1);
}

CUresult cuMemsetD16(CUdeviceptr dst, unsigned short value, size_t n)
{
    SIM_ENTER(context);
    return fill_of(entered, nullptr, true, dst, 0, value, 2, n, 1);
}

CUresult cuMemsetD32(CUdeviceptr dst, unsigned value, size_t n)
{
    SIM_ENTER(context);
    return fill_of(entered, nullptr, true, dst, 0, value, 4, n, 1);
}

CUresult cuMemsetD2D8(CUdeviceptr dst, size_t pitch, unsigned char value,
                      size_t width, size_t height)
{
    SIM_ENTER(context);
    return fill_of(entered, nullptr, true, dst, pitch, value, 1, width, height);
}

CUresult cuMemsetD2D16(CUdeviceptr dst, size_t pitch, unsigned short value,
                       size_t width, size_t height)
{
    SIM_ENTER(context);
    return fill_of(entered, nullptr, true, dst, pitch, value, 2, width, height);
}

CUresult cuMemsetD2D32(CUdeviceptr dst, size_t pitch, unsigned value,
                       size_t width, size_t height)
{
    SIM_ENTER(context);
    return fill_of(entered, nullptr, true, dst, pitch, value, 4, width, height);
}

CUresult cuMemsetD8Async(CUdeviceptr dst, unsigned char value, size_t n,
                         CUstream stream)
{
    SIM_ENTER(context);
    return fill_of(entered, stream, false, dst, 0, value, 1, n, 1);
}

CUresult cuMemsetD16Async(CUdeviceptr dst, unsigned short value, size_t n,
                          CUstream stream)
{
    SIM_ENTER(context);
    return fill_of(entered, stream, false, dst, 0, value, 2, n, 1);
}

CUresult cuMemsetD32Async(CUdeviceptr dst, unsigned value, size_t n,
                          CUstream stream)
{
    SIM_ENTER(context);
    return fill_of(entered, stream, false, dst, 0, value, 4, n, 1);
}

CUresult cuMemsetD2D8Async(CUdeviceptr dst, size_t pitch, unsigned char value,
                           size_t width, size_t height, CUstream stream)
{
    SIM_ENTER(context);
    return fill_of(entered, stream, false, dst, pitch, value, 1, width, height);
}

CUresult cuMemsetD2D16Async(CUdeviceptr dst, size_t pitch, unsigned short value,
                            size_t width, size_t height, CUstream stream)
{
    SIM_ENTER(context);
    return fill_of(entered, stream, false, dst, pitch, value, 2, width, height);
}

CUresult cuMemsetD2D32Async(CUdeviceptr dst, size_t pitch, unsigned value,
                            size_t width, size_t height, CUstream stream)
{
    SIM_ENTER(context);
    return fill_of(entered, stream, false, dst, pitch, value, 4, width, height);
}

// Copies in batches: if one is refused, none of them begins.

namespace {

CUresult run_batch(call &entered, CUstream stream,
                   const std::vector<block_copy> &copies)
{
    auto on = resolve(*entered.current, stream, per_thread);
    if (!on)
        return CUDA_ERROR_INVALID_HANDLE;
    if (on->legacy)
        return CUDA_ERROR_INVALID_VALUE;
    for (const block_copy &one : copies) {
        operation op;
        bool now = false;
        if (CUresult r = make(*on->owner, one, false, op, now))
            return r;
    }
    for (const block_copy &one : copies)
        if (CUresult r = copy(entered, on, one, false))
            return r;
    return CUDA_SUCCESS;
}

} // namespace

CUresult cuMemcpyBatchAsync(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes,
                            size_t count, CUmemcpyAttributes *attrs,
                            size_t *attrsIdxs, size_t numAttrs, CUstream stream)
{
    SIM_ENTER(context);
    if (!dsts || !srcs || !sizes || !count || !attrs || !attrsIdxs ||
        !numAttrs || numAttrs > count || attrsIdxs[0] != 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (std::size_t i = 0; i < numAttrs; ++i)
        if (attrsIdxs[i] >= count || (i && attrsIdxs[i] <= attrsIdxs[i - 1]) ||
            attrs[i].srcAccessOrder < CU_MEMCPY_SRC_ACCESS_ORDER_STREAM ||
            attrs[i].srcAccessOrder > CU_MEMCPY_SRC_ACCESS_ORDER_ANY)
            return CUDA_ERROR_INVALID_VALUE;
    std::vector<block_copy> copies;
    for (std::size_t i = 0; i < count; ++i)
        copies.push_back(
            block_copy::line(dsts[i], side::any, srcs[i], side::any, sizes[i]));
    return run_batch(entered, stream, copies);
}

CUresult cuMemcpy3DBatchAsync(size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList,
                              unsigned long long flags, CUstream stream)
{
    SIM_ENTER(context);
    if (!numOps || !opList || flags)
        return CUDA_ERROR_INVALID_VALUE;
    std::vector<block_copy> copies(numOps);
    for (std::size_t i = 0; i < numOps; ++i)
        if (CUresult r = from_api(opList[i], copies[i]))
            return r;
    return run_batch(entered, stream, copies);
}
