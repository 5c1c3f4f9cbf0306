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
/// @param wanted  asked of each part of a fatbin whether to take it, by its
///   architecture, and whether it is machine code; may be empty
void each_image(bytes file, const std::function<void(const code_image &)> &take,
                const std::function<bool(unsigned sm, bool code)> &wanted = {});

/// The file that begins at an address. The driver has read it before. It may be
/// a cubin, a fatbin, or the wrapper of one that CUDA's compiler makes.
/// @return nothing for any other, such as text
bytes file_at(const void *image);

/// Finds the machine code that the driver chooses for a card, and calls @p take
/// with it. That is code for the card's major version. Of minor versions the
/// highest one counts, up to the card's own. There may be several such images.
/// @param sm  the card's, as in 90
void each_image_for(unsigned sm, bytes file,
                    const std::function<void(const code_image &)> &take);

/// Unpacks a block of LZ4 without a frame.
/// @return whether it filled @p out to the last byte
bool unpack_lz4(bytes from, std::span<unsigned char> out);

/// Unpacks a frame of Zstandard by the system's library.
/// @return whether there is one, and it filled @p out to the last byte
bool unpack_zstandard(bytes from, std::span<unsigned char> out);

} // namespace emuv::cuda::proof
