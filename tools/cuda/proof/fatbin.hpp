// SPDX-License-Identifier: LGPL-2.1-or-later
// Files that hold code for several architectures: fatbins, and programs and
// libraries that have them in a section.
//
// The format is not official. A part that is not understood is named as one.
#pragma once

#include "proof/bytes.hpp"

#include <functional>
#include <vector>

namespace emuv::cuda::proof {

/// One image of a file.
struct code_image
{
    unsigned sm = 0; ///< 0 if that is not known
    bytes content;   ///< a cubin; empty if there is none to look at
    const char *refused = nullptr; ///< why there is none
};

/// Calls @p take with each image of @p file. That may be a cubin, a fatbin, an
/// ELF file with fatbins in it, or text in PTX. An image's content is there
/// during the call.
/// @param wanted  asked for an architecture whether to unpack it; may be empty
void each_image(bytes file, const std::function<void(const code_image &)> &take,
                const std::function<bool(unsigned sm)> &wanted = {});

/// Unpacks a block of LZ4 without a frame.
/// @return whether it filled @p out to the last byte
bool unpack_lz4(bytes from, std::span<unsigned char> out);

/// Unpacks a frame of Zstandard by the system's library.
/// @return whether there is one, and it filled @p out to the last byte
bool unpack_zstandard(bytes from, std::span<unsigned char> out);

} // namespace emuv::cuda::proof
