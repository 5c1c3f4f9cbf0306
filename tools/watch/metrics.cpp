// SPDX-License-Identifier: GPL-2.0-or-later
// A sample as metrics, in Prometheus' text format.
#include "metrics.hpp"

#include "lib/utf8.hpp"

#include <cstdint>
#include <functional>
#include <span>
#include <variant>

#include <fmt/format.h>

namespace emuvctl::watch {

namespace {

constexpr std::string_view replacement = "\xef\xbf\xbd"; // U+FFFD

// True if @p text begins with a control character. U+0080 to U+009F are, too:
// a terminal takes U+009B for the start of a sequence.
bool is_control(std::string_view text)
{
    const auto first = static_cast<unsigned char>(text[0]);
    return first < 0x20 || first == 0x7f ||
           (first == 0xc2 && static_cast<unsigned char>(text[1]) < 0xa0);
}

struct label
{
    std::string_view name;
    std::string value; // left out if empty
};

using number = std::variant<std::uint64_t, double>;

class text_writer
{
public:
    void family(std::string_view name, std::string_view type,
                std::string_view help)
    {
        name_ = name;
        text_ +=
            fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
    }

    void line(std::span<const label> labels, number count)
    {
        text_ += name_;
        char between = '{';
        for (const auto &[name, value] : labels) {
            if (value.empty())
                continue;
            text_ +=
                fmt::format("{}{}=\"{}\"", between, name, escape_label(value));
            between = ',';
        }
        if (between == ',')
            text_ += '}';
        text_ +=
            std::visit([](auto n) { return fmt::format(" {}\n", n); }, count);
    }

    [[nodiscard]] std::string take() { return std::move(text_); }

private:
    std::string text_;
    std::string_view name_;
};

// Nanoseconds as seconds.
double seconds(std::uint64_t nanoseconds)
{
    return static_cast<double>(nanoseconds) / 1e9;
}

struct instance_family
{
    std::string_view name;
    std::string_view type;
    std::string_view help;
    number (*of)(const emuv::instance_info &);
    // Left out for instances without it; null: all have it.
    bool (*has)(const emuv::instance_info &) = nullptr;
};

struct client_family
{
    std::string_view name;
    std::string_view type;
    std::string_view help;
    number (*of)(const emuv::client_info &);
};

using emuv::client_info;
using emuv::instance_info;

constexpr instance_family instance_families[] = {
    {"emuv_instance_vram_limit_bytes", "gauge", "The instance's share of VRAM.",
     [](const instance_info &i) -> number { return i.physical_bytes; }},
    {"emuv_instance_vram_used_bytes", "gauge",
     "VRAM that its clients have charged.",
     [](const instance_info &i) -> number { return i.physical_used_bytes; }},
    {"emuv_instance_ram_limit_bytes", "gauge",
     "The instance's share of system RAM.",
     [](const instance_info &i) -> number { return i.virtual_bytes; }},
    {"emuv_instance_ram_used_bytes", "gauge",
     "System RAM that its regions may fill.",
     [](const instance_info &i) -> number { return i.virtual_used_bytes; }},
    {"emuv_instance_ram_resident_bytes", "gauge",
     "System RAM that backs its regions now.",
     [](const instance_info &i) -> number { return i.resident_bytes; }},
    {"emuv_instance_ram_unowned_bytes", "gauge",
     "System RAM in use that its owner has freed.",
     [](const instance_info &i) -> number { return i.unowned_bytes; }},
    {"emuv_instance_ram_reserve_bytes", "gauge",
     "System RAM that is reserved for it and not in use.",
     [](const instance_info &i) -> number { return i.reserve_bytes; },
     [](const instance_info &i) { return i.guaranteed; }},
    {"emuv_instance_ram_swapped_bytes", "gauge",
     "Memory of its regions in its swap file.",
     [](const instance_info &i) -> number { return i.swapped_bytes; },
     [](const instance_info &i) { return i.swaps; }},
    {"emuv_instance_clients", "gauge", "Open files of the instance's node.",
     [](const instance_info &i) -> number { return std::uint64_t{i.clients}; }},
    {"emuv_instance_fetched_bytes_total", "counter",
     "Bytes moved from system RAM to VRAM.",
     [](const instance_info &i) -> number { return i.moved.fetched_bytes; }},
    {"emuv_instance_evicted_bytes_total", "counter",
     "Bytes moved from VRAM to system RAM.",
     [](const instance_info &i) -> number { return i.moved.evicted_bytes; }},
    {"emuv_instance_hit_bytes_total", "counter",
     "Bytes given to work that were in VRAM.",
     [](const instance_info &i) -> number { return i.moved.hit_bytes; }},
    {"emuv_instance_miss_bytes_total", "counter",
     "Bytes given to work that were in system RAM.",
     [](const instance_info &i) -> number { return i.moved.miss_bytes; }},
    {"emuv_instance_spills_total", "counter",
     "Allocations placed in system RAM.",
     [](const instance_info &i) -> number { return i.moved.spills; }},
    {"emuv_instance_faults_total", "counter", "Work that memory was late for.",
     [](const instance_info &i) -> number { return i.moved.faults; }},
    {"emuv_instance_stalled_seconds_total", "counter",
     "Time that work waited for memory.",
     [](const instance_info &i) -> number {
         return seconds(i.moved.stalled_ns);
     }},
};

constexpr client_family client_families[] = {
    {"emuv_client_vram_used_bytes", "gauge", "VRAM that the client charged.",
     [](const client_info &c) -> number { return c.physical_bytes; }},
    {"emuv_client_ram_used_bytes", "gauge",
     "System RAM that the client's regions may fill.",
     [](const client_info &c) -> number { return c.virtual_bytes; }},
    {"emuv_client_imported_bytes", "gauge",
     "Regions of other clients that the client holds.",
     [](const client_info &c) -> number { return c.imported_bytes; }},
    {"emuv_client_fetched_bytes_total", "counter",
     "Bytes that the client moved from system RAM to VRAM.",
     [](const client_info &c) -> number { return c.moved.fetched_bytes; }},
    {"emuv_client_evicted_bytes_total", "counter",
     "Bytes that the client moved from VRAM to system RAM.",
     [](const client_info &c) -> number { return c.moved.evicted_bytes; }},
    {"emuv_client_hit_bytes_total", "counter",
     "Bytes given to the client's work that were in VRAM.",
     [](const client_info &c) -> number { return c.moved.hit_bytes; }},
    {"emuv_client_miss_bytes_total", "counter",
     "Bytes given to the client's work that were in system RAM.",
     [](const client_info &c) -> number { return c.moved.miss_bytes; }},
    {"emuv_client_spills_total", "counter",
     "Allocations of the client that were placed in system RAM.",
     [](const client_info &c) -> number { return c.moved.spills; }},
    {"emuv_client_faults_total", "counter",
     "Work of the client that memory was late for.",
     [](const client_info &c) -> number { return c.moved.faults; }},
    {"emuv_client_stalled_seconds_total", "counter",
     "Time that the client's work waited for memory.",
     [](const client_info &c) -> number {
         return seconds(c.moved.stalled_ns);
     }},
};

void write_instances(text_writer &to, const sample &of)
{
    if (of.instances.empty())
        return;
    to.family("emuv_instance_info", "gauge",
              "1 for each instance, with its model and UUID as labels.");
    for (const auto &one : of.instances) {
        const label labels[] = {{"vgpu", one.info.name()},
                                {"UUID", one.card_uuid},
                                {"gpu_model", one.info.gpu_model},
                                {"vgpu_uuid", one.info.uuid}};
        to.line(labels, std::uint64_t{1});
    }
    for (const auto &family : instance_families) {
        bool begun = false;
        for (const auto &one : of.instances) {
            if (family.has != nullptr && !family.has(one.info))
                continue;
            if (!begun)
                to.family(family.name, family.type, family.help);
            begun = true;
            const label labels[] = {{"vgpu", one.info.name()},
                                    {"UUID", one.card_uuid}};
            to.line(labels, family.of(one.info));
        }
    }
}

void write_clients(text_writer &to, const sample &of)
{
    for (const auto &family : client_families) {
        bool begun = false;
        for (const auto &one : of.instances) {
            for (const auto &client :
                 one.clients.value_or(std::vector<emuv::client_info>())) {
                if (!begun)
                    to.family(family.name, family.type, family.help);
                begun = true;
                const label labels[] = {
                    {"vgpu", one.info.name()},
                    {"UUID", one.card_uuid},
                    {"client", std::to_string(client.client)},
                    // 0: a process of another PID namespace
                    {"pid", client.pid != 0 ? std::to_string(client.pid)
                                            : std::string()},
                    {"command", client.comm}};
                to.line(labels, family.of(client));
            }
        }
    }
}

} // namespace

std::string escape_label(std::string_view value)
{
    std::string text;
    while (!value.empty()) {
        const std::size_t length = utf8_length(value);
        const char first = value.front();
        if (length == 0)
            text += replacement;
        else if (first == '\n')
            text += "\\n";
        else if (first == '\\' || first == '"')
            text.append("\\").append(1, first);
        else if (is_control(value))
            text += '?';
        else
            text.append(value.substr(0, length));
        value.remove_prefix(length == 0 ? 1 : length);
    }
    return text;
}

std::string metrics_text(const sample &of)
{
    text_writer to;
    to.family("emuv_module_loaded", "gauge",
              "1 while the emuv module is loaded, else 0.");
    to.line({}, std::uint64_t{of.loaded ? 1U : 0U});
    if (!of.module_version.empty()) {
        const label version[] = {{"version", of.module_version}};
        to.family("emuv_module_info", "gauge",
                  "1, with the module's version as a label.");
        to.line(version, std::uint64_t{1});
    }
    write_instances(to, of);
    write_clients(to, of);
    return to.take();
}

} // namespace emuvctl::watch
