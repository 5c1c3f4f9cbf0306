// SPDX-License-Identifier: LGPL-2.1-or-later
// Files that hold code for several architectures.
#include "proof/fatbin.hpp"

#include "base/glibc.hpp"
#include "proof/elf.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

#include <dlfcn.h>

namespace emuv::cuda::proof {

namespace {

constexpr std::uint32_t container_magic = 0xba55ed50;
constexpr std::uint32_t wrapper_magic = 0x466243b1;
constexpr std::uint16_t kind_text = 1;
constexpr std::uint16_t kind_code = 2;
constexpr std::uint64_t packed_lz4 = 0x2000;
constexpr std::uint64_t packed_zstandard = 0x8000;
constexpr std::uint64_t largest = 512ULL << 20; // unpacked
constexpr std::uint64_t shortest_header = 64;

// Bits of an image's header that say nothing about the card: of its words'
// width, its system, and how it is packed.
constexpr std::uint64_t plain_flags = 0x1f | packed_lz4 | packed_zstandard;

using taker = std::function<void(const code_image &)>;
using chooser = std::function<bool(unsigned sm, bool code)>;
using image_taker = std::function<void(const packed_image &)>;

void refuse(const image_taker &take, const char *why)
{
    packed_image one;
    one.refused = why;
    take(one);
}

packed_image whole_file(bytes content)
{
    packed_image one;
    one.is = packed_image::kind::code;
    one.content = content;
    one.bytes_of = content.size();
    return one;
}

// An image of a container, by its header.
packed_image image_in(bytes header, bytes content)
{
    const auto kind = number_or_zero<std::uint16_t>(header, 0);
    const auto packed = number_or_zero<std::uint32_t>(header, 16);
    const auto flags = number_or_zero<std::uint64_t>(header, 40);
    const auto unpacked = number_or_zero<std::uint64_t>(header, 56);
    packed_image one;
    one.sm = number_or_zero<std::uint32_t>(header, 28);
    one.special = (flags & ~plain_flags) != 0;
    if (kind == kind_text) {
        one.is = packed_image::kind::text;
        one.refused = "text in PTX, which the driver compiles";
        return one;
    }
    if (kind != kind_code) {
        one.refused = "an entry of a kind that is not known";
        return one;
    }
    one.is = packed_image::kind::code;
    if ((flags & (packed_lz4 | packed_zstandard)) == 0) {
        one.content = content;
        one.bytes_of = content.size();
        return one;
    }
    one.packed = (flags & packed_zstandard) != 0
                     ? packed_image::packing::zstandard
                     : packed_image::packing::lz4;
    one.content = subspan_of(content, 0, packed);
    if (packed == 0 || one.content.empty() || unpacked == 0 ||
        unpacked > largest ||
        // More than a block can hold.
        unpacked / 4096 > one.content.size())
        one.refused = "packed code that makes no sense";
    one.bytes_of = static_cast<std::size_t>(unpacked);
    return one;
}

// Goes through a container, from behind its header.
void each_in_container(bytes container, const image_taker &take)
{
    std::uint64_t at = 0;
    while (at < container.size()) {
        const bytes rest = container.subspan(static_cast<std::size_t>(at));
        const auto header = number_at<std::uint32_t>(rest, 4);
        const auto padded = number_at<std::uint64_t>(rest, 8);
        if (!header || !padded || *header < shortest_header ||
            *header > rest.size() || *padded > rest.size() - *header)
            return refuse(take, "a fatbin that makes no sense");
        take(image_in(rest, subspan_of(rest, *header, *padded)));
        at += *header + *padded;
    }
}

// One container behind another, with zeros between them.
void each_container(bytes from, const image_taker &take)
{
    std::uint64_t at = 0;
    while (at < from.size()) {
        const auto magic = number_or_zero<std::uint32_t>(from, at);
        if (magic != container_magic) {
            if (magic != 0)
                return refuse(take, "a fatbin that makes no sense");
            at += 4;
            continue;
        }
        const auto header = number_at<std::uint16_t>(from, at + 6);
        const auto size = number_at<std::uint64_t>(from, at + 8);
        if (number_or_zero<std::uint16_t>(from, at + 4) != 1 || !header ||
            !size || *header < 16 || *header > from.size() - at ||
            *size > from.size() - at - *header)
            return refuse(take, "a fatbin of a version that is not known");
        each_in_container(subspan_of(from, at + *header, *size), take);
        at += *header + *size;
    }
}

bool is_text(bytes file)
{
    const std::string_view begin(reinterpret_cast<const char *>(file.data()),
                                 std::min<std::size_t>(file.size(), 4096));
    return begin.find(".version") != std::string_view::npos &&
           begin.find('\0') == std::string_view::npos;
}

void each_image(bytes file, const image_taker &take)
{
    if (is_elf(file)) {
        const auto read = read_elf(file);
        if (!read)
            return refuse(take, "an ELF file that makes no sense");
        if (read->machine == machine_cuda)
            return take(whole_file(file));
        for (const section &each : read->sections)
            if (each.name == ".nv_fatbin" || each.name == "__nv_relfatbin")
                each_container(each.content, take);
        return;
    }
    if (number_or_zero<std::uint32_t>(file, 0) == container_magic)
        return each_container(file, take);
    if (is_text(file))
        return refuse(take, "text in PTX, which the driver compiles");
    refuse(take, "a file of a kind that is not known");
}

using unpacker = std::size_t (*)(void *, std::size_t, const void *,
                                 std::size_t);
std::atomic<unpacker> zstandard;

} // namespace

bool unpack_lz4(bytes from, std::span<unsigned char> out)
{
    std::size_t at = 0;
    std::size_t filled = 0;
    const auto longer = [&](std::size_t &length) {
        unsigned char more = 255;
        while (more == 255) {
            if (at >= from.size() || length > out.size())
                return false;
            more = from[at++];
            length += more;
        }
        return true;
    };
    while (at < from.size()) {
        const unsigned char token = from[at++];
        std::size_t literals = token >> 4;
        if (literals == 15 && !longer(literals))
            return false;
        if (literals > from.size() - at || literals > out.size() - filled)
            return false;
        if (literals != 0)
            std::memcpy(out.data() + filled, from.data() + at, literals);
        at += literals;
        filled += literals;
        if (at == from.size())
            break; // the last one ends behind its literals
        if (from.size() - at < 2)
            return false;
        const std::size_t back = from[at] + 256U * from[at + 1];
        at += 2;
        std::size_t length = token & 15U;
        if (length == 15 && !longer(length))
            return false;
        length += 4;
        if (back == 0 || back > filled || length > out.size() - filled)
            return false;
        for (std::size_t i = 0; i < length; i++, filled++)
            out[filled] = out[filled - back]; // they may overlap
    }
    return filled == out.size();
}

void find_zstandard()
{
    using open = void *(*)(const char *, int);
    if (zstandard.load() != nullptr)
        return;
    // By its name: glibc moved it between libraries. The opened library stays
    // for good.
    const auto opens = reinterpret_cast<open>(dlsym(RTLD_DEFAULT, "dlopen"));
    void *const library = opens != nullptr
                              ? opens("libzstd.so.1", RTLD_NOW | RTLD_LOCAL)
                              : nullptr;
    if (library != nullptr)
        zstandard.store(
            reinterpret_cast<unpacker>(dlsym(library, "ZSTD_decompress")));
}

bool unpack_zstandard(bytes from, std::span<unsigned char> out)
{
    const unpacker call = zstandard.load();
    // An error is a number that is larger than any size.
    return call != nullptr &&
           call(out.data(), out.size(), from.data(), from.size()) == out.size();
}

bool unpack(const packed_image &image, bytes content,
            std::span<unsigned char> out)
{
    switch (image.packed) {
    case packed_image::packing::lz4:
        return unpack_lz4(content, out);
    case packed_image::packing::zstandard:
        return unpack_zstandard(content, out);
    case packed_image::packing::none:
        break;
    }
    if (content.size() != out.size())
        return false;
    std::copy(content.begin(), content.end(), out.begin());
    return true;
}

void each_image(bytes file, const taker &take, const chooser &wanted)
{
    each_image(file, [&](const packed_image &image) {
        // An image that makes no sense is nobody's.
        const bool makes_sense =
            image.sm != 0 || image.is != packed_image::kind::other;
        if (wanted && makes_sense && !is_elf(file) &&
            !wanted(image.sm, image.is == packed_image::kind::code))
            return;
        code_image one;
        one.sm = image.sm;
        one.refused = image.refused;
        if (image.refused != nullptr)
            return take(one);
        if (image.packed == packed_image::packing::none) {
            one.content = image.content;
            return take(one);
        }
        find_zstandard();
        buffer unpacked(image.bytes_of);
        if (unpacked && unpack(image, image.content, unpacked.all()))
            one.content = unpacked.all();
        else
            one.refused = refusal_of(image);
        take(one);
    });
}

const char *refusal_of(const packed_image &image)
{
    return image.packed == packed_image::packing::zstandard
               ? "packed with Zstandard, which cannot be unpacked here"
               : "packed code that cannot be unpacked";
}

bytes file_at(const void *image)
{
    if (image == nullptr)
        return {};
    const auto *at = static_cast<const unsigned char *>(image);
    std::uint32_t magic = 0;
    std::memcpy(&magic, at, sizeof magic);
    if (magic == wrapper_magic) {
        std::memcpy(&at, at + 8, sizeof at);
        if (at == nullptr)
            return {};
        std::memcpy(&magic, at, sizeof magic);
    }
    if (magic == container_magic) {
        const bytes head(at, 16);
        return {at, number_or_zero<std::uint16_t>(head, 6) +
                        static_cast<std::size_t>(
                            number_or_zero<std::uint64_t>(head, 8))};
    }
    if (magic != elf_magic)
        return {};
    return {at, elf_bytes(at)};
}

void each_image_for(unsigned sm, bytes file, const image_taker &take)
{
    using kind = packed_image::kind;
    if (is_elf(file))
        return each_image(file, take);
    bool exact = false;
    each_image(file, [&](const packed_image &one) {
        exact = exact || (one.is == kind::code && one.sm == sm);
    });
    bool any = false;
    each_image(file, [&](const packed_image &one) {
        const bool fits =
            exact ? one.sm == sm : one.sm / 10 == sm / 10 && one.sm <= sm;
        if (one.is == kind::text)
            return;
        if (one.is == kind::other) {
            // It may be for this card all the same.
            if (one.sm == 0 || one.sm / 10 == sm / 10)
                take(one);
            any = true;
            return;
        }
        if (!fits)
            return;
        any = true;
        packed_image image = one;
        if (!exact && one.special && image.refused == nullptr)
            image.refused = "code for another card's own features";
        take(image);
    });
    if (!any)
        refuse(take, "no machine code for this card");
}

} // namespace emuv::cuda::proof
