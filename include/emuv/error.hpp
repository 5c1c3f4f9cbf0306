// SPDX-License-Identifier: LGPL-2.1-or-later
// The exception thrown for every failed call on one of emuV's nodes.
#pragma once

#include <string>
#include <system_error>

namespace emuv {

/// A system call on a node failed. code() holds the errno, in the generic
/// category; what() reads "NODE: CALL: text of the errno".
class error : public std::system_error
{
public:
    /// @param errnum  a positive errno
    /// @param node    the path that was used
    /// @param call    the ioctl's or system call's name, as in emuv.h
    /// @param id      the instance it was about; -1 if none in particular
    error(int errnum, std::string node, std::string call, int id = -1);

    /// The path that was used.
    [[nodiscard]] const std::string &node() const noexcept { return node_; }
    /// The name of the call that failed.
    [[nodiscard]] const std::string &call() const noexcept { return call_; }
    /// The instance that the call was about, or -1.
    [[nodiscard]] int id() const noexcept { return id_; }
    /// The errno.
    [[nodiscard]] int number() const noexcept { return code().value(); }

private:
    std::string node_;
    std::string call_;
    int id_;
};

/// The module speaks another version of the ABI than this library. Calls may
/// have another meaning there, so none is made. code() holds EPROTO.
class abi_mismatch : public error
{
public:
    /// @param node            the path that was opened
    /// @param abi             the module's EMUV_ABI_VERSION
    /// @param module_version  the module's own version
    abi_mismatch(std::string node, unsigned abi,
                 const std::string &module_version);

    /// "NODE: the module (version V) speaks ABI A, this program B: ..."
    [[nodiscard]] const char *what() const noexcept override
    {
        return text_.c_str();
    }

private:
    std::string text_;
};

/// The text of an errno, without the capital letter that strerror() gives it.
std::string errno_text(int errnum);

} // namespace emuv
