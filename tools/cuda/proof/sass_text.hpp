// SPDX-License-Identifier: LGPL-2.1-or-later
// Decoded instructions as text, for tests. The library has no part in it, since
// std::string needs more of libstdc++ than it may link.
#pragma once

#include "proof/sass.hpp"

#include <string>

namespace emuv::cuda::proof {

/// The decoder's reading, for a comparison with nvdisasm's: the name, the
/// condition, the target and the sources that a proof goes by.
std::string describe(const instruction &what);

} // namespace emuv::cuda::proof
