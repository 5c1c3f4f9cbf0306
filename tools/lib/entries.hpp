// SPDX-License-Identifier: LGPL-2.1-or-later
// The entries of a folder, for a loop that no failure to read it ends with an
// exception.
#pragma once

#include <cstddef>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <utility>

namespace emuv {

/// In no order. A folder that cannot be opened has none, and they end where it
/// cannot be read on: it may go meanwhile.
class entries
{
public:
    class iterator
    {
    public:
        using difference_type = std::ptrdiff_t;
        using value_type = std::filesystem::directory_entry;

        iterator() = default;
        explicit iterator(std::filesystem::directory_iterator at)
            : at_(std::move(at))
        {}
        const value_type &operator*() const { return *at_; }
        iterator &operator++()
        {
            std::error_code problem;
            at_.increment(problem);
            if (problem)
                at_ = {};
            return *this;
        }
        void operator++(int) { ++*this; }
        bool operator==(std::default_sentinel_t /*end*/) const
        {
            return at_ == std::filesystem::directory_iterator();
        }

    private:
        std::filesystem::directory_iterator at_;
    };

    explicit entries(const std::filesystem::path &folder)
    {
        std::error_code ignored;
        *this = entries(folder, ignored);
    }
    /// @param problem  out: why it cannot be opened
    entries(const std::filesystem::path &folder, std::error_code &problem)
        : begin_(folder, problem)
    {}

    [[nodiscard]] iterator begin() const { return iterator(begin_); }
    [[nodiscard]] static std::default_sentinel_t end() { return {}; }

private:
    std::filesystem::directory_iterator begin_;
};

} // namespace emuv
