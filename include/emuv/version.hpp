// SPDX-License-Identifier: LGPL-2.1-or-later
// The version of this library and of the tools built with it.
#pragma once

namespace emuv {

/// "MAJOR.MINOR.PATCH".
const char *version() noexcept;

} // namespace emuv
