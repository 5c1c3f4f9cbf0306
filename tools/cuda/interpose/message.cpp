// SPDX-License-Identifier: LGPL-2.1-or-later
// The library's messages, a line at a time, on stderr.
#include "interpose/message.hpp"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include <unistd.h>

namespace emuv::cuda {

void say(const char *format, ...)
{
    char line[512] = "emuV: ";
    const std::size_t prefix = std::strlen(line);
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(line + prefix, sizeof line - prefix - 1, format, arguments);
    va_end(arguments);
    std::size_t length = std::strlen(line);
    line[length++] = '\n';
    // A failed message has no other way out.
    if (write(STDERR_FILENO, line, length) < 0)
        return;
}

} // namespace emuv::cuda
