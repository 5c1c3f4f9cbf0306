// SPDX-License-Identifier: GPL-2.0-or-later
// Copies and fills, and the checks of their arguments.
#include "copy.hpp"

#include "array.hpp"

#include <cstring>

#ifdef __SANITIZE_THREAD__
extern "C" {
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);
}
#endif

namespace sim {

namespace {

// ThreadSanitizer does not look at the bytes of device memory that a copy
// moves, or a fill sets. The library starts copies that the program's own work
// may overtake, and throws such copies away.
class unwatched
{
public:
#ifdef __SANITIZE_THREAD__
    unwatched()
    {
        AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
    }
    ~unwatched()
    {
        AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    }
#else
    unwatched() {}
    ~unwatched() {}
#endif
    unwatched(const unwatched &) = delete;
    unwatched &operator=(const unwatched &) = delete;
};

struct memory_kinds
{
    bool pageable = false;
    bool vram = false;
    int memory = 0; // its kinds, as bits
};

// Seen on an H200. A node of an executable graph that went over handles in VRAM
// and system RAM cannot be made to go over one of them.
int kind_of(const mapping &of)
{
    return of.in_vram()               ? 1
           : of.what == kind::vmm     ? 2
           : of.what == kind::managed ? 4
                                      : 8;
}

// Memory of one allocation, or of mappings by handle side by side; from one of
// these to another there is no way.
CUresult check(context &where, std::uintptr_t base, std::size_t bytes,
               side expected, bool write, memory_kinds &out)
{
    const std::uintptr_t end = base + bytes;
    if (end < base || base == 0)
        return CUDA_ERROR_INVALID_VALUE;
    const mapping *m = the().space.find(base);
    if (!m) {
        if (the().space.in_arena(base) || expected == side::device)
            return CUDA_ERROR_INVALID_VALUE;
        out.pageable = true;
        return CUDA_SUCCESS;
    }
    out.vram = m->in_vram();
    out.memory = kind_of(*m);
    if (expected == side::host && out.vram)
        return CUDA_ERROR_INVALID_VALUE;
    const bool by_handle = m->what == kind::vmm;
    for (;;) {
        const std::uint32_t bits = write ? m->writes : m->reads;
        if (by_handle && !(bits & where.bit()) &&
            !(expected == side::host && (bits & host_bit)))
            return CUDA_ERROR_INVALID_VALUE;
        if (m->end() >= end)
            return CUDA_SUCCESS;
        m = the().space.find(m->end());
        if (!by_handle || !m || m->what != kind::vmm)
            return CUDA_ERROR_INVALID_VALUE;
        out.memory |= kind_of(*m);
    }
}

std::size_t extent(std::size_t width, std::size_t height, std::size_t depth,
                   std::size_t pitch, std::size_t slice)
{
    return width + (height - 1) * pitch + (depth - 1) * slice;
}

void run(const block_copy &c)
{
    const unwatched bytes;
    for (std::size_t z = 0; z < c.depth; ++z)
        for (std::size_t y = 0; y < c.height; ++y)
            std::memmove(reinterpret_cast<void *>(c.dst + z * c.dst_slice +
                                                  y * c.dst_pitch),
                         reinterpret_cast<const void *>(
                             c.src + z * c.src_slice + y * c.src_pitch),
                         c.width);
}

template <typename T>
void fill_row(std::uintptr_t at, T value, std::size_t count)
{
    if constexpr (sizeof(T) == 1) {
        std::memset(reinterpret_cast<void *>(at), value, count);
    } else {
        auto *to = reinterpret_cast<T *>(at);
        for (std::size_t i = 0; i < count; ++i)
            to[i] = value;
    }
}

void run(const fill &f)
{
    const unwatched bytes;
    for (std::size_t y = 0; y < f.height; ++y) {
        const std::uintptr_t row = f.dst + y * f.pitch;
        switch (f.element) {
        case 1:
            fill_row(row, static_cast<std::uint8_t>(f.value), f.width);
            break;
        case 2:
            fill_row(row, static_cast<std::uint16_t>(f.value), f.width);
            break;
        default:
            fill_row(row, f.value, f.width);
        }
    }
}

// One side of the API's structures.
CUresult one_side(CUmemorytype type, const void *host, CUdeviceptr device,
                  CUarray array_handle, std::size_t x, std::size_t y,
                  std::size_t z, std::size_t pitch, std::size_t height,
                  std::size_t width, std::size_t rows, std::size_t depth,
                  std::uintptr_t &base, side &what, std::size_t &row,
                  std::size_t &slice)
{
    switch (type) {
    case CU_MEMORYTYPE_HOST:
        // A card takes its own addresses there, too.
        base = reinterpret_cast<std::uintptr_t>(host);
        what = side::any;
        break;
    case CU_MEMORYTYPE_DEVICE:
        base = device;
        what = side::device;
        break;
    case CU_MEMORYTYPE_UNIFIED:
        base = device;
        what = side::any;
        break;
    case CU_MEMORYTYPE_ARRAY: {
        auto found = the().arrays.find(array_handle);
        if (!found)
            return CUDA_ERROR_INVALID_HANDLE;
        if (x + width > found->row_bytes || y + rows > found->rows() ||
            z + depth > found->planes())
            return CUDA_ERROR_INVALID_VALUE;
        base = found->base;
        what = side::device;
        pitch = found->row_bytes;
        height = found->rows();
        break;
    }
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (pitch == 0)
        pitch = x + width;
    if ((rows > 1 || depth > 1) && pitch < x + width)
        return CUDA_ERROR_INVALID_VALUE;
    if (height == 0)
        height = y + rows;
    if (depth > 1 && height < y + rows)
        return CUDA_ERROR_INVALID_VALUE;
    row = pitch;
    slice = pitch * height;
    if (base)
        base += z * slice + y * row + x;
    return CUDA_SUCCESS;
}

template <typename T>
CUresult from_3d(const T *in, block_copy &out)
{
    if (!in)
        return CUDA_ERROR_INVALID_VALUE;
    out.width = in->WidthInBytes;
    out.height = in->Height;
    out.depth = in->Depth;
    if (CUresult r = one_side(in->srcMemoryType, in->srcHost, in->srcDevice,
                              in->srcArray, in->srcXInBytes, in->srcY, in->srcZ,
                              in->srcPitch, in->srcHeight, out.width,
                              out.height, out.depth, out.src, out.src_side,
                              out.src_pitch, out.src_slice))
        return r;
    return one_side(in->dstMemoryType, in->dstHost, in->dstDevice, in->dstArray,
                    in->dstXInBytes, in->dstY, in->dstZ, in->dstPitch,
                    in->dstHeight, out.width, out.height, out.depth, out.dst,
                    out.dst_side, out.dst_pitch, out.dst_slice);
}

CUDA_MEMCPY3D as_api(const block_copy &c)
{
    CUDA_MEMCPY3D out{};
    out.srcMemoryType = out.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
    out.srcDevice = c.src;
    out.dstDevice = c.dst;
    out.srcPitch = c.src_pitch ? c.src_pitch : c.width;
    out.dstPitch = c.dst_pitch ? c.dst_pitch : c.width;
    out.srcHeight = c.src_slice ? c.src_slice / out.srcPitch : c.height;
    out.dstHeight = c.dst_slice ? c.dst_slice / out.dstPitch : c.height;
    out.WidthInBytes = c.width;
    out.Height = c.height;
    out.Depth = c.depth;
    return out;
}

} // namespace

CUresult from_api(const CUDA_MEMCPY2D *in, block_copy &out)
{
    if (!in)
        return CUDA_ERROR_INVALID_VALUE;
    out.width = in->WidthInBytes;
    out.height = in->Height;
    if (CUresult r = one_side(
            in->srcMemoryType, in->srcHost, in->srcDevice, in->srcArray,
            in->srcXInBytes, in->srcY, 0, in->srcPitch, 0, out.width,
            out.height, 1, out.src, out.src_side, out.src_pitch, out.src_slice))
        return r;
    return one_side(in->dstMemoryType, in->dstHost, in->dstDevice, in->dstArray,
                    in->dstXInBytes, in->dstY, 0, in->dstPitch, 0, out.width,
                    out.height, 1, out.dst, out.dst_side, out.dst_pitch,
                    out.dst_slice);
}

CUresult from_api(const CUDA_MEMCPY3D *in, block_copy &out)
{
    return from_3d(in, out);
}

CUresult from_api(const CUDA_MEMCPY3D_PEER *in, block_copy &out)
{
    return from_3d(in, out);
}

CUresult from_api(const CUDA_MEMSET_NODE_PARAMS *in, fill &out)
{
    if (!in ||
        (in->elementSize != 1 && in->elementSize != 2 && in->elementSize != 4))
        return CUDA_ERROR_INVALID_VALUE;
    out = {in->dst,         in->pitch, in->value,
           in->elementSize, in->width, in->height};
    return CUDA_SUCCESS;
}

CUresult from_api(const CUDA_MEMCPY3D_BATCH_OP &in, block_copy &out)
{
    // Elements are an array's, or bytes.
    std::size_t element = 1;
    for (const CUmemcpy3DOperand *one : {&in.dst, &in.src})
        if (one->type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
            auto found = the().arrays.find(one->op.array.array);
            if (!found)
                return CUDA_ERROR_INVALID_VALUE;
            element = found->row_bytes / found->shape.Width;
        }
    if (!in.extent.width || !in.extent.height || !in.extent.depth ||
        in.srcAccessOrder < CU_MEMCPY_SRC_ACCESS_ORDER_STREAM ||
        in.srcAccessOrder > CU_MEMCPY_SRC_ACCESS_ORDER_ANY)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_MEMCPY3D copy{};
    copy.WidthInBytes = in.extent.width * element;
    copy.Height = in.extent.height;
    copy.Depth = in.extent.depth;
    auto one = [&](const CUmemcpy3DOperand &from, CUmemorytype &type,
                   CUdeviceptr &at, CUarray &array, std::size_t &x,
                   std::size_t &y, std::size_t &z, std::size_t &pitch,
                   std::size_t &height) {
        if (from.type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
            type = CU_MEMORYTYPE_ARRAY;
            array = from.op.array.array;
            x = from.op.array.offset.x * element;
            y = from.op.array.offset.y;
            z = from.op.array.offset.z;
        } else {
            type = CU_MEMORYTYPE_UNIFIED;
            at = from.op.ptr.ptr;
            pitch = from.op.ptr.rowLength * element;
            height = from.op.ptr.layerHeight;
        }
    };
    one(in.dst, copy.dstMemoryType, copy.dstDevice, copy.dstArray,
        copy.dstXInBytes, copy.dstY, copy.dstZ, copy.dstPitch, copy.dstHeight);
    one(in.src, copy.srcMemoryType, copy.srcDevice, copy.srcArray,
        copy.srcXInBytes, copy.srcY, copy.srcZ, copy.srcPitch, copy.srcHeight);
    return from_3d(&copy, out);
}

CUresult make(context &where, block_copy what, bool snapshot, operation &out,
              bool &now)
{
    out.type = CU_GRAPH_NODE_TYPE_MEMCPY;
    now = false;
    if (what.width == 0 || what.height == 0 || what.depth == 0) {
        out.run = [] {};
        return CUDA_SUCCESS;
    }
    memory_kinds dst, src;
    if (CUresult r = check(what.dst_owner ? *what.dst_owner : where, what.dst,
                           extent(what.width, what.height, what.depth,
                                  what.dst_pitch, what.dst_slice),
                           what.dst_side, true, dst))
        return r;
    if (CUresult r = check(what.src_owner ? *what.src_owner : where, what.src,
                           extent(what.width, what.height, what.depth,
                                  what.src_pitch, what.src_slice),
                           what.src_side, false, src))
        return r;
    out.params = std::make_shared<CUDA_MEMCPY3D>(as_api(what));
    out.dst_kind = dst.memory;
    out.src_kind = src.memory;
    out.one_row = what.height == 1 && what.depth == 1;
    now = dst.pageable;
    std::shared_ptr<std::vector<unsigned char>> taken;
    if (snapshot && src.pageable && !now) {
        // The program may change the source as soon as the call returns.
        taken = std::make_shared<std::vector<unsigned char>>(
            what.width * what.height * what.depth);
        block_copy to_taken = what;
        to_taken.dst = reinterpret_cast<std::uintptr_t>(taken->data());
        to_taken.dst_pitch = what.width;
        to_taken.dst_slice = what.width * what.height;
        run(to_taken);
        what.src = to_taken.dst;
        what.src_pitch = to_taken.dst_pitch;
        what.src_slice = to_taken.dst_slice;
    }
    emuv_sim_copied &sum = the().copied;
    std::uint64_t *counter =
        src.vram ? (dst.vram ? &sum.device_to_device : &sum.device_to_host)
                 : (dst.vram ? &sum.host_to_device : &sum.host_to_host);
    out.run = [what, taken, counter] {
        run(what);
        std::lock_guard lock(the().mutex);
        *counter += what.width * what.height * what.depth;
    };
    return CUDA_SUCCESS;
}

CUresult make(context &where, const fill &what, operation &out)
{
    out.type = CU_GRAPH_NODE_TYPE_MEMSET;
    if (what.width == 0 || what.height == 0) {
        out.run = [] {};
        return CUDA_SUCCESS;
    }
    const std::size_t row = what.width * what.element;
    if (what.dst % what.element ||
        (what.height > 1 && (what.pitch < row || what.pitch % what.element)))
        return CUDA_ERROR_INVALID_VALUE;
    memory_kinds dst;
    if (CUresult r =
            check(where, what.dst, extent(row, what.height, 1, what.pitch, 0),
                  side::device, true, dst))
        return r;
    CUDA_MEMSET_NODE_PARAMS params{};
    params.dst = what.dst;
    params.pitch = what.pitch;
    params.value = what.value;
    params.elementSize = what.element;
    params.width = what.width;
    params.height = what.height;
    out.params = std::make_shared<CUDA_MEMSET_NODE_PARAMS>(params);
    out.dst_kind = dst.memory;
    out.one_row = what.height == 1;
    out.run = [what] { run(what); };
    return CUDA_SUCCESS;
}

CUresult copy(call &entered, const std::shared_ptr<stream> &on,
              const block_copy &what, bool synchronous)
{
    if (!on)
        return CUDA_ERROR_INVALID_HANDLE;
    if (synchronous)
        if (CUresult r = refuse_during_capture())
            return r;
    operation op;
    bool now = false;
    const bool capturing = on->capture != nullptr;
    if (CUresult r =
            make(*on->owner, what, !synchronous && !capturing, op, now))
        return r;
    if (CUresult r = submit(*on, std::move(op)))
        return r;
    if (!capturing && (synchronous || now)) {
        wait(entered.lock, mark(on->last));
        return on->owner->lost;
    }
    return CUDA_SUCCESS;
}

CUresult set(call &, const std::shared_ptr<stream> &on, const fill &what,
             bool synchronous)
{
    if (!on)
        return CUDA_ERROR_INVALID_HANDLE;
    if (synchronous)
        if (CUresult r = refuse_during_capture())
            return r;
    operation op;
    if (CUresult r = make(*on->owner, what, op))
        return r;
    return submit(*on, std::move(op));
}

} // namespace sim
