// SPDX-License-Identifier: GPL-2.0-or-later
// Pastes into emuvctl diagnose, pickles among them.
#include "finding.hpp"
#include "fuzz.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size)
{
    const auto made = emuv::diagnose::diagnose(fuzz::text_of(data, size));
    for (const auto &each : made.findings) {
        fuzz::must(!each.causes.empty(), "each finding has a cause");
        for (const auto &one : each.remedies)
            fuzz::must(!one.line.empty() && !one.price.empty(),
                       "each remedy is a line with a price");
    }
    fuzz::must(made.findings.empty() ==
                   emuv::diagnose::screen(made, 80).empty(),
               "a finding is shown");
    return 0;
}
