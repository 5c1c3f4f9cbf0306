// SPDX-License-Identifier: GPL-2.0-or-later
// The socket at which virtual machines take an instance's memory, for the verbs
// that name it.
#pragma once

#include "verb.hpp"

#include <emuv/types.hpp>

#include <filesystem>
#include <string>
#include <vector>

namespace emuvctl {

struct environment;

/// The command line's words, as they are written.
struct vm_socket_options
{
    std::vector<std::string> instances;
    std::string socket; ///< --socket, or empty
};

/// The option that fills @p into, which has to outlive it.
option vm_socket_option(vm_socket_options &into);

/// The instance that is named.
/// @throws usage_error  another number of them
emuv::instance_info read_vm_instance(const vm_socket_options &options,
                                     const environment &env);

/// The socket of an instance, absolute: QEMU may be started in any folder.
std::filesystem::path vm_socket_path(const vm_socket_options &options,
                                     const emuv::instance_info &info,
                                     const environment &env);

} // namespace emuvctl
