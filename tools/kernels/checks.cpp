// SPDX-License-Identifier: LGPL-2.1-or-later
// Checks of arguments, and what a status says.
#include "checks.hpp"

namespace emuv::kernels {

namespace {

constexpr std::uint64_t step = 32;
constexpr std::uint64_t most_columns = std::uint64_t{1} << 20U;
constexpr std::uint64_t most_rows = std::uint64_t{1} << 31U;
constexpr std::uint64_t stride_step = 8;
constexpr std::uint64_t most_stride = std::uint64_t{1} << 31U;
constexpr std::uintptr_t vector_bytes = 16;
constexpr std::uint64_t least_rows_at_once = 16;

bool aligned(const void *at, std::uintptr_t to)
{
    return reinterpret_cast<std::uintptr_t>(at) % to == 0;
}

} // namespace

int &last_detail()
{
    thread_local int number = 0;
    return number;
}

int failed(int number)
{
    last_detail() = number;
    return EMUV_KERNELS_FAILED;
}

int check_format(const emuv_kernels_format &is)
{
    if (is.size != sizeof(emuv_kernels_format))
        return EMUV_KERNELS_BAD_FORMAT;
    if (is.code == EMUV_KERNELS_SYMMETRIC)
        return is.scale == EMUV_KERNELS_NO_SCALE && is.block == 0
                   ? EMUV_KERNELS_OK
                   : EMUV_KERNELS_BAD_FORMAT;
    const bool known = is.code == EMUV_KERNELS_E2M1 &&
                       (is.scale == EMUV_KERNELS_E4M3 ||
                        is.scale == EMUV_KERNELS_FP16_SCALE) &&
                       (is.block == 16 || is.block == 32);
    return known ? EMUV_KERNELS_OK : EMUV_KERNELS_BAD_FORMAT;
}

int check_shape(std::uint64_t rows, std::uint64_t columns)
{
    const bool fits = rows != 0 && columns != 0 && rows <= most_rows &&
                      columns <= most_columns && columns % step == 0;
    return fits ? EMUV_KERNELS_OK : EMUV_KERNELS_BAD_SHAPE;
}

int check_matrix(const emuv_kernels_matrix *is)
{
    if (is == nullptr)
        return EMUV_KERNELS_BAD_POINTER;
    if (is->size != sizeof(emuv_kernels_matrix) ||
        (is->flags & ~EMUV_KERNELS_REACHED) != 0)
        return EMUV_KERNELS_BAD_FORMAT;
    if (const int bad = check_format(is->format); bad != EMUV_KERNELS_OK)
        return bad;
    if (const int bad = check_shape(is->rows, is->columns);
        bad != EMUV_KERNELS_OK)
        return bad;
    const bool has_blocks = is->format.block != 0;
    if (is->codes == nullptr || is->tensor_scale == nullptr ||
        (is->scales == nullptr) == has_blocks)
        return EMUV_KERNELS_BAD_POINTER;
    if (!aligned(is->codes, vector_bytes) || !aligned(is->scales, 4) ||
        !aligned(is->tensor_scale, alignof(float)))
        return EMUV_KERNELS_BAD_ALIGNMENT;
    return EMUV_KERNELS_OK;
}

int check_plain(const emuv_kernels_plain *is, std::uint64_t columns)
{
    if (is == nullptr)
        return EMUV_KERNELS_BAD_POINTER;
    if (is->size != sizeof(emuv_kernels_plain) ||
        is->type < EMUV_KERNELS_FP32 || is->type > EMUV_KERNELS_BF16)
        return EMUV_KERNELS_BAD_FORMAT;
    if (is->data == nullptr)
        return EMUV_KERNELS_BAD_POINTER;
    if (is->stride < columns || is->stride % stride_step != 0 ||
        is->stride > most_stride)
        return EMUV_KERNELS_BAD_STRIDE;
    return aligned(is->data, vector_bytes) ? EMUV_KERNELS_OK
                                           : EMUV_KERNELS_BAD_ALIGNMENT;
}

int check_product(const product &is)
{
    if (const int bad = check_matrix(is.w); bad != EMUV_KERNELS_OK)
        return bad;
    if (const int bad = check_plain(is.x, is.w->columns);
        bad != EMUV_KERNELS_OK)
        return bad;
    if (const int bad = check_plain(is.y, is.w->rows); bad != EMUV_KERNELS_OK)
        return bad;
    if (is.x->type != is.y->type || is.x->type == EMUV_KERNELS_FP32)
        return EMUV_KERNELS_BAD_FORMAT;
    // cuBLAS counts with int.
    if (is.count >= most_rows || is.w->rows >= most_rows)
        return EMUV_KERNELS_BAD_SHAPE;
    if (is.count <= EMUV_KERNELS_FUSED_ROWS)
        return EMUV_KERNELS_OK;
    if (is.workspace == nullptr ||
        is.workspace_bytes < least_rows_at_once * is.w->columns * 2)
        return EMUV_KERNELS_NO_WORKSPACE;
    if (!aligned(is.workspace, vector_bytes))
        return EMUV_KERNELS_BAD_ALIGNMENT;
    return is.cublas != nullptr ? EMUV_KERNELS_OK : EMUV_KERNELS_NO_CUBLAS;
}

} // namespace emuv::kernels

using namespace emuv::kernels;

namespace {

// A question about a format and a shape; @p answer is left alone on an error.
template <typename Count>
int ask(const emuv_kernels_format *format, std::uint64_t rows,
        std::uint64_t columns, std::uint64_t *answer, const Count &count)
{
    if (format == nullptr || answer == nullptr)
        return EMUV_KERNELS_BAD_POINTER;
    if (const int bad = check_format(*format); bad != EMUV_KERNELS_OK)
        return bad;
    if (const int bad = check_shape(rows, columns); bad != EMUV_KERNELS_OK)
        return bad;
    *answer = count();
    return EMUV_KERNELS_OK;
}

} // namespace

int emuv_kernels_code_bytes(const emuv_kernels_format *format,
                            std::uint64_t rows, std::uint64_t columns,
                            std::uint64_t *bytes)
{
    return ask(format, rows, columns, bytes,
               [&] { return rows * columns / 2; });
}

int emuv_kernels_scale_bytes(const emuv_kernels_format *format,
                             std::uint64_t rows, std::uint64_t columns,
                             std::uint64_t *bytes)
{
    return ask(format, rows, columns, bytes, [&] {
        return format->block == 0
                   ? 0
                   : rows * (columns / format->block) * scale_size(*format);
    });
}

const char *emuv_kernels_text(int status)
{
    switch (status) {
    case EMUV_KERNELS_OK:
        return "success";
    case EMUV_KERNELS_BAD_FORMAT:
        return "the size of a structure, a code, a scale, a block or a type is "
               "not one that this library knows";
    case EMUV_KERNELS_BAD_SHAPE:
        return "a matrix needs rows, and columns that are a multiple of 32 and "
               "at most 1048576";
    case EMUV_KERNELS_BAD_STRIDE:
        return "a stride is at least a row's length, and a multiple of 8";
    case EMUV_KERNELS_BAD_POINTER:
        return "a pointer is null, or block scales are given where the format "
               "has none";
    case EMUV_KERNELS_BAD_ALIGNMENT:
        return "data, codes and workspace are aligned to 16 bytes, scales to 4";
    case EMUV_KERNELS_BAD_DEVICE:
        return "memory is not of the current device";
    case EMUV_KERNELS_NO_WORKSPACE:
        return "more than 16 rows need a workspace of 32 bytes for each column";
    case EMUV_KERNELS_NO_CUBLAS:
        return "more than 16 rows need cuBLAS and a handle of it";
    case EMUV_KERNELS_NO_CARD:
        return "no card of compute capability 8.0 or later, or a library that "
               "was built without nvcc";
    case EMUV_KERNELS_FAILED:
        return "CUDA or cuBLAS failed";
    default:
        return "not a status";
    }
}

int emuv_kernels_detail()
{
    return last_detail();
}
