// SPDX-License-Identifier: LGPL-2.1-or-later
// The user's settings, read once from the environment.
#pragma once

#include "base/tiers.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace emuv::cuda {

/// The source of a setting.
enum class said_by
{
    nobody,
    defaults, ///< VARIABLE_DEFAULT: the program was started with it
    user,
};

// report_kind, store_kind, charged_kind, move_kind, away_kind: a name for each
// value that settings.def has.
#define EMUV_KIND_CHOICE(member, ...) enum class member##_kind{__VA_ARGS__};
#define EMUV_KIND_SWITCH EMUV_KIND_CHOICE
#define EMUV_KIND_INSTANCES(...)
#define EMUV_KIND_SIZE(...)
#define EMUV_KIND_TIERS(...)
#define EMUV_KIND_LEDGER(...)
#define EMUV_KIND_FLAG(...)
#define EMUV_KIND_NAMES(...)
#define EMUV_KIND_OUTPUT(...)
#define EMUV_KIND_LIBRARY(...)
#define EMUV_VALUE(name, word, help, text) name,
#define EMUV_SETTING(kind, member, variable, option, type, needs, help,        \
                     values, text)                                             \
    EMUV_KIND_##kind(member, values)
#include "base/settings.def"

/// The settings that settings.def lists, each as its member.
struct settings
{
// Of those that can have a default: move_by, tiers_by.
#define EMUV_MEMBER_BY(member) said_by member##_by = said_by::nobody;
#define EMUV_MEMBER_CHOICE(member) member##_kind member{};
#define EMUV_MEMBER_SWITCH(member)                                             \
    EMUV_MEMBER_CHOICE(member) EMUV_MEMBER_BY(member)
#define EMUV_MEMBER_INSTANCES(member) std::vector<int> member;
#define EMUV_MEMBER_SIZE(member) std::optional<std::uint64_t> member;
#define EMUV_MEMBER_TIERS(member)                                              \
    places member;                                                             \
    places default_##member; /* cards alone */                                 \
    EMUV_MEMBER_BY(member)
#define EMUV_MEMBER_LEDGER(member) const char *member = nullptr;
#define EMUV_MEMBER_FLAG(member) bool member = false;
#define EMUV_MEMBER_NAMES(member) const char *member = nullptr;
#define EMUV_MEMBER_OUTPUT(member) const char *member = nullptr;
#define EMUV_MEMBER_LIBRARY(member)
#define EMUV_VALUE(...)
#define EMUV_SETTING(kind, member, ...) EMUV_MEMBER_##kind(member)
#include "base/settings.def"

    /// The variable that could not be understood, and why; null when all
    /// could.
    const char *wrong_name = nullptr;
    const char *wrong_value = nullptr;
    const char *wrong_why = nullptr;

    /// True if there is a limit to keep at all.
    bool limited() const
    {
        return !disabled &&
               (physical_bytes || virtual_bytes || !instances.empty());
    }

    /// True if memory moves, or looks as if. With a store that does not move, a
    /// default is none.
    bool moves() const
    {
        return move != move_kind::off;
    }

    /// True if nothing is at the addresses of memory that has left VRAM.
    /// Without a word of the user's it is so unless the user vouches for
    /// kernels, whose addresses nobody has looked at.
    bool unmaps() const;

    /// Leaves out the instance of a device that was to lend by default, those
    /// behind it, and tiers there. Its user need not know of it, nor be allowed
    /// to use it.
    /// @return false where the user's own settings need it
    bool leave_out_lender(int device);

    /// The limit on a device's VRAM, where there are no instances.
    /// @param card  all that the card has
    std::uint64_t vram_limit(int device, std::uint64_t card) const
    {
        for (const tier &each : tiers.cards)
            if (each.device == device)
                return each.bytes;
        return physical_bytes.value_or(card);
    }
};

/// Reads them. The strings that the result points to are the environment's.
/// @param get  std::getenv, or a test's own
settings read_settings(char *(*get)(const char *name));

} // namespace emuv::cuda
