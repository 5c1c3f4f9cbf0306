// SPDX-License-Identifier: GPL-2.0-or-later
// When something that grows will have reached its limit.
#pragma once

#include <optional>
#include <span>

namespace emuvctl::watch {

/// A value at a time, in seconds.
struct growth_point
{
    double at;
    double value;
};

inline constexpr std::size_t forecast_points = 120; ///< the window, at most
inline constexpr std::size_t least_points = 12;     ///< fewer tell nothing
inline constexpr double least_fit = 0.9;            ///< of R squared
inline constexpr double longest_forecast = 86400;   ///< seconds

/// The seconds until a line through the last points, by least squares, reaches
/// the limit. nullopt where the points fit no rising line, where the last third
/// of them did not rise, and beyond longest_forecast.
/// @param points  in the order of time
std::optional<double> seconds_until(std::span<const growth_point> points,
                                    double limit);

} // namespace emuvctl::watch
