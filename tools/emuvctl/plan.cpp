// SPDX-License-Identifier: GPL-2.0-or-later
// Compares profiles with instances: finds those that are there, missing,
// different or too many.
#include "plan.hpp"

#include <emuv/gpu_model.hpp>

#include <algorithm>
#include <set>

namespace emuvctl {

namespace {

// The bytes that one client may allocate, as the driver shows them.
std::uint64_t client_part(const emuv::instance_spec &of)
{
    return of.client_virtual_bytes == 0
               ? of.virtual_bytes
               : std::min(of.client_virtual_bytes, of.virtual_bytes);
}

} // namespace

bool fits(const emuv::instance_spec &wanted, const emuv::instance_info &has)
{
    return wanted.physical_bytes == has.physical_bytes &&
           wanted.virtual_bytes == has.virtual_bytes &&
           client_part(wanted) == has.client_virtual_bytes &&
           wanted.pci_device_id == has.pci_device_id &&
           wanted.numa_node == has.numa_node &&
           wanted.numa_bind == has.numa_bind &&
           // The driver tells of no path.
           wanted.swap.empty() == !has.swaps &&
           wanted.guaranteed == has.guaranteed &&
           emuv::same_gpu_model(wanted.gpu_model, has.gpu_model);
}

plan match(std::span<const emuv::profile> profiles,
           std::span<const emuv::instance_info> instances,
           const std::map<std::string, std::string> &names)
{
    plan result;
    std::set<int> taken;
    for (const auto &from : profiles)
        for (const auto &wanted : from.instances()) {
            plan_item item;
            item.from = &from;
            item.wanted = wanted;
            result.items.push_back(std::move(item));
        }

    const auto is_named = [&](const plan_item &item,
                              const emuv::instance_info &one) {
        const auto name = names.find(one.uuid);
        return item.from->count == 1 && name != names.end() &&
               name->second == item.from->name;
    };
    // Gives an item the first instance of a kind that no other item has.
    const auto give = [&](plan_item &item, const auto &suits) {
        const auto at =
            std::find_if(instances.begin(), instances.end(),
                         [&](const emuv::instance_info &one) {
                             return !taken.contains(one.id) && suits(one);
                         });
        if (at == instances.end())
            return;
        item.found = *at;
        item.matches = fits(item.wanted, *at);
        item.named = is_named(item, *at);
        taken.insert(at->id);
    };
    // Those with an id first: the others must not take theirs.
    for (auto &item : result.items)
        if (item.wanted.id != emuv::any)
            give(item,
                 [&](const auto &one) { return one.id == item.wanted.id; });
    for (auto &item : result.items)
        if (item.missing() && item.wanted.id == emuv::any)
            give(item, [&](const auto &one) { return is_named(item, one); });
    for (auto &item : result.items)
        if (item.missing() && item.wanted.id == emuv::any)
            give(item, [&](const auto &one) { return fits(item.wanted, one); });
    for (const auto &one : instances)
        if (!taken.contains(one.id))
            result.extra.push_back(one);
    return result;
}

} // namespace emuvctl
