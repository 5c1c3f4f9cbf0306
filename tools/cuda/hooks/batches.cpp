// SPDX-License-Identifier: LGPL-2.1-or-later
// Copies in batches. Those that touch system RAM are made one by one. A copy of
// several dimensions that crosses a seam becomes several in the driver's batch.
#include "hooks/parts.hpp"
#include "hooks/watch.hpp"

#include <algorithm>
#include <vector>

using namespace emuv::cuda;

namespace {

// Finds for each of our copies the program's, and names that of a failed one.
class origins
{
public:
    std::size_t size() const { return from_.size(); }
    void add(std::size_t from) { from_.push_back(from); }
    void translate(std::size_t *failed) const
    {
        if (failed != nullptr && *failed < from_.size())
            *failed = from_[*failed];
    }

private:
    std::vector<std::size_t> from_;
};

// The processor makes a copy that shall be over when the call returns, if the
// driver takes both sides for system RAM. The driver (580) does so for handles
// there, which the processor cannot reach, and the program ends. So these
// copies are made in the stream's order, and waited for.
// @param asked  sets of attributes, or copies
template <typename Asked>
bool any_during_call(const Asked *asked, std::size_t count)
{
    return std::any_of(asked, asked + count, [](const Asked &each) {
        return each.srcAccessOrder ==
               CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
    });
}

// ---- In one dimension

bool on_host(memory &table, CUdeviceptr at)
{
    allocation_view view;
    unsigned type = CU_MEMORYTYPE_HOST;
    return !table.find(at, view) &&
           (EMUV_REAL(cuPointerGetAttribute)(
                &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at) != CUDA_SUCCESS ||
            type == CU_MEMORYTYPE_HOST);
}

CUresult copy_one(memory &table, CUdeviceptr to, CUdeviceptr from,
                  std::size_t bytes, CUstream stream)
{
    const bool to_host = on_host(table, to);
    const bool from_host = on_host(table, from);
    if (to_host == from_host)
        return cuMemcpyAsync(to, from, bytes, stream);
    if (to_host)
        return cuMemcpyDtoHAsync_v2(reinterpret_cast<void *>(to), from, bytes,
                                    stream);
    return cuMemcpyHtoDAsync_v2(to, reinterpret_cast<const void *>(from), bytes,
                                stream);
}

// A batch that reads or writes system RAM is made copy by copy. The driver
// (580) takes handles there for the processor's memory. Copies between them
// and the program's own memory are then the processor's, and end the program.
// @param stream  with the default streams named
template <typename Real>
CUresult batch(const CUdeviceptr *to, const CUdeviceptr *from,
               const std::size_t *sizes, std::size_t count,
               const CUmemcpyAttributes *attributes, std::size_t sets,
               std::size_t *failed, CUstream stream, Real real)
{
    memory *const table = memory_if_ours();
    if (table == nullptr || to == nullptr || from == nullptr ||
        sizes == nullptr || attributes == nullptr)
        return real();
    bool ram = false;
    for (std::size_t i = 0; i < count && !ram; i++)
        ram = touches_ram(*table, to[i]) || touches_ram(*table, from[i]);
    if (!ram) {
        if (const state *ours = state_if_ours(); !ours->movers.empty())
            for (std::size_t i = 0; i < count; i++)
                watching::from_host(*ours, to[i], from[i], sizes[i]);
        return real();
    }
    for (std::size_t i = 0; i < count; i++) {
        const CUresult result =
            copy_one(*table, to[i], from[i], sizes[i], stream);
        if (result != CUDA_SUCCESS) {
            if (failed != nullptr)
                *failed = i;
            return result;
        }
    }
    return any_during_call(attributes, sets)
               ? EMUV_REAL(cuStreamSynchronize)(stream)
               : CUDA_SUCCESS;
}

// ---- In three

// The bytes of an array's elements; 0 of one that has no such, or is not known
// here.
std::size_t element_bytes(CUarray array)
{
    CUDA_ARRAY3D_DESCRIPTOR is;
    if (EMUV_REAL(cuArray3DGetDescriptor_v2)(&is, array) != CUDA_SUCCESS)
        return 0;
    switch (is.Format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
        return is.NumChannels;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        return std::size_t{is.NumChannels} * 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
        return std::size_t{is.NumChannels} * 4;
    default:
        return 0;
    }
}

std::size_t element_bytes(const CUDA_MEMCPY3D_BATCH_OP &copy)
{
    for (const CUmemcpy3DOperand *side : {&copy.dst, &copy.src})
        if (side->type == CU_MEMCPY_OPERAND_TYPE_ARRAY)
            return element_bytes(side->op.array.array);
    return 1;
}

// As in a copy by itself: the defaults depend on the size, and so are written
// down first.
copy_side side_of(CUmemcpy3DOperand &asked, const CUextent3D &size,
                  std::size_t element)
{
    copy_side side;
    if (asked.type != CU_MEMCPY_OPERAND_TYPE_POINTER)
        return side;
    auto &pointer = asked.op.ptr;
    if (pointer.rowLength == 0)
        pointer.rowLength = size.width;
    if (pointer.layerHeight == 0)
        pointer.layerHeight = size.height;
    side.at = pointer.ptr;
    side.pitch = pointer.rowLength * element;
    side.slice = side.pitch * pointer.layerHeight;
    return side;
}

void narrow(CUmemcpy3DOperand &asked, const copy_side &side,
            const copy_part &part, std::size_t element)
{
    if (side.at == 0) {
        asked.op.array.offset.x += part.x / element;
        asked.op.array.offset.y += part.y;
        asked.op.array.offset.z += part.z;
        return;
    }
    asked.op.ptr.ptr = start_of(side, part);
    if (part.height == 1 && part.depth == 1) {
        asked.op.ptr.rowLength = part.width / element;
        asked.op.ptr.layerHeight = 1;
    }
}

// True if all of its cuts fall between elements. Seams lie at multiples of
// more than any element has bytes.
bool can_be_cut(const copy_side &side, std::size_t element)
{
    return side.at % element == 0;
}

void cut(memory *table, const CUDA_MEMCPY3D_BATCH_OP &asked,
         std::vector<CUDA_MEMCPY3D_BATCH_OP> &parts)
{
    CUDA_MEMCPY3D_BATCH_OP copy = asked;
    const std::size_t element = element_bytes(asked);
    if (element == 0) {
        parts.push_back(asked);
        return;
    }
    const copy_side to = side_of(copy.dst, asked.extent, element);
    const copy_side from = side_of(copy.src, asked.extent, element);
    if (!can_be_cut(to, element) || !can_be_cut(from, element)) {
        parts.push_back(asked);
        return;
    }
    copy_part whole;
    whole.width = asked.extent.width * element;
    whole.height = asked.extent.height;
    whole.depth = asked.extent.depth;
    in_parts(table, to, from, whole, [&](const copy_part &part) {
        CUDA_MEMCPY3D_BATCH_OP narrowed = copy;
        narrow(narrowed.dst, to, part, element);
        narrow(narrowed.src, from, part, element);
        narrowed.extent = {static_cast<std::size_t>(part.width / element),
                           static_cast<std::size_t>(part.height),
                           static_cast<std::size_t>(part.depth)};
        parts.push_back(narrowed);
        return CUDA_SUCCESS;
    });
}

// @param stream  with the default streams named
// @param real  makes a batch of so many
template <typename Real>
CUresult batch_3d(CUDA_MEMCPY3D_BATCH_OP *list, std::size_t count,
                  std::size_t *failed, CUstream stream, Real real)
{
    memory *const table = with_seams(memory_if_ours());
    if (table == nullptr || list == nullptr)
        return real(count, list);
    // The cuts fit the memory as it lies, so it has to stay.
    if (const state *ours = state_if_ours(); !ours->movers.empty())
        for (std::size_t i = 0; i < count; i++)
            for (const auto *side : {&list[i].dst, &list[i].src})
                if (side->type == CU_MEMCPY_OPERAND_TYPE_POINTER)
                    ours->fix(side->op.ptr.ptr);
    std::vector<CUDA_MEMCPY3D_BATCH_OP> parts;
    origins of;
    for (std::size_t i = 0; i < count; i++) {
        cut(table, list[i], parts);
        while (of.size() < parts.size())
            of.add(i);
    }
    const bool waits = any_during_call(parts.data(), parts.size());
    for (CUDA_MEMCPY3D_BATCH_OP &each : parts)
        if (each.srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL)
            each.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    const CUresult result = real(parts.size(), parts.data());
    of.translate(failed);
    return waits && result == CUDA_SUCCESS
               ? EMUV_REAL(cuStreamSynchronize)(stream)
               : result;
}

} // namespace

// Each of them twice, as in the driver. The first version says which copy
// failed.

#define EMUV_BATCH(name, named)                                                \
    CUresult name(CUdeviceptr *to, CUdeviceptr *from, size_t *sizes,           \
                  size_t count, CUmemcpyAttributes *attributes,                \
                  size_t *firsts, size_t sets, size_t *failed,                 \
                  CUstream stream)                                             \
    {                                                                          \
        return batch(to, from, sizes, count, attributes, sets, failed,         \
                     named(stream), [&] {                                      \
                         return EMUV_FOLLOWED(name)(to, from, sizes, count,    \
                                                    attributes, firsts, sets,  \
                                                    failed, stream);           \
                     });                                                       \
    }
#define EMUV_BATCH_V2(name, named)                                             \
    CUresult name(CUdeviceptr *to, CUdeviceptr *from, size_t *sizes,           \
                  size_t count, CUmemcpyAttributes *attributes,                \
                  size_t *firsts, size_t sets, CUstream stream)                \
    {                                                                          \
        return batch(to, from, sizes, count, attributes, sets, nullptr,        \
                     named(stream), [&] {                                      \
                         return EMUV_FOLLOWED(name)(to, from, sizes, count,    \
                                                    attributes, firsts, sets,  \
                                                    stream);                   \
                     });                                                       \
    }
EMUV_BATCH(cuMemcpyBatchAsync, legacy)
EMUV_BATCH(cuMemcpyBatchAsync_ptsz, per_thread)
EMUV_BATCH_V2(cuMemcpyBatchAsync_v2, legacy)
EMUV_BATCH_V2(cuMemcpyBatchAsync_v2_ptsz, per_thread)

#define EMUV_BATCH_3D(name, named)                                             \
    CUresult name(size_t count, CUDA_MEMCPY3D_BATCH_OP *list, size_t *failed,  \
                  unsigned long long flags, CUstream stream)                   \
    {                                                                          \
        return batch_3d(list, count, failed, named(stream),                    \
                        [&](size_t n, CUDA_MEMCPY3D_BATCH_OP *l) {             \
                            return EMUV_FOLLOWED(name)(n, l, failed, flags,    \
                                                       stream);                \
                        });                                                    \
    }
#define EMUV_BATCH_3D_V2(name, named)                                          \
    CUresult name(size_t count, CUDA_MEMCPY3D_BATCH_OP *list,                  \
                  unsigned long long flags, CUstream stream)                   \
    {                                                                          \
        return batch_3d(list, count, nullptr, named(stream),                   \
                        [&](size_t n, CUDA_MEMCPY3D_BATCH_OP *l) {             \
                            return EMUV_FOLLOWED(name)(n, l, flags, stream);   \
                        });                                                    \
    }
EMUV_BATCH_3D(cuMemcpy3DBatchAsync, legacy)
EMUV_BATCH_3D(cuMemcpy3DBatchAsync_ptsz, per_thread)
EMUV_BATCH_3D_V2(cuMemcpy3DBatchAsync_v2, legacy)
EMUV_BATCH_3D_V2(cuMemcpy3DBatchAsync_v2_ptsz, per_thread)
