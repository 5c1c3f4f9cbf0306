// SPDX-License-Identifier: GPL-2.0-or-later
// The page's style, compiled in.
#pragma once

#include <string_view>

namespace emuv::report {

/// page.css. It has no character that XML would escape.
std::string_view style();

} // namespace emuv::report
