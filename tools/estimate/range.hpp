// SPDX-License-Identifier: GPL-2.0-or-later
// A figure that is not known exactly.
#pragma once

#include <algorithm>

namespace emuv::estimate {

/// Three answers to one question, low <= likely <= high. Doubles are exact for
/// whole numbers up to 2^53, and hostile figures cannot overflow them.
struct range
{
    double low = 0;
    double likely = 0;
    double high = 0;

    /// A figure that is known.
    static range exactly(double value) { return {value, value, value}; }

    range &operator+=(const range &other)
    {
        low += other.low;
        likely += other.likely;
        high += other.high;
        return *this;
    }
    friend range operator+(range a, const range &b) { return a += b; }
    friend range operator*(range a, double factor)
    {
        return {a.low * factor, a.likely * factor, a.high * factor};
    }
    bool operator==(const range &) const = default;
};

/// The larger, answer by answer.
inline range larger(const range &a, const range &b)
{
    return {std::max(a.low, b.low), std::max(a.likely, b.likely),
            std::max(a.high, b.high)};
}

} // namespace emuv::estimate
