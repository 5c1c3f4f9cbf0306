// SPDX-License-Identifier: LGPL-2.1-or-later
// The calls that need a card.
#include "checks.hpp"
#include "kernels.cuh"

#include <algorithm>
#include <atomic>
#include <initializer_list>

#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <dlfcn.h>

using namespace emuv::kernels;

namespace {

constexpr unsigned most_blocks = 1U << 16U;
constexpr unsigned most_blocks_down = 65535;

int said(cudaError_t error)
{
    return error == cudaSuccess ? EMUV_KERNELS_OK
                                : failed(static_cast<int>(error));
}

// The error of a launch; it does not wait for the work.
int launched()
{
    return said(cudaGetLastError());
}

unsigned blocks_for(std::uint64_t items)
{
    return static_cast<unsigned>(
        std::min<std::uint64_t>((items + threads - 1) / threads, most_blocks));
}

// Looks at the current device once.
int check_card(int &device)
{
    constexpr int most_devices = 64;
    static std::atomic<int> majors[most_devices];
    if (cudaGetDevice(&device) != cudaSuccess) {
        cudaGetLastError();
        return EMUV_KERNELS_NO_CARD;
    }
    int major = device < most_devices ? majors[device].load() : 0;
    if (major == 0) {
        if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor,
                                   device) != cudaSuccess) {
            cudaGetLastError();
            return EMUV_KERNELS_NO_CARD;
        }
        if (device < most_devices)
            majors[device].store(major);
    }
    return major >= 8 ? EMUV_KERNELS_OK : EMUV_KERNELS_NO_CARD;
}

// Says whether the current device reaches a matrix and other memory. Memory of
// the host that CUDA knows will do: spilled memory is such.
int check_reach(const emuv_kernels_matrix &of,
                std::initializer_list<const void *> all)
{
    int device = 0;
    if (const int bad = check_card(device);
        bad != EMUV_KERNELS_OK || (of.flags & EMUV_KERNELS_REACHED) != 0)
        return bad;
    for (const void *each : all) {
        if (each == nullptr)
            continue;
        cudaPointerAttributes is{};
        if (cudaPointerGetAttributes(&is, each) != cudaSuccess) {
            cudaGetLastError();
            return EMUV_KERNELS_BAD_DEVICE;
        }
        const bool reached =
            is.type == cudaMemoryTypeManaged ||
            (is.type == cudaMemoryTypeHost && is.devicePointer == each) ||
            (is.type == cudaMemoryTypeDevice && is.device == device);
        if (!reached)
            return EMUV_KERNELS_BAD_DEVICE;
    }
    return EMUV_KERNELS_OK;
}

template <unsigned Type>
int encode_on(const emuv_kernels_plain &from, const coded &to,
              cudaStream_t stream)
{
    const auto *const data =
        static_cast<const typename number_of<Type>::kept *>(from.data);
    if (const int bad =
            said(cudaMemsetAsync(to.tensor_scale, 0, sizeof(float), stream));
        bad != EMUV_KERNELS_OK)
        return bad;
    // Enough to fill any card; each block ends with an atomic operation.
    const unsigned few = std::min(blocks_for(to.rows * to.columns), 2048U);
    find_largest<Type><<<few, threads, 0, stream>>>(data, from.stride, to);
    settle_tensor_scale<<<1, 1, 0, stream>>>(to);
    const unsigned blocks = blocks_for(to.rows * to.columns / to.block);
    if (to.block == 16)
        encode_blocks<Type, 16>
            <<<blocks, threads, 0, stream>>>(data, from.stride, to);
    else
        encode_blocks<Type, 32>
            <<<blocks, threads, 0, stream>>>(data, from.stride, to);
    return launched();
}

template <unsigned Type>
int decode_on(const coded &from, std::uint64_t first, std::uint64_t rows,
              void *to, std::uint64_t stride, cudaStream_t stream)
{
    const dim3 blocks(
        blocks_for(from.columns / 8),
        static_cast<unsigned>(std::min<std::uint64_t>(rows, most_blocks_down)));
    decode_words<Type><<<blocks, threads, 0, stream>>>(
        from, first, rows, static_cast<typename number_of<Type>::kept *>(to),
        stride);
    return launched();
}

int decode_rows(unsigned type, const coded &from, std::uint64_t first,
                std::uint64_t rows, void *to, std::uint64_t stride,
                cudaStream_t stream)
{
    switch (type) {
    case EMUV_KERNELS_FP16:
        return decode_on<EMUV_KERNELS_FP16>(from, first, rows, to, stride,
                                            stream);
    case EMUV_KERNELS_BF16:
        return decode_on<EMUV_KERNELS_BF16>(from, first, rows, to, stride,
                                            stream);
    default:
        return decode_on<EMUV_KERNELS_FP32>(from, first, rows, to, stride,
                                            stream);
    }
}

template <typename Pairs, typename Weights, unsigned Tiles, unsigned Tall>
int fuse_tall(const product_on_card &of, cudaStream_t stream)
{
    constexpr unsigned rows = rows_at_once * Tall;
    const auto blocks = static_cast<unsigned>((of.rows + rows - 1) / rows);
    multiply_fused<Pairs, Weights, Tiles, Tall>
        <<<blocks, threads, 0, stream>>>(of);
    return launched();
}

// The fastest shapes on an H200 for 1, 4, 8 and 16 rows
// (docs/results/kernels-h200.json).
template <typename Pairs, typename Weights>
int fuse(const product_on_card &of, cudaStream_t stream)
{
    if (of.count <= 4)
        return fuse_tall<Pairs, Weights, 1, 1>(of, stream);
    if (of.count <= 8)
        return fuse_tall<Pairs, Weights, 1, 2>(of, stream);
    return fuse_tall<Pairs, Weights, 2, 2>(of, stream);
}

template <typename Pairs>
int fuse_format(const emuv_kernels_format &is, const product_on_card &of,
                cudaStream_t stream)
{
    if (is.code == EMUV_KERNELS_SYMMETRIC)
        return fuse<Pairs, symmetric_weights<Pairs>>(of, stream);
    if (is.scale == EMUV_KERNELS_E4M3)
        return is.block == 16
                   ? fuse<Pairs, e4m3_weights<Pairs, 16>>(of, stream)
                   : fuse<Pairs, e4m3_weights<Pairs, 32>>(of, stream);
    return is.block == 16 ? fuse<Pairs, fp16_weights<Pairs, 16>>(of, stream)
                          : fuse<Pairs, fp16_weights<Pairs, 32>>(of, stream);
}

int multiply_few(const product &is, cudaStream_t stream)
{
    const emuv_kernels_matrix &w = *is.w;
    product_on_card of{};
    of.rows = w.rows;
    of.columns = w.columns;
    of.codes = static_cast<const uint4 *>(w.codes);
    of.scales = w.scales;
    of.tensor_scale = w.tensor_scale;
    of.x = static_cast<const uint4 *>(is.x->data);
    of.x_stride = is.x->stride / 8;
    of.y = static_cast<std::uint16_t *>(is.y->data);
    of.y_stride = is.y->stride;
    of.count = static_cast<unsigned>(is.count);
    return is.x->type == EMUV_KERNELS_FP16
               ? fuse_format<half_pairs>(w.format, of, stream)
               : fuse_format<bfloat_pairs>(w.format, of, stream);
}

// cuBLAS of the program's own: that of PyTorch, for one. It is not linked,
// since a handle has to go to the library that made it.
struct cublas_calls
{
    decltype(&cublasSetStream_v2) set_stream = nullptr;
    cublasStatus_t (*multiply)(cublasHandle_t, cublasOperation_t,
                               cublasOperation_t, int, int, int, const void *,
                               const void *, cudaDataType, int, const void *,
                               cudaDataType, int, const void *, void *,
                               cudaDataType, int, cublasComputeType_t,
                               cublasGemmAlgo_t) = nullptr;

    cublas_calls()
    {
        take(RTLD_DEFAULT);
        // Only where the process has it already: the handle is of it.
        for (const char *name : {"libcublas.so.13", "libcublas.so.12"}) {
            if (multiply != nullptr)
                return;
            if (void *const found = dlopen(name, RTLD_LAZY | RTLD_NOLOAD))
                take(found);
        }
    }

    void take(void *from)
    {
        set_stream = reinterpret_cast<decltype(set_stream)>(
            dlsym(from, "cublasSetStream_v2"));
        multiply =
            reinterpret_cast<decltype(multiply)>(dlsym(from, "cublasGemmEx"));
    }
};

int multiply_many(const product &is, cudaStream_t stream)
{
    static const cublas_calls found;
    // It may have come to the process since.
    const cublas_calls blas =
        found.multiply != nullptr ? found : cublas_calls();
    if (blas.multiply == nullptr || blas.set_stream == nullptr)
        return EMUV_KERNELS_NO_CUBLAS;
    auto *const handle = static_cast<cublasHandle_t>(is.cublas);
    if (const auto bad = blas.set_stream(handle, stream);
        bad != CUBLAS_STATUS_SUCCESS)
        return failed(static_cast<int>(bad));
    const emuv_kernels_matrix &w = *is.w;
    const cudaDataType_t type =
        is.x->type == EMUV_KERNELS_FP16 ? CUDA_R_16F : CUDA_R_16BF;
    const std::uint64_t at_once =
        std::min(is.workspace_bytes / (w.columns * 2) / 16 * 16, w.rows);
    const float one = 1;
    const float zero = 0;
    for (std::uint64_t first = 0; first < w.rows; first += at_once) {
        const std::uint64_t rows = std::min(at_once, w.rows - first);
        if (const int bad = decode_rows(is.x->type, seen(w), first, rows,
                                        is.workspace, w.columns, stream);
            bad != EMUV_KERNELS_OK)
            return bad;
        // cuBLAS counts by columns: there y is transposed, and so are x and w.
        const auto bad = blas.multiply(
            handle, CUBLAS_OP_T, CUBLAS_OP_N, static_cast<int>(rows),
            static_cast<int>(is.count), static_cast<int>(w.columns), &one,
            is.workspace, type, static_cast<int>(w.columns), is.x->data, type,
            static_cast<int>(is.x->stride), &zero,
            static_cast<std::uint16_t *>(is.y->data) + first, type,
            static_cast<int>(is.y->stride), CUBLAS_COMPUTE_32F,
            CUBLAS_GEMM_DEFAULT);
        if (bad != CUBLAS_STATUS_SUCCESS)
            return failed(static_cast<int>(bad));
    }
    return EMUV_KERNELS_OK;
}

} // namespace

int emuv_kernels_encode(const emuv_kernels_plain *from,
                        const emuv_kernels_matrix *to, void *stream)
{
    if (const int bad = check_matrix(to); bad != EMUV_KERNELS_OK)
        return bad;
    if (const int bad = check_plain(from, to->columns); bad != EMUV_KERNELS_OK)
        return bad;
    if (const int bad = check_reach(
            *to, {from->data, to->codes, to->scales, to->tensor_scale});
        bad != EMUV_KERNELS_OK)
        return bad;
    auto *const on = static_cast<cudaStream_t>(stream);
    switch (from->type) {
    case EMUV_KERNELS_FP16:
        return encode_on<EMUV_KERNELS_FP16>(*from, seen(*to), on);
    case EMUV_KERNELS_BF16:
        return encode_on<EMUV_KERNELS_BF16>(*from, seen(*to), on);
    default:
        return encode_on<EMUV_KERNELS_FP32>(*from, seen(*to), on);
    }
}

int emuv_kernels_decode(const emuv_kernels_matrix *from,
                        const emuv_kernels_plain *to, void *stream)
{
    if (const int bad = check_matrix(from); bad != EMUV_KERNELS_OK)
        return bad;
    if (const int bad = check_plain(to, from->columns); bad != EMUV_KERNELS_OK)
        return bad;
    if (const int bad = check_reach(
            *from, {to->data, from->codes, from->scales, from->tensor_scale});
        bad != EMUV_KERNELS_OK)
        return bad;
    return decode_rows(to->type, seen(*from), 0, from->rows, to->data,
                       to->stride, static_cast<cudaStream_t>(stream));
}

int emuv_kernels_multiply(const emuv_kernels_matrix *w,
                          const emuv_kernels_plain *x,
                          const emuv_kernels_plain *y, std::uint64_t count,
                          void *workspace, std::uint64_t workspace_bytes,
                          void *cublas, void *stream)
{
    const product is{w, x, y, count, workspace, workspace_bytes, cublas};
    if (const int bad = check_product(is); bad != EMUV_KERNELS_OK)
        return bad;
    const bool few = count <= EMUV_KERNELS_FUSED_ROWS;
    if (const int bad =
            check_reach(*w, {w->codes, w->scales, w->tensor_scale, x->data,
                             y->data, few ? nullptr : workspace});
        bad != EMUV_KERNELS_OK)
        return bad;
    if (count == 0)
        return EMUV_KERNELS_OK;
    auto *const on = static_cast<cudaStream_t>(stream);
    return few ? multiply_few(is, on) : multiply_many(is, on);
}
