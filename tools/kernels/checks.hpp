// SPDX-License-Identifier: LGPL-2.1-or-later
// Checks of arguments that host and card share.
#pragma once

#include <emuv/kernels.h>

#include <cstdint>

namespace emuv::kernels {

/// Says whether a code, its scale and its block go together.
int check_format(const emuv_kernels_format &is);
/// Says whether a matrix of this shape can be coded.
int check_shape(std::uint64_t rows, std::uint64_t columns);
/// Format, shape, pointers and alignment of a coded matrix.
int check_matrix(const emuv_kernels_matrix *is);
/// Type, stride, pointer and alignment of plain numbers.
/// @param columns  that each row has.
int check_plain(const emuv_kernels_plain *is, std::uint64_t columns);

/// The arguments of emuv_kernels_multiply().
struct product
{
    const emuv_kernels_matrix *w;
    const emuv_kernels_plain *x;
    const emuv_kernels_plain *y;
    std::uint64_t count;
    void *workspace;
    std::uint64_t workspace_bytes;
    void *cublas;
};

/// All that can be said of a product without asking a device.
int check_product(const product &is);

/// Bytes of one block scale.
inline std::uint64_t scale_size(const emuv_kernels_format &of)
{
    return of.scale == EMUV_KERNELS_E4M3         ? 1
           : of.scale == EMUV_KERNELS_FP16_SCALE ? 2
                                                 : 0;
}

/// The number of this thread's last failure.
int &last_detail();
/// Remembers a number of CUDA's or cuBLAS's for emuv_kernels_detail().
int failed(int number);

} // namespace emuv::kernels
