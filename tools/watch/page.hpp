// SPDX-License-Identifier: GPL-2.0-or-later
// The page that shows the metrics in a browser, as they come.
#pragma once

#include <string_view>

namespace emuvctl::watch {

/// The page, whole: it loads nothing but "metrics", beside it.
std::string_view page();

} // namespace emuvctl::watch
