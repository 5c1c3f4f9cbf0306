// SPDX-License-Identifier: GPL-2.0-or-later
// Models' files, as emuvctl estimate reads them. The first byte says which.
#include "fuzz.hpp"

#include <cmath>

#include <fit.hpp>
#include <input.hpp>
#include <memory.hpp>

namespace {

emuv::estimate::model read(unsigned which, emuv::estimate::input &from)
{
    switch (which % 3) {
    case 0:
        return emuv::estimate::read_config(from);
    case 1:
        return emuv::estimate::read_safetensors(from, nullptr);
    default:
        return emuv::estimate::read_gguf(from);
    }
}

} // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size)
{
    if (size == 0)
        return 0;
    const auto from = emuv::estimate::in_memory("file", {data + 1, size - 1});
    try {
        const auto model = read(data[0], *from);
        fuzz::must(model.counted.all > 0, "a model has parameters");
        emuv::estimate::job job;
        for (const auto mode :
             {emuv::estimate::mode::inference, emuv::estimate::mode::train}) {
            job.mode = mode;
            const auto needs = emuv::estimate::compute(model, job);
            fuzz::must(std::isfinite(needs.peak.high), "a peak is finite");
            fuzz::must(needs.peak.low <= needs.peak.likely &&
                           needs.peak.likely <= needs.peak.high,
                       "low <= likely <= high");
        }
    } catch (const emuv::estimate::unreadable &problem) {
        fuzz::must(problem.what()[0] != '\0', "a refused file has a reason");
    }
    return 0;
}
