// SPDX-License-Identifier: GPL-2.0-or-later
// The container that a process runs in, by its control group.
#include "process_container.hpp"

#include "environment.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <utility>

#include <fmt/format.h>

namespace emuvctl {

namespace {

constexpr std::size_t id_digits = 64;
constexpr std::size_t shown_digits = 12;

bool is_id(std::string_view text)
{
    return text.size() == id_digits &&
           std::all_of(text.begin(), text.end(), [](char c) {
               return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
           });
}

std::string_view without(std::string_view text, std::string_view end)
{
    return text.ends_with(end) ? text.substr(0, text.size() - end.size())
                               : text;
}

// One folder of the path: "libpod-ID.scope" with systemd, "libpod-ID" without.
// @param above  the folder that it is in
process_container parse_folder(std::string_view folder, std::string_view above)
{
    static constexpr std::pair<std::string_view, const char *> engines[] = {
        {"libpod-", "podman"},
        {"docker-", "docker"},
        {"cri-containerd-", "containerd"},
        {"nerdctl-", "containerd"},
        {"crio-", "cri-o"},
        {"buildah-", "buildah"}};
    const std::string_view unit = without(folder, ".scope");
    for (const auto &[prefix, engine] : engines)
        if (unit.starts_with(prefix) && is_id(unit.substr(prefix.size())))
            return {engine, std::string(unit.substr(prefix.size()))};
    if (is_id(unit)) {
        if (above == "docker")
            return {"docker", std::string(unit)};
        if (above.starts_with("pod") || above.starts_with("kubepods"))
            return {"kubernetes", std::string(unit)};
    }
    static constexpr std::string_view lxc = "lxc.payload.";
    if (folder.starts_with(lxc))
        return {"lxc", std::string(folder.substr(lxc.size()))};
    static constexpr std::string_view nspawn = "systemd-nspawn@";
    if (folder.starts_with(nspawn))
        return {"nspawn",
                std::string(without(folder.substr(nspawn.size()), ".service"))};
    return {};
}

} // namespace

std::string process_container::text() const
{
    if (id.empty())
        return {};
    return fmt::format("{} {}", engine,
                       is_id(id) ? id.substr(0, shown_digits) : id);
}

process_container parse_cgroup(std::string_view text)
{
    // "0::/machine.slice/libpod-ID.scope/container", a line a hierarchy. The
    // innermost container is the one that its owner knows.
    process_container found;
    while (!text.empty() && found.id.empty()) {
        const auto newline = std::min(text.find('\n'), text.size());
        const std::string_view line = text.substr(0, newline);
        text.remove_prefix(std::min(newline + 1, text.size()));
        const auto slash = line.find('/');
        if (slash == std::string_view::npos)
            continue;
        std::string_view rest = line.substr(slash + 1);
        std::string_view above;
        while (!rest.empty()) {
            const auto end = std::min(rest.find('/'), rest.size());
            const std::string_view folder = rest.substr(0, end);
            if (auto one = parse_folder(folder, above); !one.id.empty())
                found = std::move(one);
            above = folder;
            rest.remove_prefix(std::min(end + 1, rest.size()));
        }
    }
    return found;
}

process_container container_of(int pid, const environment &env)
{
    if (pid <= 0)
        return {};
    std::ifstream stream(env.proc / std::to_string(pid) / "cgroup");
    const std::string text((std::istreambuf_iterator<char>(stream)), {});
    return parse_cgroup(text);
}

} // namespace emuvctl
