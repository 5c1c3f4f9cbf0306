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
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>

#include <unistd.h>

namespace emuvctl {

namespace {

std::filesystem::path folder(const environment &env)
{
    return env.run / "emuv/tiers";
}

// In the place of a UUID.
constexpr std::string_view nobody = "-";

// The UUID of the instance whose number a tier names; empty by a name, or
// without such an instance.
std::string uuid_by_number(const emuv::tier &tier, const environment &env)
{
    if (const auto id = emuv::parse_instance(tier.instance))
        if (const auto info = env.sysfs().instance(*id))
            return info->uuid;
    return {};
}

// The tiers in a line, and the UUIDs of those that lend in the next.
void write(const std::vector<given_tier> &given, const std::string &uuid,
           const environment &env)
{
    std::vector<emuv::tier> tiers;
    std::string lenders;
    for (const auto &each : given) {
        tiers.push_back(each.tier);
        lenders += lenders.empty() ? "" : " ";
        lenders += each.lender.empty() ? nobody : each.lender;
    }
    put_file(folder(env) / uuid, folder(env) / ("." + uuid),
             emuv::format_tiers(tiers) + "\n" + lenders + "\n",
             lasting::until_reboot);
}

} // namespace

std::vector<given_tier> given_tiers(const std::string &uuid,
                                    const environment &env)
{
    const auto text = emuv::read_line_file(folder(env) / uuid);
    if (!text)
        return {};
    std::istringstream lines(*text);
    std::string line;
    std::getline(lines, line);
    std::vector<given_tier> given;
    try {
        for (auto &tier : emuv::parse_tiers(line))
            given.push_back({.tier = std::move(tier), .lender = {}});
    } catch (const std::invalid_argument &) {
        return {};
    }
    for (auto &each : given) {
        if (!(lines >> each.lender) || each.lender == nobody)
            each.lender.clear();
        const auto now = uuid_by_number(each.tier, env);
        each.holds = each.lender.empty() || now.empty() || now == each.lender;
    }
    return given;
}

std::vector<emuv::tier> tiers_of_instance(const std::string &uuid,
                                          const environment &env)
{
    std::vector<emuv::tier> tiers;
    for (auto &each : given_tiers(uuid, env))
        if (each.holds)
            tiers.push_back(std::move(each.tier));
    return tiers;
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
        std::vector<given_tier> given;
        for (const auto &tier : tiers)
            given.push_back({tier, uuid_by_number(tier, env)});
        write(given, uuid, env);
    }
    follow_cdi_devices(lock, gone_devices::keep_harmless, env);
}

void note_lenders(const names_lock & /*held*/, const environment &env) noexcept
{
    try {
        for (const auto &entry : emuv::entries(folder(env))) {
            const auto uuid = entry.path().filename().string();
            if (uuid.starts_with('.'))
                continue;
            bool noted = false;
            auto given = given_tiers(uuid, env);
            for (auto &each : given)
                if (each.lender.empty()) {
                    each.lender = uuid_by_number(each.tier, env);
                    noted = noted || !each.lender.empty();
                }
            if (noted)
                write(given, uuid, env);
        }
    } catch (...) {
        return; // they go by their numbers, as before
    }
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
