// SPDX-License-Identifier: GPL-2.0-or-later
// Finds, describes, makes and unmakes instances, for several verbs.
#include "instances.hpp"

#include "cards.hpp"
#include "cdi.hpp"
#include "environment.hpp"
#include "failure.hpp"
#include "host_memory.hpp"
#include "names.hpp"
#include "tiers.hpp"

#include <emuv/client.hpp>
#include <emuv/error.hpp>
#include <emuv/gpu_model.hpp>
#include <emuv/module.hpp>
#include <emuv/name.hpp>
#include <emuv/size.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <set>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace emuvctl {

namespace {

constexpr double node_timeout = 5; // seconds; a node takes milliseconds
constexpr double udev_timeout = 2; // seconds; others' events may be queued
constexpr double poll_period = 0.01;

constexpr std::array<column, 38> columns = {{
    {"name", "NAME", kind::text, "emuvN"},
    {"id", "ID", kind::number, "N", "index"},
    {"node", "NODE", kind::text, "its device node"},
    {"gpu_model", "MODEL", kind::text, "GPU model as it was given"},
    {"gpu_name", "GPU", kind::text, "the card's full name"},
    {"nvml_name", "NVML-NAME", kind::text, "as NVML names the card",
     "name,gpu_name"},
    {"physical_bytes", "PHYSICAL", kind::bytes, "its share of VRAM"},
    {"virtual_bytes", "VIRTUAL", kind::bytes, "its share of system RAM"},
    {"client_virtual_bytes", "CLIENT", kind::bytes, "that one client may take"},
    {"total_bytes", "TOTAL", kind::bytes, "both together", "memory.total"},
    {"physical_used_bytes", "PHYS-USED", kind::bytes, "VRAM charged"},
    {"virtual_used_bytes", "VIRT-USED", kind::bytes, "RAM allocated"},
    {"used_bytes", "USED", kind::bytes, "both together", "memory.used"},
    {"free_bytes", "FREE", kind::bytes, "total less used", "memory.free"},
    {"used_percent", "USED%", kind::percent, "used of the total"},
    {"unowned_bytes", "UNOWNED", kind::bytes, "kept alive after its owner"},
    {"resident_bytes", "RESIDENT", kind::bytes, "RAM that backs it now"},
    {"reserve_bytes", "RESERVE", kind::bytes, "RAM kept for it, unused"},
    {"guaranteed", "GUARANTEED", kind::text, "its RAM was reserved at once"},
    {"swap", "SWAP", kind::text, "it has a swap file"},
    {"swapped_bytes", "SWAPPED", kind::bytes, "in its swap file"},
    {"chunk_bytes", "CHUNK", kind::bytes, "the unit of backing"},
    {"clients", "CLIENTS", kind::number, "open files of its node"},
    {"uuid", "UUID", kind::text, "its UUID"},
    {"card_uuid", "CARD-UUID", kind::text, "the UUID of its card, if known",
     "uuid,gpu_uuid"},
    {"numa_node", "NUMA", kind::number, "node that its RAM comes from"},
    {"numa_bind", "BIND", kind::text, "from there only"},
    {"pci_device_id", "PCI-ID", kind::text, "the card it belongs to"},
    {"nvml_device_id", "NVML-ID", kind::text, "the same with its vendor",
     "pci.device_id"},
    {"fetched_bytes", "FETCHED", kind::bytes, "moved from RAM to VRAM"},
    {"evicted_bytes", "EVICTED", kind::bytes, "moved from VRAM to RAM"},
    {"spills", "SPILLS", kind::number, "allocations placed in RAM"},
    {"faults", "FAULTS", kind::number, "work that memory was late for"},
    {"hit_bytes", "HIT", kind::bytes, "given to work, in VRAM"},
    {"miss_bytes", "MISS", kind::bytes, "given to work, in RAM"},
    {"stalled_ns", "STALLED", kind::nanoseconds, "work waited for memory"},
    {"given_name", "CALLED", kind::text, "the name that it was given"},
    {"tier", "TIER", kind::text, "VRAM of others that it takes first"},
}};

cell name_of(const emuv::instance_info &info,
             const std::map<std::string, std::string> &names)
{
    const auto found = names.find(info.uuid);
    return found == names.end() ? cell() : cell(found->second);
}

bool permitted(const std::filesystem::path &node)
{
    return ::access(node.c_str(), R_OK | W_OK) == 0;
}

} // namespace

std::string nvml_name(const std::string &label)
{
    const auto models = emuv::find_gpu_models(label);
    const bool one_name =
        !models.empty() &&
        std::all_of(models.begin(), models.end(), [&](const auto *model) {
            return model->name == models.front()->name;
        });
    return one_name ? std::string(models.front()->name) : label;
}

double used_percent(const emuv::instance_info &info)
{
    if (info.total_bytes() == 0)
        return 0;
    const auto used =
        static_cast<double>(info.physical_used_bytes + info.virtual_used_bytes);
    return std::round(1000 * used / static_cast<double>(info.total_bytes())) /
           10;
}

std::span<const column> instance_columns()
{
    return columns;
}

row instance_row(const emuv::instance_info &info, const environment &env,
                 const std::map<std::string, std::string> &names,
                 const std::vector<card> &cards)
{
    const std::string card_uuid = uuid_of_card(cards, info.pci_device_id);
    const std::string tiers =
        emuv::format_tiers(tiers_of_instance(info.uuid, env));
    const std::uint64_t used =
        info.physical_used_bytes + info.virtual_used_bytes;
    row result;
    result.cells = {
        info.name(),
        std::int64_t{info.id},
        env.node(info.id),
        info.gpu_model,
        emuv::gpu_display_name(info.gpu_model),
        nvml_name(info.gpu_model),
        info.physical_bytes,
        info.virtual_bytes,
        info.client_virtual_bytes,
        info.total_bytes(),
        info.physical_used_bytes,
        info.virtual_used_bytes,
        used,
        info.total_bytes() - std::min(used, info.total_bytes()),
        used_percent(info),
        info.unowned_bytes,
        info.resident_bytes,
        info.reserve_bytes,
        info.guaranteed,
        info.swaps,
        info.swapped_bytes,
        info.chunk_bytes,
        std::uint64_t{info.clients},
        info.uuid,
        card_uuid.empty() ? cell() : cell(card_uuid),
        info.numa_node == emuv::any ? cell()
                                    : cell(std::int64_t{info.numa_node}),
        info.numa_bind,
        info.pci_device_id == 0
            ? cell()
            : cell(fmt::format("{:#06x}", info.pci_device_id)),
        info.pci_device_id == 0
            ? cell()
            : cell(fmt::format("0x{:04X}10DE", info.pci_device_id)),
        info.moved.fetched_bytes,
        info.moved.evicted_bytes,
        info.moved.spills,
        info.moved.faults,
        info.moved.hit_bytes,
        info.moved.miss_bytes,
        info.moved.stalled_ns,
        name_of(info, names),
        tiers.empty() ? cell() : cell(tiers),
    };
    return result;
}

void print_instances(std::span<const emuv::instance_info> made, printer &print,
                     const output_options &output, environment &env)
{
    listing list;
    list.name = "instances";
    list.columns = instance_columns();
    std::string nodes;
    const auto names = read_names(env);
    const auto cards = find_cards(env, nvml_state());
    for (const auto &info : made) {
        list.rows.push_back(instance_row(info, env, names, cards));
        nodes += env.node(info.id) + "\n";
    }
    if (output.any())
        print.print(list, env);
    else
        env.out.write(nodes);
}

std::vector<int> parse_instances(std::span<const std::string> words,
                                 const environment &env)
{
    std::vector<int> ids;
    for (const auto &word : words) {
        auto id = emuv::parse_instance(word);
        if (!id) {
            try {
                emuv::check_name(word);
            } catch (const std::invalid_argument &) {
                throw usage_error(fmt::format(
                    "'{}' names no instance; write emuv0, 0, /dev/emuv0, or a "
                    "name that 'create --name' gave",
                    printable(word)));
            }
            id = find_name(word, env);
            if (*id < 0)
                throw failure(fmt::format("no instance is called '{}'", word));
        }
        // Named twice is meant once.
        if (std::find(ids.begin(), ids.end(), *id) == ids.end())
            ids.push_back(*id);
    }
    return ids;
}

void try_instance(int id, const environment &env)
{
    const emuv::client client(env.dev / emuv::instance_name(id),
                              O_RDWR | O_CLOEXEC, env.kernel);
}

void require_module(const environment &env)
{
    if (!env.sysfs().loaded())
        throw failure("the emuv module is not loaded; 'emuvctl load' loads "
                      "it, 'emuvctl doctor' says what keeps it out");
}

std::vector<emuv::instance_info> read_instances(std::span<const int> ids,
                                                const environment &env)
{
    require_module(env);
    if (ids.empty())
        return env.sysfs().instances();
    std::vector<emuv::instance_info> found;
    for (const int id : ids) {
        auto info = env.sysfs().instance(id);
        if (!info)
            throw failure(emuv::instance_name(id) + ": no such instance");
        found.push_back(std::move(*info));
    }
    return found;
}

std::optional<std::vector<emuv::client_info>>
read_clients(int id, const environment &env, bool memory)
{
    try {
        if (permitted(env.dev / "emuv-control"))
            return emuv::control(env.dev, env.kernel).clients(id, memory);
        if (!permitted(env.dev / emuv::instance_name(id)))
            return std::nullopt;
        auto clients = emuv::client(id, env.dev, env.kernel).clients(memory);
        // The file that was opened to ask is the youngest of this process.
        const auto own = std::find_if(
            clients.rbegin(), clients.rend(),
            [](const emuv::client_info &one) { return one.pid == ::getpid(); });
        if (own != clients.rend())
            clients.erase(std::next(own).base());
        return clients;
    } catch (const emuv::error &) {
        // It may go away, or its rights change, at any time. Then nothing is
        // known of its clients, and that is no failure.
        return std::nullopt;
    }
}

std::string describe_clients(const emuv::instance_info &info,
                             const environment &env)
{
    constexpr std::size_t shown = 8;
    std::string text =
        fmt::format("{} client{}", info.clients, info.clients == 1 ? "" : "s");
    const auto clients = read_clients(info.id, env);
    if (!clients || clients->empty())
        return text;
    text += ": ";
    for (std::size_t i = 0; i < clients->size() && i < shown; i++)
        text += fmt::format("{}{} {}", i == 0 ? "" : ", ", (*clients)[i].pid,
                            printable((*clients)[i].comm));
    if (clients->size() > shown)
        text += ", ...";
    return text;
}

std::string describe_users(const environment &env)
{
    std::string text;
    for (const auto &info : env.sysfs().instances())
        if (info.clients != 0)
            text += fmt::format("{}{} ({})", text.empty() ? "" : ", ",
                                info.name(), describe_clients(info, env));
    return text;
}

bool is_of_a_device(int id, const environment &env)
{
    std::error_code ignored;
    return std::filesystem::exists(
        env.sys / "class/emuv" / emuv::instance_name(id) / "device", ignored);
}

std::uint64_t promised_bytes(const environment &env)
{
    std::uint64_t sum = 0;
    for (const auto &info : env.sysfs().instances())
        if (!is_of_a_device(info.id, env))
            sum += info.virtual_bytes;
    return sum;
}

std::string describe(const emuv::instance_spec &spec)
{
    std::string text = fmt::format("{}, {} + {}", spec.gpu_model,
                                   emuv::format_size_exact(spec.physical_bytes),
                                   emuv::format_size_exact(spec.virtual_bytes));
    if (spec.pci_device_id != 0)
        text += fmt::format(", {:#06x}", spec.pci_device_id);
    if (spec.numa_node != emuv::any)
        text += fmt::format(", NUMA node {}{}", spec.numa_node,
                            spec.numa_bind ? " only" : "");
    if (spec.client_virtual_bytes != 0)
        text += fmt::format(", {} a client",
                            emuv::format_size_exact(spec.client_virtual_bytes));
    if (spec.guaranteed)
        text += ", guaranteed";
    if (!spec.swap.empty())
        text += fmt::format(", swapping to {}", printable(spec.swap));
    return text;
}

std::string describe(const emuv::instance_info &info)
{
    return describe(to_spec(info)) + (info.swaps ? ", with a swap file" : "");
}

std::string describe(const std::vector<emuv::tier> &tiers)
{
    return tiers.empty() ? ""
                         : fmt::format(", with {} as its tier{}",
                                       emuv::format_tiers(tiers),
                                       tiers.size() == 1 ? "" : "s");
}

emuv::instance_spec to_spec(const emuv::instance_info &info)
{
    emuv::instance_spec spec;
    spec.id = info.id;
    spec.gpu_model = info.gpu_model;
    spec.physical_bytes = info.physical_bytes;
    spec.virtual_bytes = info.virtual_bytes;
    if (info.client_virtual_bytes < info.virtual_bytes)
        spec.client_virtual_bytes = info.client_virtual_bytes;
    spec.numa_node = info.numa_node;
    spec.numa_bind = info.numa_bind;
    spec.pci_device_id = info.pci_device_id;
    spec.guaranteed = info.guaranteed;
    return spec;
}

void ensure_module(const std::string &module, environment &env)
{
    if (env.sysfs().loaded())
        return;
    try {
        env.modules.load(module, "");
    } catch (const emuv::error &problem) {
        // Somebody else was faster: all the same.
        if (problem.number() != EEXIST)
            throw;
    }
}

creation::creation(environment &env) : env_(env), control_(env.dev, env.kernel)
{}

creation::~creation()
{
    if (made_.empty())
        return;
    for (auto id = made_.rbegin(); id != made_.rend(); ++id)
        if (const int result = control_.try_destroy(*id); result != 0)
            env_.say(fmt::format("{}: could not be taken back: {}",
                                 emuv::instance_name(*id),
                                 emuv::errno_text(-result)));
    const names_lock lock(env_, names_lock::folder::make);
    forget_names(lock, env_);
    // One that could not be taken back must not be reached by another's name.
    follow_cdi_devices(lock, gone_devices::keep_harmless, env_);
}

void creation::commit() noexcept
{
    made_.clear();
    const names_lock lock(env_, names_lock::folder::make);
    note_lenders(lock, env_);
    follow_cdi_devices(lock, gone_devices::keep_harmless, env_);
}

emuv::instance_info creation::make(const emuv::instance_spec &spec,
                                   const std::vector<emuv::tier> &tiers,
                                   const std::string &profile)
{
    made_.reserve(made_.size() + 1);
    const int id = make_one(spec, profile);
    made_.push_back(id);
    await_node(id);
    auto info = control_.query(id);
    give_tiers(tiers, info.uuid, env_);
    return info;
}

int creation::make_one(const emuv::instance_spec &spec,
                       const std::string &profile)
{
    try {
        return control_.create(spec);
    } catch (const emuv::error &problem) {
        if (problem.number() != ENOMEM)
            throw;
        if (spec.guaranteed)
            throw failure(fmt::format(
                "{}the host cannot reserve {} of RAM now; without {} it is "
                "taken when it is touched",
                profile.empty() ? "" : "[" + profile + "]: ",
                emuv::format_size_exact(spec.virtual_bytes),
                profile.empty() ? "--guaranteed" : "'guaranteed=yes'"));
        if (profile.empty())
            throw;
        throw failure(explain_promise(env_, spec.virtual_bytes, profile));
    }
}

void creation::await_node(int id) const
{
    const auto poll = [this](double seconds, const auto &done) {
        const double end = env_.clock() + seconds;
        while (!done())
            if (env_.clock() > end || !env_.wait(poll_period))
                return false;
        return true;
    };
    const auto exists = [](const std::filesystem::path &path) {
        std::error_code ignored;
        return std::filesystem::exists(path, ignored);
    };
    const std::filesystem::path node = env_.dev / emuv::instance_name(id);
    if (!poll(node_timeout, [&] { return exists(node); }))
        throw failure(fmt::format(
            "{}: {} did not appear; is devtmpfs mounted there, or udev at "
            "work?",
            emuv::instance_name(id), env_.node(id)));
    // udev then gives the node to its group; a program that waits for this
    // command will want to open it.
    poll(udev_timeout, [&] { return !exists(env_.run / "udev/queue"); });
}

std::vector<int> predict_ids(std::span<const emuv::instance_spec> specs,
                             const environment &env,
                             std::span<const std::string> profiles)
{
    const auto existing = env.sysfs().ids();
    std::set<int> taken(existing.begin(), existing.end());
    std::vector<int> ids;
    for (const auto &spec : specs) {
        int id = spec.id;
        if (id == emuv::any) {
            id = 0;
            while (taken.contains(id))
                id++;
            if (id >= EMUV_MAX_INSTANCES)
                throw failure(fmt::format("no id is free: {} instances exist",
                                          EMUV_MAX_INSTANCES));
        }
        if (!taken.insert(id).second)
            throw failure(emuv::instance_name(id) + ": already exists");
        ids.push_back(id);
    }
    std::uint64_t promised = promised_bytes(env);
    const auto host = read_host_memory(env);
    for (std::size_t i = 0; i < specs.size(); i++) {
        const auto &spec = specs[i];
        promised += spec.virtual_bytes;
        if (spec.virtual_bytes == 0 || spec.overcommit || !host ||
            promised <= host->promisable())
            continue;
        throw failure(profiles.empty()
                          ? explain_promise(env)
                          : explain_promise(env, spec.virtual_bytes,
                                            profiles[i],
                                            promised - spec.virtual_bytes));
    }
    return ids;
}

} // namespace emuvctl
