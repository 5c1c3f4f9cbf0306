// SPDX-License-Identifier: GPL-2.0-or-later
// Passes on what a program writes, in whole lines.
#pragma once

#include <string>
#include <string_view>

namespace emuvctl::batch {

/// Text on its way from a program to a file or a terminal. Lines of programs
/// that run side by side then do not run into each other.
class relay
{
public:
    /// @param to  where it goes; the caller closes it
    /// @param before  written ahead of each line, to clear a line of progress
    explicit relay(int to, std::string_view before = {})
        : to_(to), before_(before)
    {}

    /// Takes text, and passes on the lines that it completes.
    void add(std::string_view text);
    /// Passes on what is left, as a line.
    void end();

    /// True if the CUDA library has said that it refused memory.
    [[nodiscard]] bool refused() const { return refused_; }

private:
    void pass(std::string_view line);

    int to_;
    std::string before_;
    std::string held_; // an incomplete line
    bool refused_ = false;
};

} // namespace emuvctl::batch
