// SPDX-License-Identifier: LGPL-2.1-or-later
// The version, as the file VERSION had it when this was built.
#include <emuv/version.hpp>

namespace emuv {

const char *version() noexcept
{
    return EMUV_VERSION;
}

} // namespace emuv
