// SPDX-License-Identifier: GPL-2.0-or-later
// The tiers of instances.
#include "tiers.hpp"

#include "cdi.hpp"
#include "draft.hpp"
#include "environment.hpp"
#include "lib/entries.hpp"
#include "names.hpp"

#include <emuv/sysfs.hpp>

#include <cerrno>
#include <filesystem>
#include <stdexcept>
#include <system_error>

#include <unistd.h>

namespace emuvctl {

namespace {

std::filesystem::path folder(const environment &env)
{
    return env.run / "emuv/tiers";
}

} // namespace

std::vector<emuv::tier> tiers_of_instance(const std::string &uuid,
                                          const environment &env)
{
    const auto text = emuv::read_line_file(folder(env) / uuid);
    if (!text)
        return {};
    try {
        return emuv::parse_tiers(*text);
    } catch (const std::invalid_argument &) {
        return {};
    }
}

void give_tiers(const std::vector<emuv::tier> &tiers, const std::string &uuid,
                const environment &env)
{
    const auto file = folder(env) / uuid;
    std::error_code problem;
    if (tiers.empty() && !std::filesystem::exists(file, problem))
        return;
    // Nobody forgets tiers meanwhile who does not know of the instance yet.
    const names_lock lock(env, names_lock::folder::make);
    if (tiers.empty()) {
        if (::unlink(file.c_str()) != 0 && errno != ENOENT)
            throw std::system_error(errno, std::generic_category(),
                                    file.string());
    } else {
        make_folder(folder(env).parent_path()); // tells what is wrong
        make_folder(folder(env));
        put_file(file, folder(env) / ("." + uuid),
                 emuv::format_tiers(tiers) + "\n", lasting::until_reboot);
    }
    follow_cdi_devices(lock, gone_devices::keep_harmless, env);
}

void forget_tiers(const std::set<std::string> &there,
                  const environment &env) noexcept
{
    try {
        for (const auto &entry : emuv::entries(folder(env)))
            if (!there.contains(entry.path().filename().string()))
                ::unlink(entry.path().c_str());
    } catch (...) {
        return; // they mean nothing without their instances
    }
}

} // namespace emuvctl
