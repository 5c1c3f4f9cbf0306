// SPDX-License-Identifier: GPL-2.0-or-later
// When something that grows will have reached its limit.
#include "forecast.hpp"

namespace emuvctl::watch {

std::optional<double> seconds_until(std::span<const growth_point> points,
                                    double limit)
{
    if (points.size() > forecast_points)
        points = points.last(forecast_points);
    if (points.size() < least_points)
        return std::nullopt;
    const auto n = static_cast<double>(points.size());
    double mean_at = 0;
    double mean_value = 0;
    for (const auto &one : points) {
        mean_at += one.at / n;
        mean_value += one.value / n;
    }
    double at_at = 0;
    double at_value = 0;
    double value_value = 0;
    for (const auto &one : points) {
        const double at = one.at - mean_at;
        const double value = one.value - mean_value;
        at_at += at * at;
        at_value += at * value;
        value_value += value * value;
    }
    if (at_at <= 0 || value_value <= 0 || at_value <= 0)
        return std::nullopt;
    if (at_value * at_value / (at_at * value_value) < least_fit)
        return std::nullopt;
    // A ramp that has ended fits a line for a while yet.
    const double last = points.back().value;
    if (last <= points[points.size() - points.size() / 3].value)
        return std::nullopt;
    const double left = (limit - last) / (at_value / at_at);
    if (left <= 0 || left > longest_forecast)
        return std::nullopt;
    return left;
}

} // namespace emuvctl::watch
