// SPDX-License-Identifier: GPL-2.0-or-later
// Reads tapes for what they tell of memory over time.
#pragma once

#include "report/run.hpp"

#include <span>
#include <string>

namespace emuv::report {

/// Reads a tape from an open file, which may be a pipe.
/// @param path  for messages
/// @param begun  the bytes that were read of it already @throws unreadable
run read_tape(const std::string &path, int file,
              std::span<const unsigned char> begun);

} // namespace emuv::report
