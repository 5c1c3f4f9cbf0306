// SPDX-License-Identifier: GPL-2.0-or-later
// A file's bytes one after the other, for a parser that keeps whatever it is in
// the middle of. A text or a number that is too long ends the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace emuv::report {

/// JSON's bytes. No text and no number of it passes token_bytes: behind that
/// many the file is taken to have ended.
class bytes
{
public:
    static constexpr std::size_t token_bytes = std::size_t{64} << 10;

    /// Writes up to so many bytes to a place. @return how many; 0 at the end
    using source = std::function<std::size_t(char *to, std::size_t most)>;

    /// @throws whatever the source does
    explicit bytes(source from) : from_(std::move(from)) { fill(); }
    bytes(const bytes &) = delete;
    bytes &operator=(const bytes &) = delete;

    [[nodiscard]] bool at_end() const { return at_ == block_.size(); }
    [[nodiscard]] char now() const { return block_[at_]; }
    void next();

    /// True if a text or a number was too long.
    [[nodiscard]] bool too_long() const { return too_long_; }
    /// Bytes that were read.
    [[nodiscard]] std::uint64_t count() const { return before_ + at_; }

    /// An input iterator, as parsers ask for.
    class iterator
    {
    public:
        using iterator_category = std::input_iterator_tag;
        using value_type = char;
        using difference_type = std::ptrdiff_t;
        using pointer = const char *;
        using reference = char;

        iterator() = default;
        explicit iterator(bytes &of) : of_(&of) {}
        char operator*() const { return of_->now(); }
        iterator &operator++()
        {
            of_->next();
            return *this;
        }
        void operator++(int) { of_->next(); }
        friend bool operator==(const iterator &a, const iterator &b)
        {
            return a.ends() == b.ends();
        }

    private:
        [[nodiscard]] bool ends() const
        {
            return of_ == nullptr || of_->at_end();
        }
        bytes *of_ = nullptr;
    };
    iterator begin() { return iterator(*this); }
    static iterator end() { return {}; }

private:
    void fill();

    source from_;
    std::vector<char> block_;
    std::size_t at_ = 0;
    std::uint64_t before_ = 0;
    std::size_t token_ = 0;
    bool in_text_ = false;
    bool escaped_ = false;
    bool too_long_ = false;
};

/// The kind of a file by its first bytes, in words: "a zip archive". Empty if
/// it may be JSON.
std::string kind_of(std::string_view head);

} // namespace emuv::report
