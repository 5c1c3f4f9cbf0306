// SPDX-License-Identifier: LGPL-2.1-or-later
// The library's messages, a line at a time, on stderr.
#pragma once

namespace emuv::cuda {

/// Writes "emuV: ..." and a newline in one write(), so that lines of several
/// processes do not mix. Longer than 500 characters is cut.
[[gnu::format(printf, 1, 2)]] void say(const char *format, ...);

} // namespace emuv::cuda
