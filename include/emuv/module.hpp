// SPDX-License-Identifier: LGPL-2.1-or-later
// The kernel module: loading, unloading, and the fields of its file.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace emuv {

/// The fields in a module's file.
struct module_file
{
    std::string path;
    std::string version;
    std::string vermagic; ///< starts with the kernel release it is for
    std::string signer;   ///< empty if unsigned
    /// Names and descriptions of its parameters.
    std::vector<std::pair<std::string, std::string>> parameters;
};

/// The kernel's module loader. All calls throw emuv::error. The error's node()
/// is the module, and its call() is "init_module", "delete_module" or "lookup".
/// After a "lookup" there is no such file, or it cannot be read.
class module_api
{
public:
    module_api() = default;
    module_api(const module_api &) = delete;
    module_api &operator=(const module_api &) = delete;
    virtual ~module_api();

    /// Loads a module into the kernel.
    /// @param module  a path with a slash, or a name that is looked up in
    ///   /lib/modules for the running kernel
    /// @param parameters  as on insmod's command line, "a=1 b=2".
    /// @throws emuv::error EEXIST loaded already. ENOENT no file. ENOEXEC built
    ///   for another kernel. EKEYREJECTED, EINVAL, EPERM ...
    virtual void load(const std::string &module,
                      const std::string &parameters) = 0;
    /// Unloads a module from the kernel.
    /// @throws emuv::error EWOULDBLOCK or EBUSY the module is in use, ENOENT it
    ///   is not loaded, EPERM
    virtual void unload(const std::string &name) = 0;
    /// Reads a module's file, if there is one. @param module  as for load()
    virtual std::optional<module_file> info(const std::string &module) = 0;

    /// The running kernel, through libkmod.
    static module_api &system();
};

} // namespace emuv
