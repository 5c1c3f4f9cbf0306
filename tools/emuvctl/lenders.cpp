// SPDX-License-Identifier: GPL-2.0-or-later
// The instances that lend to a program.
#include "lenders.hpp"

#include "environment.hpp"
#include "failure.hpp"
#include "instances.hpp"
#include "settings.hpp"
#include "tiers.hpp"

#include <algorithm>
#include <exception>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace emuvctl {

namespace {

// The instance that lends, for a tier of another.
int lender_of(const given_tier &given, int borrower, const environment &env)
{
    int lender = -1;
    try {
        lender =
            parse_instances(std::span(&given.tier.instance, 1), env).front();
        if (!given.holds)
            throw failure(emuv::instance_name(lender) +
                          ": another instance has that number now");
        if (!env.sysfs().instance(lender))
            throw failure(emuv::instance_name(lender) + ": no such instance");
    } catch (const std::exception &problem) {
        throw failure(fmt::format(
            "a tier of {}: {}", emuv::instance_name(borrower), problem.what()));
    }
    return lender;
}

void add_tiers(program_instances &to, const std::vector<given_tier> &tiers,
               const environment &env)
{
    const int first = to.ids.front();
    std::vector<int> lenders = {first};
    for (const auto &each : tiers) {
        const int lender = lender_of(each, first, env);
        if (std::find(lenders.begin(), lenders.end(), lender) != lenders.end())
            throw failure(fmt::format(
                "{} has {} as its tier{}", emuv::instance_name(first),
                lender == first ? "itself" : emuv::instance_name(lender),
                lender == first ? "" : " twice"));
        lenders.push_back(lender);
        auto at = std::find(to.ids.begin(), to.ids.end(), lender);
        if (at == to.ids.end())
            at = to.ids.insert(at, lender);
        to.tier += fmt::format("{}peer:{}={}", to.tier.empty() ? "" : ",",
                               at - to.ids.begin(), each.tier.bytes);
        to.lent += each.tier.bytes;
    }
}

} // namespace

std::vector<std::pair<std::string, std::string>>
program_instances::variables() const
{
    std::vector<std::pair<std::string, std::string>> set;
    if (!tier.empty())
        set.emplace_back("EMUV_TIER", tier);
    set.emplace_back("EMUV_INSTANCE", fmt::format("{}", fmt::join(ids, ",")));
    return set;
}

program_instances with_tiers(std::vector<int> ids, const environment &env)
{
    program_instances all;
    all.ids = std::move(ids);
    const int first = all.ids.front();
    if (const auto info = env.sysfs().instance(first))
        add_tiers(all, given_tiers(info->uuid, env), env);
    return all;
}

program_instances with_lenders(std::vector<int> ids,
                               const asked_settings &settings,
                               const environment &env)
{
    if (settings.of("EMUV_TIER").given() || settings.holds("EMUV_DISABLE")) {
        program_instances alone;
        alone.ids = std::move(ids);
        return alone;
    }
    program_instances all;
    try {
        all = with_tiers(std::move(ids), env);
    } catch (const failure &problem) {
        throw failure(fmt::format("{}; --tier none leaves its tiers out",
                                  problem.what()));
    }
    if (!all.tier.empty() && settings.value("EMUV_STORE") == "pages")
        throw usage_error(fmt::format("--store pages: the tiers of {} need the "
                                      "numa store; --tier none leaves them out",
                                      emuv::instance_name(all.ids.front())));
    return all;
}

} // namespace emuvctl
