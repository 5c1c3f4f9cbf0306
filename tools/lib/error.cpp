// SPDX-License-Identifier: LGPL-2.1-or-later
// The one place where an errno becomes an exception.
#include <emuv/error.hpp>

#include <cctype>
#include <cerrno>
#include <utility>

#include <linux/emuv.h>

namespace emuv {

error::error(int errnum, std::string node, std::string call, int id)
    : std::system_error(errnum, std::generic_category(), node + ": " + call),
      node_(std::move(node)), call_(std::move(call)), id_(id)
{}

abi_mismatch::abi_mismatch(std::string node, unsigned abi,
                           const std::string &module_version)
    : error(EPROTO, node, "EMUV_IOC_VERSION"),
      text_(node + ": the module (version " + module_version + ") speaks ABI " +
            std::to_string(abi) + ", this program " +
            std::to_string(EMUV_ABI_VERSION) + ": " +
            (abi < EMUV_ABI_VERSION ? "load a newer module"
                                    : "install newer tools"))
{}

std::string errno_text(int errnum)
{
    std::string text = std::generic_category().message(errnum);
    // "Invalid argument" but "RFS specific error" and the like stay.
    if (text.size() > 1 &&
        std::islower(static_cast<unsigned char>(text[1])) != 0)
        text[0] = static_cast<char>(
            std::tolower(static_cast<unsigned char>(text[0])));
    return text;
}

} // namespace emuv
