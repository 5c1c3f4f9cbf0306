// SPDX-License-Identifier: GPL-2.0-or-later
// What a fuzzed part and what drives it (libFuzzer, or replay.cpp) share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

/// Takes an input; ends the program if something does not hold.
extern "C" [[gnu::visibility("default")]] int
LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size);

namespace fuzz {

/// Ends the program, saying what does not hold, unless it does.
inline void must(bool holds, const char *what)
{
    if (holds)
        return;
    std::fprintf(stderr, "does not hold: %s\n", what);
    std::abort();
}

inline std::string_view text_of(const std::uint8_t *data, std::size_t size)
{
    return {reinterpret_cast<const char *>(data), size};
}

} // namespace fuzz
