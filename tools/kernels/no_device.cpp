// SPDX-License-Identifier: LGPL-2.1-or-later
// The calls that need a card, where the library is built without nvcc.
#include "checks.hpp"

using namespace emuv::kernels;

namespace {

// The program's own errors come first, as they do where there is a card.
int checked(const emuv_kernels_matrix *matrix, const emuv_kernels_plain *plain)
{
    if (const int bad = check_matrix(matrix); bad != EMUV_KERNELS_OK)
        return bad;
    if (const int bad = check_plain(plain, matrix->columns);
        bad != EMUV_KERNELS_OK)
        return bad;
    return EMUV_KERNELS_NO_CARD;
}

} // namespace

int emuv_kernels_encode(const emuv_kernels_plain *from,
                        const emuv_kernels_matrix *to, void * /*stream*/)
{
    return checked(to, from);
}

int emuv_kernels_decode(const emuv_kernels_matrix *from,
                        const emuv_kernels_plain *to, void * /*stream*/)
{
    return checked(from, to);
}

int emuv_kernels_multiply(const emuv_kernels_matrix *w,
                          const emuv_kernels_plain *x,
                          const emuv_kernels_plain *y, std::uint64_t count,
                          void *workspace, std::uint64_t workspace_bytes,
                          void *cublas, void * /*stream*/)
{
    const int bad =
        check_product({w, x, y, count, workspace, workspace_bytes, cublas});
    return bad != EMUV_KERNELS_OK ? bad : EMUV_KERNELS_NO_CARD;
}
