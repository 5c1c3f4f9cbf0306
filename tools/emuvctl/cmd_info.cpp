// SPDX-License-Identifier: GPL-2.0-or-later
// emuvctl info: all there is to say about an instance.
#include "cards.hpp"
#include "environment.hpp"
#include "instances.hpp"
#include "names.hpp"
#include "process_container.hpp"
#include "tiers.hpp"
#include "verbs.hpp"

#include <emuv/gpu_model.hpp>
#include <emuv/size.hpp>

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace emuvctl {

namespace {

struct info_options
{
    std::vector<std::string> instances;
    output_options output;
};

constexpr std::array<column, 17> client_columns = {{
    {"pid", "PID", kind::number, "a client's process"},
    {"comm", "COMMAND", kind::text, "that process's name"},
    {"client", "CLIENT", kind::number, "a client's number"},
    {"physical_used_bytes", "VRAM", kind::bytes, "VRAM charged"},
    {"virtual_used_bytes", "RAM", kind::bytes, "RAM allocated"},
    {"imported_bytes", "IMPORTED", kind::bytes, "of others' regions"},
    {"fetched_bytes", "FETCHED", kind::bytes, "moved from RAM to VRAM"},
    {"evicted_bytes", "EVICTED", kind::bytes, "moved from VRAM to RAM"},
    {"spills", "SPILLS", kind::number, "allocations placed in RAM"},
    {"faults", "FAULTS", kind::number, "work that memory was late for"},
    {"hit_bytes", "HIT", kind::bytes, "given to work, in VRAM"},
    {"miss_bytes", "MISS", kind::bytes, "given to work, in RAM"},
    {"stalled_ns", "STALLED", kind::nanoseconds, "work waited for memory"},
    {"resident_bytes", "RESIDENT", kind::bytes, "RAM that backs it now"},
    {"pinned_bytes", "PINNED", kind::bytes, "the part that devices pin"},
    {"lingering_bytes", "LINGERING", kind::bytes, "freed, but still pinned"},
    {"container", "CONTAINER", kind::text, "the container it runs in"},
}};

row client_row(const emuv::client_info &one, const environment &env)
{
    const auto container = container_of(one.pid, env);
    row result;
    result.cells = {std::int64_t{one.pid},
                    one.comm,
                    one.client,
                    one.physical_bytes,
                    one.virtual_bytes,
                    one.imported_bytes,
                    one.moved.fetched_bytes,
                    one.moved.evicted_bytes,
                    one.moved.spills,
                    one.moved.faults,
                    one.moved.hit_bytes,
                    one.moved.miss_bytes,
                    one.moved.stalled_ns,
                    one.resident_bytes,
                    one.pinned_bytes,
                    one.lingering_bytes,
                    container.id.empty() ? cell() : cell(container.text())};
    return result;
}

/// "1234 python: 4 GiB VRAM, 512 MiB RAM (300 MiB backed, 2 MiB pinned)".
std::string describe_client(const emuv::client_info &one, bool exact,
                            const environment &env)
{
    std::string text =
        fmt::format("{} {}: {} VRAM, {} RAM", one.pid, printable(one.comm),
                    say_size(one.physical_bytes, exact),
                    say_size(one.virtual_bytes, exact));
    if (one.resident_bytes != 0) {
        text += fmt::format(" ({} backed", say_size(one.resident_bytes, exact));
        if (one.pinned_bytes != 0)
            text +=
                fmt::format(", {} pinned", say_size(one.pinned_bytes, exact));
        text += ")";
    }
    if (one.lingering_bytes != 0)
        text += fmt::format(", {} freed but pinned",
                            say_size(one.lingering_bytes, exact));
    if (const auto container = container_of(one.pid, env);
        !container.id.empty())
        text += ", in " + printable(container.text());
    return text;
}

std::string describe_card(const std::string &label)
{
    const auto cards = emuv::find_gpu_models(label);
    if (cards.size() != 1)
        return cards.empty() ? "not in the table of cards"
                             : "several in the table of cards";
    const auto &card = *cards.front();
    return fmt::format("{} at {} GB/s, PCIe {}.0 x{}",
                       emuv::format_size_exact(card.vram_bytes),
                       card.bandwidth_gb_s, card.pcie_generation,
                       card.pcie_width);
}

std::string block(const emuv::instance_info &info, bool exact,
                  const environment &env)
{
    const auto size = [exact](std::uint64_t bytes) {
        return say_size(bytes, exact);
    };
    const auto used = [&](std::uint64_t bytes, std::uint64_t of) {
        return fmt::format("{} ({} used)", size(of), size(bytes));
    };
    std::string text = info.name() + "\n";
    const auto line = [&text](std::string_view key, const std::string &value) {
        text += fmt::format("  {:<15} {}\n", fmt::format("{}:", key), value);
    };

    if (const auto names = read_names(env); names.contains(info.uuid))
        line("Called", names.at(info.uuid));
    line("GPU", printable(emuv::gpu_display_name(info.gpu_model)));
    line("Model", printable(info.gpu_model));
    line("Card", describe_card(info.gpu_model));
    line("PCI device id", info.pci_device_id == 0
                              ? "none"
                              : fmt::format("{:#06x}", info.pci_device_id));
    line("UUID", info.uuid);
    line("Node", env.node(info.id));
    line("NUMA node", info.numa_node == emuv::any
                          ? "any"
                          : fmt::format("{}{}", info.numa_node,
                                        info.numa_bind ? " only" : ""));
    line("Physical VRAM", used(info.physical_used_bytes, info.physical_bytes));
    line("Virtual VRAM", used(info.virtual_used_bytes, info.virtual_bytes));
    if (info.client_virtual_bytes < info.virtual_bytes)
        line("A client's part", size(info.client_virtual_bytes));
    line("Total VRAM",
         fmt::format("{} ({} used, {:.1f} %)", size(info.total_bytes()),
                     size(info.physical_used_bytes + info.virtual_used_bytes),
                     used_percent(info)));
    line("Unowned", size(info.unowned_bytes));
    line("Backed by RAM",
         fmt::format("{}, in chunks of {}", size(info.resident_bytes),
                     size(info.chunk_bytes)));
    if (info.guaranteed)
        line("Reserved", size(info.reserve_bytes) + " more, guaranteed");
    if (info.swaps)
        line("In swap file", size(info.swapped_bytes));
    if (const auto tiers = tiers_of_instance(info.uuid, env); !tiers.empty())
        line("Tiers", emuv::format_tiers(tiers) + ", before system RAM");
    line("Moved",
         fmt::format("{} to VRAM, {} to RAM", size(info.moved.fetched_bytes),
                     size(info.moved.evicted_bytes)));
    line("Spills", std::to_string(info.moved.spills));
    line("Faults", std::to_string(info.moved.faults));
    const auto &moved = info.moved;
    const std::uint64_t used_bytes = moved.hit_bytes + moved.miss_bytes;
    line("Found in VRAM",
         used_bytes == 0
             ? "-"
             : fmt::format("{:.1f} % of {} that work was given",
                           100.0 * static_cast<double>(moved.hit_bytes) /
                               static_cast<double>(used_bytes),
                           size(used_bytes)));
    line("Stalled",
         fmt::format("{:.3f} s", static_cast<double>(moved.stalled_ns) / 1e9));
    line("Clients", std::to_string(info.clients));
    if (const auto clients = read_clients(info.id, env, true))
        for (const auto &one : *clients)
            text += "    " + describe_client(one, exact, env) + "\n";
    return text;
}

void cmd_info(const info_options &options, environment &env)
{
    static constexpr std::string_view defaults[] = {"name", "gpu_name", "uuid",
                                                    "node"};
    printer print(options.output, instance_columns(), defaults);
    const auto found =
        read_instances(parse_instances(options.instances, env), env);
    output_options plain = options.output;
    plain.bytes = false;
    if (plain.any()) {
        listing list;
        list.name = "instances";
        list.columns = instance_columns();
        list.child_name = "client_list";
        list.child_table = client_columns;
        const auto names = read_names(env);
        const auto cards = find_cards(env, nvml_state());
        for (const auto &info : found) {
            row one = instance_row(info, env, names, cards);
            if (plain.json && info.clients != 0) {
                const auto clients = read_clients(info.id, env, true);
                one.children_hidden = !clients;
                for (const auto &client :
                     clients.value_or(std::vector<emuv::client_info>()))
                    one.children.push_back(client_row(client, env));
            }
            list.rows.push_back(std::move(one));
        }
        print.print(list, env);
        return;
    }
    if (found.empty())
        env.say("there are no instances; 'emuvctl create' makes one");
    std::string text;
    for (const auto &info : found)
        text +=
            (text.empty() ? "" : "\n") + block(info, options.output.bytes, env);
    env.out.write(text);
}

} // namespace

verb info_verb()
{
    const auto options = std::make_shared<info_options>();
    verb info{"info", "Instances", "show all about instances",
              "Shows all there is to know about instances, all without any "
              "named."};
    info.arguments = instance_arguments(options->instances);
    add_output(info, options->output, instance_columns());
    info.aliases = {"show"};
    info.action = [options](environment &env) { cmd_info(*options, env); };
    return info;
}

} // namespace emuvctl
