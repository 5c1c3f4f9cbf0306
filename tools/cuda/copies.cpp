// SPDX-License-Identifier: LGPL-2.1-or-later
// The driver's copies and fills. Where handles and registered pages meet in one
// allocation, it refuses to go across; these do it in parts.
#include "core/seam.hpp"
#include "watch.hpp"

using namespace emuv::cuda;

namespace {

// Calls @p real with a part of what is asked for, until all is done: with all
// of it at once, where no seam is in the way.
template <typename Real>
CUresult in_parts(const copy_side &to, const copy_side &from,
                  const copy_part &whole, Real real)
{
    memory *const held = memory_if_ours();
    if (held == nullptr || !held->has_seams() || whole.width == 0 ||
        whole.height == 0 || whole.depth == 0)
        return real(whole);
    const auto crosses = [&](const copy_side &side) {
        return side.at != 0 && held->crosses_seam(start_of(side, whole),
                                                  extent_of(side, whole));
    };
    if (!crosses(to) && !crosses(from))
        return real(whole);
    return cut_at_seams(
        to, from, whole, [&](CUdeviceptr at) { return held->seam_after(at); },
        real);
}

// ---- In one dimension

template <typename Real>
CUresult linear(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, Real real)
{
    copy_part whole;
    whole.width = bytes;
    return in_parts({to, 0, 0}, {from, 0, 0}, whole,
                    [&](const copy_part &part) {
                        return real(static_cast<std::size_t>(part.x),
                                    static_cast<std::size_t>(part.width));
                    });
}

const void *add(const void *at, std::size_t bytes)
{
    return static_cast<const char *>(at) + bytes;
}

void *add(void *at, std::size_t bytes)
{
    return static_cast<char *>(at) + bytes;
}

// ---- By a description

// Whether a copy must not name more of an allocation than it touches: the
// driver looks at all there is between the address it is given and the last
// byte.
bool must_be_exact()
{
    memory *const held = memory_if_ours();
    return held != nullptr && held->has_seams();
}

// One side of it. A copy's own defaults for the distances between rows and
// planes depend on its size, and so are written down before it is cut.
template <typename Pitch>
copy_side side_of(CUmemorytype type, CUdeviceptr at, std::size_t x,
                  std::size_t y, std::size_t z, Pitch &pitch,
                  std::size_t height, const copy_part &whole)
{
    if (pitch == 0)
        pitch = x + whole.width;
    copy_side side;
    if (type != CU_MEMORYTYPE_DEVICE && type != CU_MEMORYTYPE_UNIFIED)
        return side;
    side.pitch = pitch;
    side.slice = pitch * height;
    side.at = at + z * side.slice + y * pitch + x;
    return side;
}

template <typename Real>
CUresult described(const CUDA_MEMCPY2D *asked, Real real)
{
    if (asked == nullptr)
        return real(asked);
    CUDA_MEMCPY2D copy = *asked;
    copy_part whole;
    whole.width = copy.WidthInBytes;
    whole.height = copy.Height;
    const copy_side to =
        side_of(copy.dstMemoryType, copy.dstDevice, copy.dstXInBytes, copy.dstY,
                0, copy.dstPitch, 0, whole);
    const copy_side from =
        side_of(copy.srcMemoryType, copy.srcDevice, copy.srcXInBytes, copy.srcY,
                0, copy.srcPitch, 0, whole);
    const bool exact = must_be_exact();
    return in_parts(to, from, whole, [&](const copy_part &part) {
        if (!exact)
            return real(asked);
        CUDA_MEMCPY2D piece = copy;
        const bool one_row = part.height == 1;
        piece.dstXInBytes += part.x;
        piece.srcXInBytes += part.x;
        piece.dstY += part.y;
        piece.srcY += part.y;
        if (to.at != 0) {
            piece.dstDevice = start_of(to, part);
            piece.dstXInBytes = piece.dstY = 0;
            piece.dstPitch = one_row ? part.width : copy.dstPitch;
        }
        if (from.at != 0) {
            piece.srcDevice = start_of(from, part);
            piece.srcXInBytes = piece.srcY = 0;
            piece.srcPitch = one_row ? part.width : copy.srcPitch;
        }
        piece.WidthInBytes = part.width;
        piece.Height = part.height;
        return real(&piece);
    });
}

// CUDA_MEMCPY3D, and the same between contexts.
template <typename Copy, typename Real>
CUresult described_3d(const Copy *asked, Real real)
{
    if (asked == nullptr)
        return real(asked);
    Copy copy = *asked;
    copy_part whole;
    whole.width = copy.WidthInBytes;
    whole.height = copy.Height;
    whole.depth = copy.Depth;
    if (copy.dstHeight == 0)
        copy.dstHeight = copy.dstY + copy.Height;
    if (copy.srcHeight == 0)
        copy.srcHeight = copy.srcY + copy.Height;
    const copy_side to =
        side_of(copy.dstMemoryType, copy.dstDevice, copy.dstXInBytes, copy.dstY,
                copy.dstZ, copy.dstPitch, copy.dstHeight, whole);
    const copy_side from =
        side_of(copy.srcMemoryType, copy.srcDevice, copy.srcXInBytes, copy.srcY,
                copy.srcZ, copy.srcPitch, copy.srcHeight, whole);
    const bool exact = must_be_exact();
    return in_parts(to, from, whole, [&](const copy_part &part) {
        if (!exact)
            return real(asked);
        Copy piece = copy;
        const bool one_row = part.height == 1 && part.depth == 1;
        piece.dstXInBytes += part.x;
        piece.srcXInBytes += part.x;
        piece.dstY += part.y;
        piece.srcY += part.y;
        piece.dstZ += part.z;
        piece.srcZ += part.z;
        if (to.at != 0) {
            piece.dstDevice = start_of(to, part);
            piece.dstXInBytes = piece.dstY = piece.dstZ = 0;
            piece.dstPitch = one_row ? part.width : copy.dstPitch;
            piece.dstHeight = one_row ? 1 : copy.dstHeight;
        }
        if (from.at != 0) {
            piece.srcDevice = start_of(from, part);
            piece.srcXInBytes = piece.srcY = piece.srcZ = 0;
            piece.srcPitch = one_row ? part.width : copy.srcPitch;
            piece.srcHeight = one_row ? 1 : copy.srcHeight;
        }
        piece.WidthInBytes = part.width;
        piece.Height = part.height;
        piece.Depth = part.depth;
        return real(&piece);
    });
}

// ---- Fills

// In elements of some bytes. An address that is no multiple of them is wrong,
// and one that is has no element across a seam.
template <typename Real>
CUresult fill(CUdeviceptr to, std::size_t pitch, std::size_t element,
              std::size_t width, std::size_t height, Real real)
{
    copy_part whole;
    whole.height = height;
    if (to % element != 0 || pitch % element != 0 ||
        __builtin_mul_overflow(width, element, &whole.width))
        return real(to, width, height);
    return in_parts({to, pitch, 0}, {}, whole, [&](const copy_part &part) {
        return real(to + part.y * pitch + part.x,
                    static_cast<std::size_t>(part.width / element),
                    static_cast<std::size_t>(part.height));
    });
}

} // namespace

// Each of them twice, as in the driver: for the two kinds of default stream.

#define EMUV_COPY(name)                                                        \
    CUresult name(CUdeviceptr to, CUdeviceptr from, size_t bytes)              \
    {                                                                          \
        return linear(to, from, bytes, [&](size_t at, size_t n) {              \
            return EMUV_FOLLOWED(name)(to + at, from + at, n);                 \
        });                                                                    \
    }
#define EMUV_COPY_ASYNC(name)                                                  \
    CUresult name(CUdeviceptr to, CUdeviceptr from, size_t bytes,              \
                  CUstream stream)                                             \
    {                                                                          \
        return linear(to, from, bytes, [&](size_t at, size_t n) {              \
            return EMUV_FOLLOWED(name)(to + at, from + at, n, stream);         \
        });                                                                    \
    }
EMUV_COPY(cuMemcpy)
EMUV_COPY(cuMemcpy_ptds)
EMUV_COPY(cuMemcpyDtoD_v2)
EMUV_COPY(cuMemcpyDtoD_v2_ptds)
EMUV_COPY_ASYNC(cuMemcpyAsync)
EMUV_COPY_ASYNC(cuMemcpyAsync_ptsz)
EMUV_COPY_ASYNC(cuMemcpyDtoDAsync_v2)
EMUV_COPY_ASYNC(cuMemcpyDtoDAsync_v2_ptsz)

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

#define EMUV_COPY_PEER(name)                                                   \
    CUresult name(CUdeviceptr to, CUcontext there, CUdeviceptr from,           \
                  CUcontext here, size_t bytes)                                \
    {                                                                          \
        return linear(to, from, bytes, [&](size_t at, size_t n) {              \
            return EMUV_FOLLOWED(name)(to + at, there, from + at, here, n);    \
        });                                                                    \
    }
#define EMUV_COPY_PEER_ASYNC(name)                                             \
    CUresult name(CUdeviceptr to, CUcontext there, CUdeviceptr from,           \
                  CUcontext here, size_t bytes, CUstream stream)               \
    {                                                                          \
        return linear(to, from, bytes, [&](size_t at, size_t n) {              \
            return EMUV_FOLLOWED(name)(to + at, there, from + at, here, n,     \
                                       stream);                                \
        });                                                                    \
    }
EMUV_COPY_PEER(cuMemcpyPeer)
EMUV_COPY_PEER(cuMemcpyPeer_ptds)
EMUV_COPY_PEER_ASYNC(cuMemcpyPeerAsync)
EMUV_COPY_PEER_ASYNC(cuMemcpyPeerAsync_ptsz)

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
        return described_3d(                                                   \
            copy, [](const type *part) { return EMUV_FOLLOWED(name)(part); }); \
    }
#define EMUV_COPY_3D_ASYNC(name, type)                                         \
    CUresult name(const type *copy, CUstream stream)                           \
    {                                                                          \
        return described_3d(copy, [&](const type *part) {                      \
            return EMUV_FOLLOWED(name)(part, stream);                          \
        });                                                                    \
    }
EMUV_COPY_3D(cuMemcpy3D_v2, CUDA_MEMCPY3D)
EMUV_COPY_3D(cuMemcpy3D_v2_ptds, CUDA_MEMCPY3D)
EMUV_COPY_3D(cuMemcpy3DPeer, CUDA_MEMCPY3D_PEER)
EMUV_COPY_3D(cuMemcpy3DPeer_ptds, CUDA_MEMCPY3D_PEER)
EMUV_COPY_3D_ASYNC(cuMemcpy3DAsync_v2, CUDA_MEMCPY3D)
EMUV_COPY_3D_ASYNC(cuMemcpy3DAsync_v2_ptsz, CUDA_MEMCPY3D)
EMUV_COPY_3D_ASYNC(cuMemcpy3DPeerAsync, CUDA_MEMCPY3D_PEER)
EMUV_COPY_3D_ASYNC(cuMemcpy3DPeerAsync_ptsz, CUDA_MEMCPY3D_PEER)

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
