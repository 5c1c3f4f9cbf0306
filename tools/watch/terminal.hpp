// SPDX-License-Identifier: GPL-2.0-or-later
// The terminal that frames are shown on, through ncurses.
#pragma once

#include "frame.hpp"

#include <memory>

namespace emuvctl::watch {

/// The terminal of standard input and output, taken over until it goes.
class terminal
{
public:
    /// @param colour  use it where the terminal has any
    /// @throws std::runtime_error the terminal cannot do it; the message says
    ///   why
    explicit terminal(bool colour);
    terminal(const terminal &) = delete;
    terminal &operator=(const terminal &) = delete;
    ~terminal();

    [[nodiscard]] int width() const;
    [[nodiscard]] int height() const;
    /// True if it shows block characters.
    [[nodiscard]] static bool unicode();
    void show(const frame &what);
    /// The next key, as in `keys`. Waits for it.
    /// @return keys::none after so many milliseconds, a signal, or a new size
    int read_key(int milliseconds);
    /// True if it has been hung up: no key comes any more.
    [[nodiscard]] static bool gone();

private:
    struct screen;
    std::unique_ptr<screen> screen_;
};

} // namespace emuvctl::watch
