// SPDX-License-Identifier: GPL-2.0-or-later
// Tapes, as movement_bench and emuvctl read them.
#include "fuzz.hpp"
#include "tape.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size)
{
    emuv::tape::tape read;
    emuv::tape::wrong error;
    if (!emuv::tape::read({data, size}, read, error)) {
        fuzz::must(!error.why.empty(), "a refused tape has a reason");
        return 0;
    }
    for (const auto &each : read.steps) {
        fuzz::must(each.first_name + each.names <= read.names.size(),
                   "names are there");
        for (const auto &one : read.names_of(each))
            fuzz::must(one.allocation < read.allocations.size() &&
                           one.offset < read.allocations[one.allocation].bytes,
                       "a name lies in its allocation");
        if (each.what == emuv::tape::code::graph_launch)
            fuzz::must(emuv::tape::times_of(read, each).size() ==
                           read.graphs.at(each.which).count,
                       "each node has a time");
    }
    fuzz::must(emuv::tape::summarize(read).launches <= read.steps.size(),
               "launches are steps");
    return 0;
}
