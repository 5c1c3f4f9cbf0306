// SPDX-License-Identifier: GPL-2.0-or-later
// A sample as metrics, in Prometheus' text format.
#pragma once

#include "sample.hpp"

#include <string>
#include <string_view>

namespace emuvctl::watch {

/// The content type of metrics_text().
inline constexpr std::string_view metrics_type =
    "text/plain; version=0.0.4; charset=utf-8";

/// A sample in Prometheus' text format 0.0.4. Sizes are in bytes, times in
/// seconds. Series of an instance have the label `vgpu` ("emuv0"), and `UUID`
/// where the card is known, as dcgm-exporter has it.
std::string metrics_text(const sample &of);

/// A label's value with '\', '"' and line ends escaped. Other control
/// characters become '?', bytes that are no UTF-8 U+FFFD.
std::string escape_label(std::string_view value);

} // namespace emuvctl::watch
