// SPDX-License-Identifier: GPL-2.0-or-later
// Copies and fills of up to three dimensions, and their checks.
#pragma once

#include "state.hpp"

namespace sim {

// The kind of an address, as the caller gives it.
enum class side
{
    device,
    host,
    any
};

struct block_copy
{
    std::uintptr_t dst = 0, src = 0;
    side dst_side = side::any, src_side = side::any;
    std::size_t dst_pitch = 0, src_pitch = 0; // bytes from row to row
    std::size_t dst_slice = 0, src_slice = 0; // and from plane to plane
    std::size_t width = 0, height = 1, depth = 1;
    // The context that must have access to each side; null: the stream's.
    context *dst_owner = nullptr, *src_owner = nullptr;

    static block_copy line(std::uintptr_t dst, side dst_side,
                           std::uintptr_t src, side src_side, std::size_t bytes)
    {
        block_copy out;
        out.dst = dst;
        out.src = src;
        out.dst_side = dst_side;
        out.src_side = src_side;
        out.width = bytes;
        return out;
    }
};

struct fill
{
    std::uintptr_t dst = 0;
    std::size_t pitch = 0;
    unsigned value = 0;
    unsigned element = 1;              // bytes: 1, 2 or 4
    std::size_t width = 0, height = 1; // width in elements
};

// From the structures of the API. Errors are those of the arguments alone.
CUresult from_api(const CUDA_MEMCPY2D *in, block_copy &out);
CUresult from_api(const CUDA_MEMCPY3D *in, block_copy &out);
CUresult from_api(const CUDA_MEMCPY3D_PEER *in, block_copy &out);
CUresult from_api(const CUDA_MEMSET_NODE_PARAMS *in, fill &out);
CUresult from_api(const CUDA_MEMCPY3D_BATCH_OP &in, block_copy &out);

// The operation that does it, after every check of the addresses.
// `snapshot`: take pageable sources now, as an asynchronous copy does.
// `now` is set when the copy may only return once it is done.
CUresult make(context &where, block_copy what, bool snapshot, operation &out,
              bool &now);
CUresult make(context &where, const fill &what, operation &out);

// Asks the stream for it. Synchronous copies wait.
CUresult copy(call &entered, const std::shared_ptr<stream> &on,
              const block_copy &what, bool synchronous);
// A fill returns at once, also by its synchronous names, as on a card.
CUresult set(call &entered, const std::shared_ptr<stream> &on, const fill &what,
             bool synchronous);

} // namespace sim
