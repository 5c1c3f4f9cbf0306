// SPDX-License-Identifier: LGPL-2.1-or-later
// The kernel module as a file: loading, unloading, and the file's own fields.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace emuv {

/// The fields that a module's file holds about itself.
struct module_file
{
    std::string path;
    std::string version;
    std::string vermagic; ///< begins with the kernel release it was built for
    std::string signer;   ///< empty if it is not signed
    /// Names and descriptions of its parameters.
    std::vector<std::pair<std::string, std::string>> parameters;
};

/// The kernel's module loader. All calls throw emuv::error. Its node() is the
/// module, its call() one of "init_module", "delete_module" and "lookup":
/// "lookup" if there is no such file or it cannot be read.
class module_api
{
public:
    module_api() = default;
    module_api(const module_api &) = delete;
    module_api &operator=(const module_api &) = delete;
    virtual ~module_api();

    /// Puts a module into the kernel.
    /// @param module      a path with a slash, or a name that is looked up in
    ///   /lib/modules for the running kernel
    /// @param parameters  as on insmod's command line, "a=1 b=2"
    /// @throws emuv::error EEXIST it is there already, ENOENT no file,
    ///   ENOEXEC built for another kernel, EKEYREJECTED, EINVAL, EPERM ...
    virtual void load(const std::string &module,
                      const std::string &parameters) = 0;
    /// Takes a module out of the kernel.
    /// @throws emuv::error EWOULDBLOCK or EBUSY it is in use, ENOENT it
    ///   is not there, EPERM
    virtual void unload(const std::string &name) = 0;
    /// Reads a module's file, if there is one. @param module  as for load()
    virtual std::optional<module_file> info(const std::string &module) = 0;

    /// The running kernel, through libkmod.
    static module_api &system();
};

} // namespace emuv
