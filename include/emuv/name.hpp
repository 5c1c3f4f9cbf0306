// SPDX-License-Identifier: LGPL-2.1-or-later
// The names that people may give instances. The driver knows numbers alone.
#pragma once

#include <string_view>

namespace emuv {

/// True if this can be a name: 1 to 48 letters, digits, '-', '_' and '.', with
/// a letter first, and not "emuv" and a number.
bool is_name(std::string_view text);

/// Throws std::invalid_argument, with the rule, unless this can be a name.
void check_name(std::string_view text);

} // namespace emuv
