// SPDX-License-Identifier: GPL-2.0-or-later
// Profile files: any text is read or refused. Profiles that were read are the
// same after being written and read again.
#include "fuzz.hpp"

#include <emuv/profile.hpp>

int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size)
{
    std::vector<emuv::profile> profiles;
    try {
        profiles = emuv::parse_profiles(fuzz::text_of(data, size), "input");
    } catch (const emuv::profile_error &error) {
        fuzz::must(!error.messages().empty(), "a refusal says why");
        return 0;
    }
    for (const auto &profile : profiles) {
        fuzz::must(profile.instances().size() == profile.count,
                   "a profile stands for as many instances as it says");
        const auto again =
            emuv::parse_profiles(emuv::format_profile(profile), "again");
        fuzz::must(again.size() == 1 && again[0].name == profile.name &&
                       again[0].spec == profile.spec &&
                       again[0].count == profile.count &&
                       emuv::format_tiers(again[0].tiers) ==
                           emuv::format_tiers(profile.tiers),
                   "what is written is read as the same");
    }
    return 0;
}
