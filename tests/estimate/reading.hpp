// SPDX-License-Identifier: GPL-2.0-or-later
// Reads models' files out of memory, for tests.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include <input.hpp>
#include <model.hpp>

namespace emuv::estimate {

inline std::unique_ptr<input> as_file(std::string_view content)
{
    return in_memory("file",
                     {reinterpret_cast<const unsigned char *>(content.data()),
                      content.size()});
}

/// The message of the unreadable that @p read throws; "" if it throws none.
template <typename Read>
std::string refusal(Read read)
{
    try {
        (void)read();
        return "";
    } catch (const unreadable &problem) {
        return problem.what();
    }
}

/// A number's bytes, the lowest first.
inline std::string little(std::uint64_t value, int bytes)
{
    std::string out;
    for (int i = 0; i < bytes; i++)
        out += static_cast<char>(value >> (8 * i) & 0xff);
    return out;
}

} // namespace emuv::estimate
