// SPDX-License-Identifier: GPL-2.0-or-later
// Sizes and numbers, as emuvctl and the CUDA library read them.
#include "fuzz.hpp"
#include "size_text.hpp"

#include <emuv/profile.hpp>
#include <emuv/size.hpp>

#include <cstring>
#include <stdexcept>

int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size)
{
    const auto text = fuzz::text_of(data, size);
    for (const unsigned shift : {0U, 20U, 30U})
        try {
            const auto bytes = emuv::parse_size(text, shift);
            fuzz::must(emuv::parse_size(std::to_string(bytes)) == bytes,
                       "a size is read as its bytes");
            fuzz::must(!emuv::format_size(bytes).empty() &&
                           !emuv::format_size_exact(bytes).empty(),
                       "a size can be shown");
        } catch (const std::invalid_argument &) {
            continue;
        }
    const auto read = emuv::read_size(text);
    const auto shown = emuv::show_size(read.bytes);
    fuzz::must(std::memchr(shown.text, 0, sizeof shown.text) != nullptr,
               "a size that is shown ends");
    try {
        const auto id = emuv::parse_integer(text, -1, EMUV_MAX_INSTANCES - 1);
        fuzz::must(id >= -1 && id < EMUV_MAX_INSTANCES,
                   "a number lies in its range");
    } catch (const std::invalid_argument &) {
    }
    try {
        static_cast<void>(emuv::parse_pci_device_id(text));
    } catch (const std::invalid_argument &) {
    }
    return 0;
}
