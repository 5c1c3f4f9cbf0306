// SPDX-License-Identifier: GPL-2.0-or-later
// Files by which container engines know instances as devices.
#include "cdi.hpp"

#include "comma_list.hpp"
#include "container.hpp"
#include "environment.hpp"
#include "failure.hpp"
#include "names.hpp"
#include "output.hpp"
#include "watch/text_file.hpp"

#include <emuv/error.hpp>
#include <emuv/sysfs.hpp>
#include <emuv/types.hpp>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

namespace emuvctl {

namespace {

using document = nlohmann::ordered_json;

// The lowest that serves, since engines refuse versions that they do not know.
// A mount's type needs 0.4, a node of another name 0.5, annotations 0.6.
constexpr const char *version = "0.3.0";

bool is_alphanumeric(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c >= '0' && c <= '9');
}

document edits(const container_part &part)
{
    document made;
    made["env"] = part.variables;
    // Without numbers the engine looks at the node when a container starts, so
    // a module that is loaded again does not make the file untrue.
    for (const auto &node : part.nodes)
        made["deviceNodes"].push_back({{"path", node}, {"permissions", "rw"}});
    for (const auto &mount : part.mounts)
        made["mounts"].push_back(
            {{"hostPath", mount.host},
             {"containerPath", mount.inside},
             {"options", {"ro", "nosuid", "nodev", "bind"}}});
    return made;
}

document instance_edits(int id, const environment &env)
{
    return edits(instance_part(std::span(&id, 1), env));
}

std::string text_of(const document &specification)
{
    return specification.dump(2, ' ', false,
                              document::error_handler_t::replace) +
           "\n";
}

// The text between quotes of a key; empty if there is none.
std::string text_at(const document &object, const char *key)
{
    if (!object.is_object() || !object.contains(key) ||
        !object.at(key).is_string())
        return {};
    return object.at(key).get<std::string>();
}

// The list of a key; an empty one if there is none.
document list_at(const document &object, const char *key)
{
    if (!object.is_object() || !object.contains(key) ||
        !object.at(key).is_array())
        return document::array();
    return object.at(key);
}

constexpr std::string_view instance_variable = "EMUV_INSTANCE=";
constexpr std::string_view tiers_variable = "EMUV_TIER_DEFAULT=";
constexpr std::string_view preload_variable = "LD_PRELOAD=";

bool sets(const document &item, std::string_view variable)
{
    return item.is_string() && item.get<std::string>().starts_with(variable);
}

// The variables of a device that say which instances it is.
document variables_of_instances(const document &entry)
{
    auto found = document::array();
    if (entry.contains("containerEdits"))
        for (const auto &each : list_at(entry.at("containerEdits"), "env"))
            if (sets(each, instance_variable) || sets(each, tiers_variable))
                found.push_back(each);
    return found;
}

// The numbers in the device's EMUV_INSTANCE: its own, then those that lend.
std::vector<int> instances_of(const document &entry)
{
    std::vector<int> ids;
    for (const auto &each : variables_of_instances(entry)) {
        if (!sets(each, instance_variable))
            continue;
        const auto list =
            each.get<std::string>().substr(instance_variable.size());
        for (const std::string &word : split_at_commas(list))
            ids.push_back(emuv::parse_instance(word).value_or(-1));
    }
    return ids;
}

// Puts our items in the place of those of before. An administrator's stay.
template <typename Test>
void exchange(document &all, const document &ours, const char *key,
              const Test &is_of_before)
{
    auto list = list_at(ours, key);
    for (const auto &each : list_at(all, key))
        if (!is_of_before(each))
            list.push_back(each);
    all[key] = list;
}

// Has a device lead to an instance and to those that lend to it.
// @return false where it does already
bool lead_to(document &entry, int id, const environment &env)
{
    const document ours = {{"containerEdits", instance_edits(id, env)}};
    if (variables_of_instances(entry) == variables_of_instances(ours))
        return false;
    auto &all = entry["containerEdits"];
    const auto &new_edits = ours.at("containerEdits");
    if (!all.is_object()) {
        all = new_edits;
        return true;
    }
    const auto before = instances_of(entry);
    exchange(all, new_edits, "env", [](const document &each) {
        return sets(each, instance_variable) || sets(each, tiers_variable);
    });
    exchange(all, new_edits, "deviceNodes", [&](const document &each) {
        return std::any_of(before.begin(), before.end(), [&](int one) {
            return text_at(each, "path") == env.node(one);
        });
    });
    return true;
}

// Leaves variables as somebody may have set them, but for the libraries.
void keep_variables(const document &all, document &ours)
{
    const auto there = list_at(all, "env");
    auto left = document::array();
    for (const auto &each : ours.at("env")) {
        const auto text = each.get<std::string>();
        const auto name = text.substr(0, text.find('=') + 1);
        if (name == preload_variable ||
            std::none_of(there.begin(), there.end(),
                         [&](const auto &other) { return sets(other, name); }))
            left.push_back(each);
    }
    ours["env"] = left;
}

// Has a specification mount the library of another folder.
void mount_library(document &specification, const std::filesystem::path &folder)
{
    auto ours = edits(library_part(folder));
    auto &all = specification["containerEdits"];
    if (!all.is_object()) {
        all = ours;
        return;
    }
    keep_variables(all, ours);
    exchange(all, ours, "env",
             [](const document &each) { return sets(each, preload_variable); });
    exchange(all, ours, "mounts", [](const document &each) {
        return text_at(each, "containerPath") == container_library_folder;
    });
}

cdi_device device_of(const document &entry)
{
    const auto ids = instances_of(entry);
    return {text_at(entry, "name"), ids.empty() ? -1 : ids.front()};
}

// nullopt if there is no such file.
std::optional<document> read(const std::filesystem::path &file)
{
    std::ifstream stream(file, std::ios::binary);
    if (!stream) {
        const int number = errno;
        if (number == ENOENT || number == ENOTDIR)
            return std::nullopt;
        throw failure(
            fmt::format("{}: {}", file.string(), emuv::errno_text(number)));
    }
    const std::string text((std::istreambuf_iterator<char>(stream)), {});
    auto specification = document::parse(text, nullptr, false);
    if (text_at(specification, "kind") != cdi_kind)
        throw failure(fmt::format("{}: this is no specification of {}; it is "
                                  "left alone",
                                  file.string(), cdi_kind));
    return specification;
}

// The instance that a device's name means now; -1 if there is none.
int instance_now(const std::string &name, const environment &env)
{
    if (const auto id = emuv::parse_instance(name)) {
        const auto ids = env.sysfs().ids();
        return std::find(ids.begin(), ids.end(), *id) != ids.end() ? *id : -1;
    }
    return find_name(name, env);
}

} // namespace

std::string cdi_device::whole_name() const
{
    return fmt::format("{}={}", cdi_kind, printable(name));
}

bool is_cdi_name(std::string_view name)
{
    return !name.empty() && is_alphanumeric(name.front()) &&
           is_alphanumeric(name.back()) &&
           std::all_of(name.begin(), name.end(), [](char c) {
               return is_alphanumeric(c) || c == '_' || c == '-' || c == '.';
           });
}

std::vector<cdi_device>
cdi_devices(std::span<const emuv::instance_info> instances,
            const std::map<std::string, std::string> &names)
{
    std::vector<cdi_device> devices;
    for (const auto &info : instances) {
        devices.push_back({info.name(), info.id});
        const auto found = names.find(info.uuid);
        if (found != names.end() && is_cdi_name(found->second))
            devices.push_back({found->second, info.id});
    }
    return devices;
}

std::string cdi_text(std::span<const cdi_device> devices,
                     const std::filesystem::path &library,
                     const environment &env)
{
    document specification = {{"cdiVersion", version}, {"kind", cdi_kind}};
    specification["devices"] = document::array();
    for (const auto &one : devices)
        specification["devices"].push_back(
            {{"name", one.name},
             {"containerEdits", instance_edits(one.id, env)}});
    specification["containerEdits"] = edits(library_part(library));
    return text_of(specification);
}

std::vector<std::filesystem::path> cdi_folders(const environment &env)
{
    return {env.etc / "cdi", env.run / "cdi"};
}

std::filesystem::path cdi_file(const std::filesystem::path &folder)
{
    return folder / "emuv.json";
}

std::optional<std::vector<cdi_device>>
read_cdi(const std::filesystem::path &file)
{
    const auto specification = read(file);
    if (!specification)
        return std::nullopt;
    std::vector<cdi_device> devices;
    for (const auto &entry : list_at(*specification, "devices"))
        devices.push_back(device_of(entry));
    return devices;
}

void write_cdi(const std::filesystem::path &file, std::string_view text)
{
    // Engines of users read it too, whatever root's umask is.
    if (const auto folder = file.parent_path();
        std::filesystem::create_directories(folder) &&
        ::chmod(folder.c_str(), 0755) != 0)
        throw std::system_error(errno, std::generic_category(),
                                folder.string());
    try {
        watch::replace_file(file, text, 0644);
    } catch (const std::system_error &problem) {
        throw std::system_error(problem.code(), file.string());
    }
}

std::optional<cdi_change>
renew_cdi(const std::filesystem::path &file,
          const std::optional<std::filesystem::path> &library,
          gone_devices gone, const environment &env)
{
    auto specification = read(file);
    if (!specification)
        return std::nullopt;
    cdi_change change;
    auto devices = document::array();
    for (auto entry : list_at(*specification, "devices")) {
        const auto one = device_of(entry);
        int id = instance_now(one.name, env);
        if (id < 0 && gone == gone_devices::keep_harmless &&
            !env.sysfs().instance(one.id))
            id = one.id;
        if (id < 0) {
            change.dropped.push_back(one);
            continue;
        }
        if (lead_to(entry, id, env))
            change.moved = true;
        change.kept.push_back({one.name, id});
        devices.push_back(std::move(entry));
    }
    if (change.kept.empty())
        return change;
    (*specification)["devices"] = devices;
    if (library)
        mount_library(*specification, *library);
    change.text = text_of(*specification);
    return change;
}

void apply_cdi(const cdi_change &change, const std::filesystem::path &file)
{
    if (!change.text.empty())
        write_cdi(file, change.text);
    else if (::unlink(file.c_str()) != 0 && errno != ENOENT)
        throw std::system_error(errno, std::generic_category(), file.string());
}

void follow_cdi_devices(const names_lock & /*held*/, gone_devices gone,
                        const environment &env) noexcept
{
    for (const auto &folder : cdi_folders(env)) {
        try {
            const auto file = cdi_file(folder);
            const auto change = renew_cdi(file, std::nullopt, gone, env);
            if (change && (change->moved || !change->dropped.empty()))
                apply_cdi(*change, file);
        } catch (const std::exception &problem) {
            try {
                env.say(fmt::format("warning: containers may still be offered "
                                    "what is gone: {}",
                                    problem.what()));
            } catch (...) {
                continue; // nobody listens
            }
        }
    }
}

} // namespace emuvctl
