// SPDX-License-Identifier: LGPL-2.1-or-later
// Files that hold code for several architectures.
#include "proof/fatbin.hpp"

#include "base/glibc.hpp"
#include "proof/elf.hpp"

#include <algorithm>
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

using taker = std::function<void(const code_image &)>;
using chooser = std::function<bool(unsigned sm, bool code)>;

void refuse(const taker &take, unsigned sm, const char *why)
{
    code_image one;
    one.sm = sm;
    one.refused = why;
    take(one);
}

void take_packed(bytes content, std::uint64_t size, std::uint64_t flags,
                 unsigned sm, const taker &take)
{
    if (size == 0 || size > largest ||
        // More than a block can hold.
        size / 4096 > content.size())
        return refuse(take, sm, "packed code that makes no sense");
    std::vector<unsigned char> unpacked(static_cast<std::size_t>(size));
    const bool zstandard = (flags & packed_zstandard) != 0;
    if (zstandard ? !unpack_zstandard(content, unpacked)
                  : !unpack_lz4(content, unpacked))
        return refuse(take, sm,
                      zstandard ? "packed with Zstandard, which cannot be "
                                  "unpacked here"
                                : "packed code that cannot be unpacked");
    code_image one;
    one.sm = sm;
    one.content = unpacked;
    take(one);
}

// Goes through a container, from behind its header.
void each_entry(bytes container, const taker &take, const chooser &wanted)
{
    std::uint64_t at = 0;
    while (at < container.size()) {
        const bytes rest = container.subspan(static_cast<std::size_t>(at));
        const auto kind = number_or_zero<std::uint16_t>(rest, 0);
        const auto header = number_at<std::uint32_t>(rest, 4);
        const auto padded = number_at<std::uint64_t>(rest, 8);
        const auto packed = number_or_zero<std::uint32_t>(rest, 16);
        const auto sm = number_or_zero<std::uint32_t>(rest, 28);
        const auto flags = number_or_zero<std::uint64_t>(rest, 40);
        const auto unpacked = number_or_zero<std::uint64_t>(rest, 56);
        if (!header || !padded || *header < shortest_header ||
            *header > rest.size() || *padded > rest.size() - *header)
            return refuse(take, 0, "a fatbin that makes no sense");
        const bytes content = part_of(rest, *header, *padded);
        at += *header + *padded;
        if (wanted && !wanted(sm, kind == kind_code))
            continue;
        if (kind == kind_text) {
            refuse(take, sm, "text in PTX, which the driver compiles");
            continue;
        }
        if (kind != kind_code) {
            refuse(take, sm, "an entry of a kind that is not known");
            continue;
        }
        if ((flags & (packed_lz4 | packed_zstandard)) == 0) {
            code_image one;
            one.sm = sm;
            one.content = content;
            take(one);
            continue;
        }
        const bytes exact = part_of(content, 0, packed);
        if (packed == 0 || exact.empty()) {
            refuse(take, sm, "packed code that makes no sense");
            continue;
        }
        take_packed(exact, unpacked, flags, sm, take);
    }
}

// One container behind another, with zeros between them.
void each_container(bytes from, const taker &take, const chooser &wanted)
{
    std::uint64_t at = 0;
    while (at < from.size()) {
        const auto magic = number_or_zero<std::uint32_t>(from, at);
        if (magic != container_magic) {
            if (magic != 0)
                return refuse(take, 0, "a fatbin that makes no sense");
            at += 4;
            continue;
        }
        const auto header = number_at<std::uint16_t>(from, at + 6);
        const auto size = number_at<std::uint64_t>(from, at + 8);
        if (number_or_zero<std::uint16_t>(from, at + 4) != 1 || !header ||
            !size || *header < 16 || *header > from.size() - at ||
            *size > from.size() - at - *header)
            return refuse(take, 0, "a fatbin of a version that is not known");
        each_entry(part_of(from, at + *header, *size), take, wanted);
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

bool unpack_zstandard(bytes from, std::span<unsigned char> out)
{
    using open = void *(*)(const char *, int);
    using unpack =
        std::size_t (*)(void *, std::size_t, const void *, std::size_t);
    // By its name: glibc moved it between libraries. The opened library stays
    // for good.
    const auto opens = reinterpret_cast<open>(dlsym(RTLD_DEFAULT, "dlopen"));
    void *const library = opens != nullptr
                              ? opens("libzstd.so.1", RTLD_NOW | RTLD_LOCAL)
                              : nullptr;
    const auto call = reinterpret_cast<unpack>(
        library != nullptr ? dlsym(library, "ZSTD_decompress") : nullptr);
    // An error is a number that is larger than any size.
    return call != nullptr &&
           call(out.data(), out.size(), from.data(), from.size()) == out.size();
}

void each_image(bytes file, const taker &take, const chooser &wanted)
{
    if (is_elf(file)) {
        const auto read = read_elf(file);
        if (!read)
            return refuse(take, 0, "an ELF file that makes no sense");
        if (read->machine == machine_cuda) {
            code_image one;
            one.content = file;
            take(one);
            return;
        }
        for (const section &each : read->sections)
            if (each.name == ".nv_fatbin" || each.name == "__nv_relfatbin")
                each_container(each.content, take, wanted);
        return;
    }
    if (number_or_zero<std::uint32_t>(file, 0) == container_magic)
        return each_container(file, take, wanted);
    if (is_text(file))
        return refuse(take, 0, "text in PTX, which the driver compiles");
    refuse(take, 0, "a file of a kind that is not known");
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

void each_image_for(unsigned sm, bytes file, const taker &take)
{
    if (is_elf(file))
        return each_image(file, take);
    unsigned best = 0;
    each_image(
        file, [](const code_image &) {},
        [&](unsigned one, bool code) {
            if (code && one / 10 == sm / 10 && one <= sm)
                best = std::max(best, one);
            return false;
        });
    if (best == 0)
        return refuse(take, 0, "no machine code for this card");
    each_image(file, take,
               [best](unsigned one, bool code) { return code && one == best; });
}

} // namespace emuv::cuda::proof
