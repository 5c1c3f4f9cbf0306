// SPDX-License-Identifier: GPL-2.0-or-later
// The names that people give instances. The driver knows numbers and UUIDs
// alone; /run/emuv/names has a file for each name, with the UUID in it.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace emuvctl {

struct environment;

/// Throws std::invalid_argument unless this can be a name: 1 to 48 letters,
/// digits, '-', '_' and '.', with a letter first, and not "emuvN".
void check_name(std::string_view name);

/// Names by UUID, those of instances that have gone since included. Empty
/// where nobody has given any.
std::map<std::string, std::string> read_names(const environment &env);

/// Gives an instance a name that no instance there is has.
/// @throws failure one has it
/// @throws std::system_error
void give_name(const std::string &name, const std::string &uuid,
               const environment &env);

/// Takes the name from an instance that is gone; what cannot be removed stays,
/// and means nothing.
void forget_name(const std::string &uuid, const environment &env) noexcept;

/// The instance that has a name; -1 if there is none.
int find_name(const std::string &name, const environment &env);

} // namespace emuvctl
