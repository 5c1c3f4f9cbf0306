// SPDX-License-Identifier: LGPL-2.1-or-later
// Files that hold code for several architectures: fatbins, and programs and
// libraries that have them in a section.
//
// The format is not official. An image that is not understood is named as one.
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

/// An image in a file, as it lies there.
struct packed_image
{
    enum class kind
    {
        code, ///< a cubin, perhaps packed
        text, ///< PTX, which the driver compiles
        other,
    };
    enum class packing
    {
        none,
        lz4,
        zstandard,
    };
    kind is = kind::other;
    packing packed = packing::none;
    unsigned sm = 0;          ///< 0 if that is not known
    bool special = false;     ///< for that architecture alone, as sm_90a is
    bytes content;            ///< empty if it cannot be looked at
    std::size_t bytes_of = 0; ///< of the cubin
    const char *refused = nullptr; ///< why it cannot
};

/// Finds the machine code that the driver may choose for a card, and calls @p
/// take with it as it lies there. Code for the very card decides. Without that
/// it is all code for the card's major version, of minor versions up to the
/// card's own. Other images that may be for it are refused.
/// @param sm  the card's, as in 90
void each_image_for(unsigned sm, bytes file,
                    const std::function<void(const packed_image &)> &take);

/// Unpacks an image.
/// @param content  its content, which may lie elsewhere by now
/// @param out  of the cubin's size
/// @return whether it filled @p out to the last byte
bool unpack(const packed_image &image, bytes content,
            std::span<unsigned char> out);

/// Why an image could not be unpacked.
const char *refusal_of(const packed_image &image);

/// Calls @p take with each image of @p file. That may be a cubin, a fatbin, an
/// ELF file with fatbins in it, or text in PTX. An image's content is there
/// during the call.
/// @param wanted  asked of each image in a fatbin whether to take it, by its
///   architecture, and whether it is machine code; may be empty
void each_image(bytes file, const std::function<void(const code_image &)> &take,
                const std::function<bool(unsigned sm, bool code)> &wanted = {});

/// The file that begins at an address. The driver has read it before. It may be
/// a cubin, a fatbin, or the wrapper of one that CUDA's compiler makes.
/// @return nothing for any other, such as text
bytes file_at(const void *image);

/// Unpacks a block of LZ4 without a frame.
/// @return whether it filled @p out to the last byte
bool unpack_lz4(bytes from, std::span<unsigned char> out);

/// Looks for the system's library of Zstandard. Takes the dynamic linker's
/// lock, so no lock may be held that a library's constructor or destructor
/// waits for.
void find_zstandard();

/// Unpacks a frame of Zstandard by the library that find_zstandard() found.
/// @return whether there is one, and it filled @p out to the last byte
bool unpack_zstandard(bytes from, std::span<unsigned char> out);

} // namespace emuv::cuda::proof
