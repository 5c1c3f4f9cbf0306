// SPDX-License-Identifier: GPL-2.0-or-later
// The names that people give instances. The driver knows numbers and UUIDs
// alone; /run/emuv/names has a file for each name, with the UUID in it.
#pragma once

#include <emuv/unique_fd.hpp>

#include <map>
#include <string>

namespace emuvctl {

struct environment;

/// While it lives, no other emuvctl gives or takes names, destroys instances or
/// writes definitions. One that cannot be had, for want of rights, holds nobody
/// up: what it is for will fail by itself.
class names_lock
{
public:
    /// For when nobody has given any name yet.
    enum class folder
    {
        leave, ///< hold nothing: there is no name that could mislead
        make,
    };
    explicit names_lock(const environment &env, folder missing = folder::leave);

private:
    emuv::unique_fd file_;
};

/// Names by UUID, those of instances that have gone since included. Empty
/// where nobody has given any.
std::map<std::string, std::string> read_names(const environment &env);

/// Gives an instance a name that no instance there is has. Names of instances
/// that have gone go, too.
/// @throws failure one has it
/// @throws std::system_error
void give_name(const std::string &name, const std::string &uuid,
               const environment &env);

/// Removes the names and tiers of instances that have gone. Any that cannot be
/// removed stay, and mean nothing.
void forget_names(const names_lock &held, const environment &env) noexcept;

/// The instance that has a name; -1 if there is none.
int find_name(const std::string &name, const environment &env);

} // namespace emuvctl
