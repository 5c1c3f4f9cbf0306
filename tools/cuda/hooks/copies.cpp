// SPDX-License-Identifier: LGPL-2.1-or-later
// The driver's copies and fills. The driver refuses those that cross from
// handles to registered pages in one allocation; these do them in parts.
#include "hooks/parts.hpp"
#include "hooks/watch.hpp"

#include <algorithm>
#include <vector>

using namespace emuv::cuda;

namespace {

memory *seams()
{
    return with_seams(memory_if_ours());
}

template <typename Real>
CUresult linear(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, Real real)
{
    return in_line(seams(), to, from, bytes, real);
}

template <typename Copy, typename Real>
CUresult described(const Copy *asked, Real real)
{
    return as_described(seams(), asked, real);
}

template <typename Real>
CUresult fill(CUdeviceptr to, std::size_t pitch, std::size_t element,
              std::size_t width, std::size_t height, Real real)
{
    return as_filled(seams(), to, pitch, element, width, height, real);
}

// The contexts of a copy's two sides, if these are of different devices and the
// library has placed one of them. That side is open to its own device alone,
// and only a copy between contexts reaches it.
struct apart
{
    CUcontext to = nullptr;
    CUcontext from = nullptr;

    explicit operator bool() const { return to != nullptr && from != nullptr; }
};

bool find_device(const state &ours, CUdeviceptr at, int &device,
                 CUcontext &context, bool &placed)
{
    allocation_view view;
    if (ours.table->find(at, view) && view.context != nullptr) {
        device = view.device;
        context = view.context;
        placed = true;
        return true;
    }
    unsigned type = 0;
    const auto ask = ours.calls.cuPointerGetAttribute;
    return ask(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at) == CUDA_SUCCESS &&
           type == CU_MEMORYTYPE_DEVICE &&
           ask(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at) ==
               CUDA_SUCCESS &&
           ask(&context, CU_POINTER_ATTRIBUTE_CONTEXT, at) == CUDA_SUCCESS;
}

apart find_apart(CUdeviceptr to, CUdeviceptr from)
{
    const state *const ours = state_if_ours();
    apart found;
    int to_device = 0;
    int from_device = 0;
    bool placed = false;
    if (ours == nullptr || ours->devices < 2 ||
        !find_device(*ours, to, to_device, found.to, placed) ||
        !find_device(*ours, from, from_device, found.from, placed) || !placed ||
        to_device == from_device)
        return {};
    return found;
}

// A context that is current for a while.
class within
{
public:
    within(const driver &calls, CUcontext context) : calls_(calls)
    {
        result_ = calls_.cuCtxPushCurrent_v2(context);
    }
    within(const within &) = delete;
    within &operator=(const within &) = delete;
    ~within()
    {
        CUcontext popped = nullptr;
        if (result_ == CUDA_SUCCESS)
            calls_.cuCtxPopCurrent_v2(&popped);
    }
    CUresult result() const { return result_; }

private:
    const driver &calls_;
    CUresult result_;
};

// True if the driver (580) would end the program: it does for copies between
// devices with handles in system RAM.
bool goes_by_host(const state &ours, CUdeviceptr to, CUdeviceptr from)
{
    int devices[2] = {};
    CUcontext context = nullptr;
    bool placed = false;
    return ours.devices > 1 && ours.beyond->by_handle() &&
           (touches_ram(*ours.table, to) || touches_ram(*ours.table, from)) &&
           find_device(ours, to, devices[0], context, placed) &&
           find_device(ours, from, devices[1], context, placed) &&
           devices[0] != devices[1];
}

// The same by way of the program's memory, over when it returns.
CUresult by_host(const state &ours, CUdeviceptr to, CUcontext there,
                 CUdeviceptr from, CUcontext here, std::size_t bytes,
                 CUstream stream)
{
    if (is_capturing(ours.calls, stream))
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    CUresult result = EMUV_REAL(cuStreamSynchronize)(stream);
    std::vector<unsigned char> buffer(
        std::min(bytes, std::size_t{4} * chunk_bytes));
    for (std::size_t done = 0; done < bytes && result == CUDA_SUCCESS;
         done += buffer.size()) {
        const std::size_t some = std::min(bytes - done, buffer.size());
        {
            const within context(ours.calls, here);
            result = context.result();
            if (result == CUDA_SUCCESS)
                result = cuMemcpyDtoH_v2(buffer.data(), from + done, some);
        }
        const within context(ours.calls, there);
        if (result == CUDA_SUCCESS)
            result = context.result();
        if (result == CUDA_SUCCESS)
            result = cuMemcpyHtoD_v2(to + done, buffer.data(), some);
        // Which may return when the buffer has been read.
        if (result == CUDA_SUCCESS)
            result = EMUV_REAL(cuStreamSynchronize)(CU_STREAM_LEGACY);
    }
    return result;
}

// Between two contexts.
// @param stream  with the default streams named
template <typename Real>
CUresult between(CUdeviceptr to, CUcontext there, CUdeviceptr from,
                 CUcontext here, std::size_t bytes, CUstream stream, Real real)
{
    const state *const ours = state_if_ours();
    return ours != nullptr && goes_by_host(*ours, to, from)
               ? by_host(*ours, to, there, from, here, bytes, stream)
               : linear(to, from, bytes, real);
}

// The same of rows and planes.
template <typename Real>
CUresult between(const CUDA_MEMCPY3D_PEER *asked, CUstream stream, Real real)
{
    const state *const ours = state_if_ours();
    if (ours == nullptr || asked == nullptr)
        return described(asked, real);
    CUDA_MEMCPY3D_PEER copy = *asked;
    const copy_part whole{0, 0, 0, copy.WidthInBytes, copy.Height, copy.Depth};
    const copy_side to = side_of(destination_of(copy), whole);
    const copy_side from = side_of(source_of(copy), whole);
    if (to.at == 0 || from.at == 0 || !goes_by_host(*ours, to.at, from.at))
        return described(asked, real);
    CUresult result = CUDA_SUCCESS;
    for (std::size_t z = 0; z < copy.Depth; z++)
        for (std::size_t y = 0; y < copy.Height && result == CUDA_SUCCESS; y++)
            result = by_host(*ours, to.at + z * to.slice + y * to.pitch,
                             copy.dstContext,
                             from.at + z * from.slice + y * from.pitch,
                             copy.srcContext, copy.WidthInBytes, stream);
    return result;
}

const void *add(const void *at, std::size_t bytes)
{
    return static_cast<const char *>(at) + bytes;
}

void *add(void *at, std::size_t bytes)
{
    return static_cast<char *>(at) + bytes;
}

} // namespace

// Each of them twice, as in the driver: for the two kinds of default stream.

#define EMUV_COPY(name, peer)                                                  \
    CUresult name(CUdeviceptr to, CUdeviceptr from, size_t bytes)              \
    {                                                                          \
        if (const apart in = find_apart(to, from))                             \
            return peer(to, in.to, from, in.from, bytes);                      \
        return linear(to, from, bytes, [&](size_t at, size_t n) {              \
            return EMUV_FOLLOWED(name)(to + at, from + at, n);                 \
        });                                                                    \
    }
#define EMUV_COPY_ASYNC(name, peer)                                            \
    CUresult name(CUdeviceptr to, CUdeviceptr from, size_t bytes,              \
                  CUstream stream)                                             \
    {                                                                          \
        if (const apart in = find_apart(to, from))                             \
            return peer(to, in.to, from, in.from, bytes, stream);              \
        return linear(to, from, bytes, [&](size_t at, size_t n) {              \
            return EMUV_FOLLOWED(name)(to + at, from + at, n, stream);         \
        });                                                                    \
    }
EMUV_COPY(cuMemcpy, cuMemcpyPeer)
EMUV_COPY(cuMemcpy_ptds, cuMemcpyPeer_ptds)
EMUV_COPY(cuMemcpyDtoD_v2, cuMemcpyPeer)
EMUV_COPY(cuMemcpyDtoD_v2_ptds, cuMemcpyPeer_ptds)
EMUV_COPY_ASYNC(cuMemcpyAsync, cuMemcpyPeerAsync)
EMUV_COPY_ASYNC(cuMemcpyAsync_ptsz, cuMemcpyPeerAsync_ptsz)
EMUV_COPY_ASYNC(cuMemcpyDtoDAsync_v2, cuMemcpyPeerAsync)
EMUV_COPY_ASYNC(cuMemcpyDtoDAsync_v2_ptsz, cuMemcpyPeerAsync_ptsz)

#define EMUV_COPY_FROM_HOST(name)                                              \
    CUresult name(CUdeviceptr to, const void *from, size_t bytes)              \
    {                                                                          \
        return linear(to, 0, bytes, [&](size_t at, size_t n) {                 \
            return EMUV_FOLLOWED(name)(to + at, add(from, at), n);             \
        });                                                                    \
    }
#define EMUV_COPY_FROM_HOST_ASYNC(name)                                        \
    CUresult name(CUdeviceptr to, const void *from, size_t bytes,              \
                  CUstream stream)                                             \
    {                                                                          \
        return linear(to, 0, bytes, [&](size_t at, size_t n) {                 \
            return EMUV_FOLLOWED(name)(to + at, add(from, at), n, stream);     \
        });                                                                    \
    }
EMUV_COPY_FROM_HOST(cuMemcpyHtoD_v2)
EMUV_COPY_FROM_HOST(cuMemcpyHtoD_v2_ptds)
EMUV_COPY_FROM_HOST_ASYNC(cuMemcpyHtoDAsync_v2)
EMUV_COPY_FROM_HOST_ASYNC(cuMemcpyHtoDAsync_v2_ptsz)

#define EMUV_COPY_TO_HOST(name)                                                \
    CUresult name(void *to, CUdeviceptr from, size_t bytes)                    \
    {                                                                          \
        return linear(0, from, bytes, [&](size_t at, size_t n) {               \
            return EMUV_FOLLOWED(name)(add(to, at), from + at, n);             \
        });                                                                    \
    }
#define EMUV_COPY_TO_HOST_ASYNC(name)                                          \
    CUresult name(void *to, CUdeviceptr from, size_t bytes, CUstream stream)   \
    {                                                                          \
        return linear(0, from, bytes, [&](size_t at, size_t n) {               \
            return EMUV_FOLLOWED(name)(add(to, at), from + at, n, stream);     \
        });                                                                    \
    }
EMUV_COPY_TO_HOST(cuMemcpyDtoH_v2)
EMUV_COPY_TO_HOST(cuMemcpyDtoH_v2_ptds)
EMUV_COPY_TO_HOST_ASYNC(cuMemcpyDtoHAsync_v2)
EMUV_COPY_TO_HOST_ASYNC(cuMemcpyDtoHAsync_v2_ptsz)

#define EMUV_COPY_PEER(name, named)                                            \
    CUresult name(CUdeviceptr to, CUcontext there, CUdeviceptr from,           \
                  CUcontext here, size_t bytes)                                \
    {                                                                          \
        return between(to, there, from, here, bytes, named(nullptr),           \
                       [&](size_t at, size_t n) {                              \
                           return EMUV_FOLLOWED(name)(to + at, there,          \
                                                      from + at, here, n);     \
                       });                                                     \
    }
#define EMUV_COPY_PEER_ASYNC(name, named)                                      \
    CUresult name(CUdeviceptr to, CUcontext there, CUdeviceptr from,           \
                  CUcontext here, size_t bytes, CUstream stream)               \
    {                                                                          \
        return between(to, there, from, here, bytes, named(stream),            \
                       [&](size_t at, size_t n) {                              \
                           return EMUV_FOLLOWED(name)(                         \
                               to + at, there, from + at, here, n, stream);    \
                       });                                                     \
    }
EMUV_COPY_PEER(cuMemcpyPeer, legacy)
EMUV_COPY_PEER(cuMemcpyPeer_ptds, per_thread)
EMUV_COPY_PEER_ASYNC(cuMemcpyPeerAsync, legacy)
EMUV_COPY_PEER_ASYNC(cuMemcpyPeerAsync_ptsz, per_thread)

#define EMUV_COPY_TO_ARRAY(name)                                               \
    CUresult name(CUarray to, size_t offset, CUdeviceptr from, size_t bytes)   \
    {                                                                          \
        return linear(0, from, bytes, [&](size_t at, size_t n) {               \
            return EMUV_FOLLOWED(name)(to, offset + at, from + at, n);         \
        });                                                                    \
    }
#define EMUV_COPY_FROM_ARRAY(name)                                             \
    CUresult name(CUdeviceptr to, CUarray from, size_t offset, size_t bytes)   \
    {                                                                          \
        return linear(to, 0, bytes, [&](size_t at, size_t n) {                 \
            return EMUV_FOLLOWED(name)(to + at, from, offset + at, n);         \
        });                                                                    \
    }
EMUV_COPY_TO_ARRAY(cuMemcpyDtoA_v2)
EMUV_COPY_TO_ARRAY(cuMemcpyDtoA_v2_ptds)
EMUV_COPY_FROM_ARRAY(cuMemcpyAtoD_v2)
EMUV_COPY_FROM_ARRAY(cuMemcpyAtoD_v2_ptds)

#define EMUV_COPY_2D(name)                                                     \
    CUresult name(const CUDA_MEMCPY2D *copy)                                   \
    {                                                                          \
        return described(copy, [](const CUDA_MEMCPY2D *part) {                 \
            return EMUV_FOLLOWED(name)(part);                                  \
        });                                                                    \
    }
#define EMUV_COPY_2D_ASYNC(name)                                               \
    CUresult name(const CUDA_MEMCPY2D *copy, CUstream stream)                  \
    {                                                                          \
        return described(copy, [&](const CUDA_MEMCPY2D *part) {                \
            return EMUV_FOLLOWED(name)(part, stream);                          \
        });                                                                    \
    }
EMUV_COPY_2D(cuMemcpy2D_v2)
EMUV_COPY_2D(cuMemcpy2D_v2_ptds)
EMUV_COPY_2D(cuMemcpy2DUnaligned_v2)
EMUV_COPY_2D(cuMemcpy2DUnaligned_v2_ptds)
EMUV_COPY_2D_ASYNC(cuMemcpy2DAsync_v2)
EMUV_COPY_2D_ASYNC(cuMemcpy2DAsync_v2_ptsz)

#define EMUV_COPY_3D(name, type)                                               \
    CUresult name(const type *copy)                                            \
    {                                                                          \
        return described(                                                      \
            copy, [](const type *part) { return EMUV_FOLLOWED(name)(part); }); \
    }
#define EMUV_COPY_3D_ASYNC(name, type)                                         \
    CUresult name(const type *copy, CUstream stream)                           \
    {                                                                          \
        return described(copy, [&](const type *part) {                         \
            return EMUV_FOLLOWED(name)(part, stream);                          \
        });                                                                    \
    }
EMUV_COPY_3D(cuMemcpy3D_v2, CUDA_MEMCPY3D)
EMUV_COPY_3D(cuMemcpy3D_v2_ptds, CUDA_MEMCPY3D)
EMUV_COPY_3D_ASYNC(cuMemcpy3DAsync_v2, CUDA_MEMCPY3D)
EMUV_COPY_3D_ASYNC(cuMemcpy3DAsync_v2_ptsz, CUDA_MEMCPY3D)

#define EMUV_COPY_3D_PEER(name, named)                                         \
    CUresult name(const CUDA_MEMCPY3D_PEER *copy)                              \
    {                                                                          \
        return between(copy, named(nullptr),                                   \
                       [](const CUDA_MEMCPY3D_PEER *part) {                    \
                           return EMUV_FOLLOWED(name)(part);                   \
                       });                                                     \
    }
#define EMUV_COPY_3D_PEER_ASYNC(name, named)                                   \
    CUresult name(const CUDA_MEMCPY3D_PEER *copy, CUstream stream)             \
    {                                                                          \
        return between(copy, named(stream),                                    \
                       [&](const CUDA_MEMCPY3D_PEER *part) {                   \
                           return EMUV_FOLLOWED(name)(part, stream);           \
                       });                                                     \
    }
EMUV_COPY_3D_PEER(cuMemcpy3DPeer, legacy)
EMUV_COPY_3D_PEER(cuMemcpy3DPeer_ptds, per_thread)
EMUV_COPY_3D_PEER_ASYNC(cuMemcpy3DPeerAsync, legacy)
EMUV_COPY_3D_PEER_ASYNC(cuMemcpy3DPeerAsync_ptsz, per_thread)

#define EMUV_FILL(name, type)                                                  \
    CUresult name(CUdeviceptr to, type value, size_t count)                    \
    {                                                                          \
        return fill(to, 0, sizeof value, count, 1,                             \
                    [&](CUdeviceptr at, size_t n, size_t) {                    \
                        return EMUV_FOLLOWED(name)(at, value, n);              \
                    });                                                        \
    }
#define EMUV_FILL_ASYNC(name, type)                                            \
    CUresult name(CUdeviceptr to, type value, size_t count, CUstream stream)   \
    {                                                                          \
        return fill(to, 0, sizeof value, count, 1,                             \
                    [&](CUdeviceptr at, size_t n, size_t) {                    \
                        return EMUV_FOLLOWED(name)(at, value, n, stream);      \
                    });                                                        \
    }
EMUV_FILL(cuMemsetD8_v2, unsigned char)
EMUV_FILL(cuMemsetD8_v2_ptds, unsigned char)
EMUV_FILL(cuMemsetD16_v2, unsigned short)
EMUV_FILL(cuMemsetD16_v2_ptds, unsigned short)
EMUV_FILL(cuMemsetD32_v2, unsigned)
EMUV_FILL(cuMemsetD32_v2_ptds, unsigned)
EMUV_FILL_ASYNC(cuMemsetD8Async, unsigned char)
EMUV_FILL_ASYNC(cuMemsetD8Async_ptsz, unsigned char)
EMUV_FILL_ASYNC(cuMemsetD16Async, unsigned short)
EMUV_FILL_ASYNC(cuMemsetD16Async_ptsz, unsigned short)
EMUV_FILL_ASYNC(cuMemsetD32Async, unsigned)
EMUV_FILL_ASYNC(cuMemsetD32Async_ptsz, unsigned)

#define EMUV_FILL_2D(name, type)                                               \
    CUresult name(CUdeviceptr to, size_t pitch, type value, size_t width,      \
                  size_t height)                                               \
    {                                                                          \
        return fill(to, pitch, sizeof value, width, height,                    \
                    [&](CUdeviceptr at, size_t w, size_t h) {                  \
                        return EMUV_FOLLOWED(name)(at, pitch, value, w, h);    \
                    });                                                        \
    }
#define EMUV_FILL_2D_ASYNC(name, type)                                         \
    CUresult name(CUdeviceptr to, size_t pitch, type value, size_t width,      \
                  size_t height, CUstream stream)                              \
    {                                                                          \
        return fill(to, pitch, sizeof value, width, height,                    \
                    [&](CUdeviceptr at, size_t w, size_t h) {                  \
                        return EMUV_FOLLOWED(name)(at, pitch, value, w, h,     \
                                                   stream);                    \
                    });                                                        \
    }
EMUV_FILL_2D(cuMemsetD2D8_v2, unsigned char)
EMUV_FILL_2D(cuMemsetD2D8_v2_ptds, unsigned char)
EMUV_FILL_2D(cuMemsetD2D16_v2, unsigned short)
EMUV_FILL_2D(cuMemsetD2D16_v2_ptds, unsigned short)
EMUV_FILL_2D(cuMemsetD2D32_v2, unsigned)
EMUV_FILL_2D(cuMemsetD2D32_v2_ptds, unsigned)
EMUV_FILL_2D_ASYNC(cuMemsetD2D8Async, unsigned char)
EMUV_FILL_2D_ASYNC(cuMemsetD2D8Async_ptsz, unsigned char)
EMUV_FILL_2D_ASYNC(cuMemsetD2D16Async, unsigned short)
EMUV_FILL_2D_ASYNC(cuMemsetD2D16Async_ptsz, unsigned short)
EMUV_FILL_2D_ASYNC(cuMemsetD2D32Async, unsigned)
EMUV_FILL_2D_ASYNC(cuMemsetD2D32Async_ptsz, unsigned)
