// SPDX-License-Identifier: LGPL-2.1-or-later
// Reading from bytes that somebody else wrote.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

namespace emuv::cuda::proof {

using bytes = std::span<const unsigned char>;

/// Bytes of our own. A host without memory for them leaves it empty, where a
/// vector ends the program.
class buffer
{
public:
    buffer() = default;
    explicit buffer(std::size_t size)
        : memory_(
              static_cast<unsigned char *>(std::malloc(size != 0 ? size : 1))),
          size_(memory_ != nullptr ? size : 0)
    {}
    explicit operator bool() const { return memory_ != nullptr; }
    [[nodiscard]] std::span<unsigned char> all() const
    {
        return {memory_.get(), size_};
    }

private:
    struct release
    {
        void operator()(unsigned char *which) const { std::free(which); }
    };
    std::unique_ptr<unsigned char, release> memory_;
    std::size_t size_ = 0;
};

/// The number at @p at, or nothing if it does not lie in @p from.
template <typename Number>
std::optional<Number> number_at(bytes from, std::uint64_t at)
{
    if (at > from.size() || from.size() - at < sizeof(Number))
        return std::nullopt;
    Number made;
    std::memcpy(&made, from.data() + at, sizeof made);
    return made;
}

/// The same where a zero stands for what is not there.
template <typename Number>
Number number_or_zero(bytes from, std::uint64_t at)
{
    return number_at<Number>(from, at).value_or(Number{});
}

/// Some of them, or none if it does not lie in @p from.
inline bytes subspan_of(bytes from, std::uint64_t at, std::uint64_t size)
{
    if (at > from.size() || from.size() - at < size)
        return {};
    return from.subspan(static_cast<std::size_t>(at),
                        static_cast<std::size_t>(size));
}

/// The text at @p at, up to its zero; empty if it has none.
inline std::string_view text_at(bytes from, std::uint64_t at)
{
    if (at >= from.size())
        return {};
    const auto *const begin = reinterpret_cast<const char *>(from.data()) + at;
    const void *const end =
        std::memchr(begin, 0, from.size() - static_cast<std::size_t>(at));
    if (end == nullptr)
        return {};
    return {begin,
            static_cast<std::size_t>(static_cast<const char *>(end) - begin)};
}

} // namespace emuv::cuda::proof
