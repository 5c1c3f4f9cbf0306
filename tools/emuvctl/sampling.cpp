// SPDX-License-Identifier: GPL-2.0-or-later
// Reads what stats, serve and top show.
#include "sampling.hpp"

#include "cards.hpp"
#include "environment.hpp"
#include "instances.hpp"
#include "output.hpp"

#include <charconv>
#include <stdexcept>
#include <utility>

namespace emuvctl {

watch::sample take_sample(const sampling &what, const environment &env)
{
    watch::sample now;
    now.at = env.clock();
    now.loaded = env.sysfs().loaded();
    if (!now.loaded && what.without_module)
        return now;
    now.module_version = env.sysfs().module_version().value_or("");
    const auto cards = find_cards(env, nvml_state());
    for (auto &info : read_instances(what.ids, env)) {
        watch::instance_sample one;
        if (what.clients)
            one.clients = read_clients(info.id, env);
        one.card_uuid = uuid_of_card(cards, info.pci_device_id);
        one.info = std::move(info);
        now.instances.push_back(std::move(one));
    }
    return now;
}

double parse_seconds(const std::string &text)
{
    double seconds = 0;
    const char *const end = text.data() + text.size();
    const auto [stop, problem] = std::from_chars(text.data(), end, seconds);
    // Written so that NaN fails too.
    if (problem != std::errc() || stop != end ||
        !(seconds >= 0.01 && seconds <= 86400))
        throw std::invalid_argument("'" + printable(text) +
                                    "' is not a number of seconds from 0.01 "
                                    "to 86400");
    return seconds;
}

} // namespace emuvctl
