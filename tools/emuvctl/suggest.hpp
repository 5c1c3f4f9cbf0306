// SPDX-License-Identifier: GPL-2.0-or-later
// Finds the word that a mistyped one was meant to be.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace emuvctl {

/// The word of @p known that @p given most likely stands for. It is the nearest
/// by letters changed, added, left out or swapped, or one that begins so. Case
/// does not matter.
/// @return empty where none is near
std::string nearest(std::string_view given, std::span<const std::string> known);

/// "; did you mean 'list'?", or empty where no word is near.
std::string did_you_mean(std::string_view given,
                         std::span<const std::string> known);

} // namespace emuvctl
