// SPDX-License-Identifier: GPL-2.0-or-later
// emuvctl doctor: finds what keeps emuV from working here, and says what to do.
#include "cards.hpp"
#include "cuda_library.hpp"
#include "environment.hpp"
#include "failure.hpp"
#include "host_memory.hpp"
#include "instances.hpp"
#include "lib/entries.hpp"
#include "module_file.hpp"
#include "profiles.hpp"
#include "verbs.hpp"

#include <emuv/error.hpp>
#include <emuv/module.hpp>
#include <emuv/profile.hpp>
#include <emuv/version.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <grp.h>
#include <sys/stat.h>
#include <unistd.h>

namespace emuvctl {

namespace {

struct doctor_options
{
    std::string module = "emuv";
    std::string config;
    output_options output;
};

constexpr std::array<column, 4> columns = {{
    {"check", "CHECK", kind::text, "what was looked at"},
    {"status", "STATUS", kind::text, "ok, warn, fail or skip"},
    {"detail", "DETAIL", kind::text, "what was found"},
    {"fix", "FIX", kind::text, "what to do about it"},
}};

enum class status
{
    ok,
    warn,
    fail,
    skip
};

std::string_view to_text(status what)
{
    static constexpr std::array<std::string_view, 4> names = {"ok", "warn",
                                                              "fail", "skip"};
    return names[static_cast<std::size_t>(what)];
}

struct finding
{
    std::string check;
    status result;
    std::string detail;
    std::string fix = {};
};

std::string attribute(const std::filesystem::path &path)
{
    return emuv::read_line_file(path).value_or("");
}

std::string release(const environment &env)
{
    return attribute(env.proc / "sys/kernel/osrelease");
}

class doctor
{
public:
    doctor(const doctor_options &options, const environment &env)
        : options_(options), env_(env), loaded_(env.sysfs().loaded()),
          nvml_(env.nvml()), cards_(find_cards(env, nvml_))
    {
        try {
            file_ = env.modules.info(options.module);
        } catch (const emuv::error &problem) {
            file_problem_ = emuv::errno_text(problem.number());
        }
    }

    std::vector<finding> examine() const
    {
        std::vector<finding> all = {
            kernel(),         module(), signature(), control(),
            instance_nodes(), memory(), profiles(),  nvidia_driver(),
            nvidia_nodes(),   cuda(),   library()};
        for (const auto &one : cards_)
            all.push_back(gpu(one));
        if (cards_.empty())
            all.push_back({"GPU", status::skip, "there is no NVIDIA card"});
        return all;
    }

private:
    bool can_load() const
    {
        std::error_code ignored;
        return std::filesystem::exists(env_.proc / "modules", ignored);
    }

    finding kernel() const
    {
        if (!can_load())
            return {"kernel", status::fail,
                    fmt::format("{} is built without loadable modules",
                                release(env_)),
                    "boot a kernel with CONFIG_MODULES=y; every distribution's "
                    "own has it. 'emuvctl run --physical' needs no module"};
        if (!loaded_ &&
            attribute(env_.proc / "sys/kernel/modules_disabled") == "1")
            return {"kernel", status::fail,
                    "loading modules was switched off "
                    "(kernel.modules_disabled=1)",
                    "reboot; it cannot be switched on again. Then look for "
                    "who sets it, in /etc/sysctl.d"};
        return {"kernel", status::ok,
                fmt::format("{} can load modules", release(env_))};
    }

    finding module() const
    {
        if (loaded_) {
            const auto version = env_.sysfs().module_version();
            if (version && *version != emuv::version())
                return {"module", status::warn,
                        fmt::format("version {} is loaded, and this is "
                                    "emuvctl {}",
                                    printable(*version), emuv::version()),
                        "install both from the same release, then 'emuvctl "
                        "unload' and 'emuvctl load'"};
            return {"module", status::ok,
                    fmt::format("version {} is loaded",
                                version.value_or("unknown"))};
        }
        if (!can_load())
            return {"module", status::skip, "no module can be loaded"};
        if (!file_problem_.empty())
            return {"module", status::fail,
                    fmt::format("{}: {}", printable(options_.module),
                                problem_of_file()),
                    "install the package emuv-dkms again, or name a whole "
                    "module with --module"};
        if (!file_)
            return {"module", status::fail,
                    fmt::format("there is no {} for {}", options_.module,
                                release(env_)),
                    fmt::format("install the packages emuv-dkms and "
                                "linux-headers-{0}; 'dkms status emuv' then "
                                "shows it for {0}. --module names a file that "
                                "lies elsewhere",
                                release(env_))};
        const std::string built_for =
            file_->vermagic.substr(0, file_->vermagic.find(' '));
        if (built_for != release(env_))
            return {"module", status::fail,
                    fmt::format("{} was built for {}, and {} is running",
                                file_->path, built_for, release(env_)),
                    fmt::format("install linux-headers-{0}, then 'dkms "
                                "autoinstall -k {0}'",
                                release(env_))};
        return {"module", status::ok,
                fmt::format("{} fits and is not loaded", file_->path)};
    }

    finding signature() const
    {
        if (!can_load())
            return {"signature", status::skip, "no module can be loaded"};
        const std::string variable =
            attribute(env_.sys / "firmware/efi/efivars/"
                                 "SecureBoot-8be4df61-93ca-11d2-aa0d-"
                                 "00e098032b8c");
        // Four bytes of attributes, then the value.
        const bool secure_boot = variable.size() >= 5 && variable[4] == 1;
        const std::string lockdown =
            attribute(env_.sys / "kernel/security/lockdown");
        const bool locked = lockdown.find('[') != std::string::npos &&
                            lockdown.find("[none]") == std::string::npos;
        const bool enforced =
            attribute(env_.sys / "module/module/parameters/sig_enforce") == "Y";
        const std::string state =
            fmt::format("Secure Boot is {}", secure_boot ? "on" : "off");
        if (!locked && !enforced)
            return {"signature", status::ok,
                    state + ", and the kernel takes unsigned modules"};
        if (loaded_)
            return {"signature", status::ok,
                    state + ", and the kernel took the module"};
        if (!file_)
            return {"signature", status::skip,
                    state + ", the kernel wants a signature, and there is no "
                            "module to look at"};
        if (file_->signer.empty())
            return {"signature", status::fail,
                    state + ", the kernel wants a signature, and the module "
                            "has none",
                    fmt::format("sign it with a key that is enrolled "
                                "('mokutil --import' enrols one): "
                                "/lib/modules/{}/build/scripts/sign-file "
                                "sha256 KEY CERT {}",
                                release(env_), file_->path)};
        return {"signature", status::ok,
                fmt::format("{}, and the module is signed by {}", state,
                            printable(file_->signer))};
    }

    finding control() const
    {
        if (!loaded_)
            return {"control node", status::skip, "the module is not loaded"};
        const auto path = env_.dev / "emuv-control";
        struct stat state
        {};
        if (::stat(path.c_str(), &state) != 0)
            return {"control node", status::fail,
                    path.string() + " is not there",
                    "mount devtmpfs on /dev, or let udev run"};
        if ((state.st_mode & 0077U) != 0)
            return {"control node", status::fail,
                    fmt::format("{} has mode {:04o}: not only root may create "
                                "and destroy",
                                path.string(), state.st_mode & 07777U),
                    "chmod 0600 " + path.string() +
                        ", and look for a udev rule that opens it"};
        return {"control node", status::ok,
                path.string() + " is for root alone"};
    }

    finding instance_nodes() const
    {
        const std::string name = "instance nodes";
        const auto ids = env_.sysfs().ids();
        if (ids.empty())
            return {name, status::skip, "there are no instances"};
        const group *const render = ::getgrnam("render");
        std::string missing;
        std::string open;
        std::string other_group;
        std::string closed;
        for (const int id : ids) {
            const auto path = env_.dev / emuv::instance_name(id);
            const auto add = [&](std::string &list) {
                list += (list.empty() ? "" : ", ") + path.string();
            };
            struct stat state
            {};
            if (::stat(path.c_str(), &state) != 0)
                add(missing);
            else if ((state.st_mode & 0007U) != 0)
                add(open);
            else if (render != nullptr && state.st_gid != render->gr_gid)
                add(other_group);
            else if (::access(path.c_str(), R_OK | W_OK) != 0)
                add(closed);
        }
        if (!missing.empty())
            return {name, status::fail, missing + ": not there",
                    "mount devtmpfs on /dev, or let udev run"};
        if (!open.empty())
            return {name, status::fail, open + ": open to everybody",
                    "chmod 0660, and look for a udev rule that opens it"};
        if (!other_group.empty())
            return {name, status::warn,
                    other_group + ": not of the group render, so for root "
                                  "alone",
                    "install the package emuv, which has the udev rules, then "
                    "'udevadm control --reload' and 'udevadm trigger'"};
        if (!closed.empty())
            return {name, status::warn, closed + ": you may not open it",
                    "usermod -aG render USER, and log in again"};
        return {name, status::ok,
                fmt::format("{} node{}, of the group render, and you may open "
                            "{}",
                            ids.size(), ids.size() == 1 ? "" : "s",
                            ids.size() == 1 ? "it" : "them")};
    }

    finding memory() const
    {
        const std::string name = "host memory";
        const auto host = read_host_memory(env_);
        if (!host)
            return {name, status::skip, "/proc/meminfo cannot be read"};
        std::uint64_t promised = 0;
        std::uint64_t resident = 0;
        for (const auto &info : env_.sysfs().instances()) {
            if (is_of_a_device(info.id, env_))
                continue;
            promised += info.virtual_bytes;
            resident += info.resident_bytes;
        }
        const auto size = [](std::uint64_t bytes) {
            return say_size(bytes, false);
        };
        const std::string state = fmt::format(
            "{} promised as virtual VRAM, {} of it backed; the host has {}, "
            "{} available, {} kept free",
            size(promised), size(resident), size(host->total_bytes),
            size(host->available_bytes), size(host->floor_bytes));
        if (promised > host->promisable())
            return {name, status::warn, state,
                    fmt::format("destroy or shrink instances: only {} can ever "
                                "be backed",
                                size(host->promisable()))};
        if (host->available_bytes < host->floor_bytes)
            return {name, status::warn, state + ": nothing can be backed now",
                    "end what takes the host's memory"};
        if (promised - std::min(promised, resident) >
            host->available_bytes - host->floor_bytes)
            return {name, status::warn,
                    state + ": not all that is promised could be backed now",
                    "end what takes the host's memory, or shrink instances"};
        return {name, status::ok, state};
    }

    finding profiles() const
    {
        const auto file = options_.config.empty()
                              ? emuv::default_profile_file()
                              : std::filesystem::path(options_.config);
        std::error_code ignored;
        if (!std::filesystem::exists(file, ignored) &&
            !std::filesystem::exists(file.string() + ".d", ignored))
            return {"profiles", status::skip, "there is no " + file.string()};
        try {
            const auto all = read_profiles(file);
            return {"profiles", status::ok,
                    fmt::format("{} in {}", all.size(), file.string())};
        } catch (const emuv::profile_error &problem) {
            return {"profiles", status::fail, problem.what(),
                    "correct it as vgpu-profiles.conf(5) says"};
        }
    }

    finding nvidia_nodes() const
    {
        const std::string name = "NVIDIA nodes";
        if (cards_.empty())
            return {name, status::skip, "there is no NVIDIA card"};
        std::string missing;
        const auto lacks = [&](const std::string &node) {
            missing +=
                (missing.empty() ? "" : ", ") + (env_.dev / node).string();
        };
        std::error_code ignored;
        for (const char *const node : {"nvidiactl", "nvidia-uvm"})
            if (!std::filesystem::exists(env_.dev / node, ignored))
                lacks(node);
        // A container, or a job, may be given any of the cards.
        const auto nodes = card_nodes();
        if (nodes.empty())
            for (const auto &one : cards_)
                lacks(fmt::format("nvidia{}", one.minor
                                                  ? std::to_string(*one.minor)
                                                  : "N for " + one.address));
        if (!missing.empty())
            return {name, status::fail, missing + ": not there",
                    driver_version().empty()
                        ? "install NVIDIA's driver"
                        : "'nvidia-modprobe -u -c 0' makes them, as root; a "
                          "container has to be given them"};
        std::string state = fmt::format("{}", fmt::join(nodes, ", "));
        if (nodes.size() < cards_.size())
            state += fmt::format(": {} of the {} cards may be used here",
                                 nodes.size(), cards_.size());
        return {name, status::ok, state};
    }

    // The names of /dev/nvidiaN, in the order of N.
    std::vector<std::string> card_nodes() const
    {
        std::vector<std::string> names;
        for (const auto &entry : emuv::entries(env_.dev)) {
            const std::string node = entry.path().filename().string();
            constexpr std::string_view start = "nvidia";
            if (node.starts_with(start) && node.size() > start.size() &&
                node.find_first_not_of("0123456789", start.size()) ==
                    std::string::npos)
                names.push_back(node);
        }
        std::sort(names.begin(), names.end(), [](const auto &a, const auto &b) {
            return ::strverscmp(a.c_str(), b.c_str()) < 0;
        });
        return names;
    }

    // Of NVIDIA's module; empty where it is not loaded.
    std::string driver_version() const
    {
        const std::string version =
            attribute(env_.sys / "module/nvidia/version");
        return version.empty() ? nvml_.driver : version;
    }

    finding nvidia_driver() const
    {
        const std::string name = "NVIDIA driver";
        const std::string version = driver_version();
        if (version.empty() && cards_.empty())
            return {name, status::skip, "there is no NVIDIA card"};
        if (version.empty())
            return {name, status::fail, "NVIDIA's module is not loaded",
                    "install NVIDIA's driver (on Debian: nvidia-driver), and "
                    "look at dmesg if it is there"};
        if (!nvml_.present)
            return {name, status::warn,
                    fmt::format("{}; NVML is not there: {}", printable(version),
                                printable(nvml_.problem)),
                    "install libnvidia-ml.so.1 of the same version; it comes "
                    "with nvidia-smi"};
        if (!nvml_.problem.empty())
            return {name, status::fail,
                    fmt::format("{}; NVML does not work: {}",
                                printable(version), printable(nvml_.problem)),
                    "the driver's libraries and its module must be of one "
                    "version; reboot after an upgrade"};
        return {name, status::ok, printable(version)};
    }

    finding cuda() const
    {
        const std::string name = "CUDA driver";
        const cuda_state state = env_.cuda();
        // Without a card nobody needs CUDA to work.
        if (!state.present && cards_.empty())
            return {name, status::skip, state.problem};
        if (!state.present)
            return {name, status::fail, printable(state.problem),
                    "install NVIDIA's driver (on Debian: nvidia-driver and "
                    "libcuda1)"};
        const std::string version =
            state.version == 0 ? "of unknown version"
                               : fmt::format("{}.{}", state.version / 1000,
                                             state.version % 1000 / 10);
        if (!state.problem.empty())
            return {name, cards_.empty() ? status::warn : status::fail,
                    fmt::format("libcuda.so.1 {}: {}", version,
                                printable(state.problem)),
                    "look at nvidia-smi and dmesg; the driver's library and "
                    "module must be of the same version"};
        return {name, status::ok,
                fmt::format("libcuda.so.1 {}, {} device{}", version,
                            state.devices, state.devices == 1 ? "" : "s")};
    }

    // The driver's part of emuV does without it.
    static finding library()
    {
        const std::string name = "CUDA library";
        if (const auto found = find_cuda_library())
            return {name, status::ok, "emuV's is in " + found->string()};
        return {name, status::warn,
                no_cuda_library() + ", so 'emuvctl run' cannot start programs",
                "install the package libemuv-cuda, or name its folder with "
                "'emuvctl run --library'"};
    }

    // "16.0 GT/s PCIe" as a generation; 0 if it is none.
    static int generation(const std::string &speed)
    {
        static constexpr std::array<std::pair<std::string_view, int>, 6>
            speeds = {{{"2.5", 1},
                       {"5.0", 2},
                       {"8.0", 3},
                       {"16.0", 4},
                       {"32.0", 5},
                       {"64.0", 6}}};
        for (const auto &[text, number] : speeds)
            if (speed.starts_with(text))
                return number;
        return 0;
    }

    // Its name, VRAM, and link.
    finding gpu(const card &which) const
    {
        finding result{"GPU " + which.address, status::ok, {}};
        result.detail = fmt::format(
            "{}, {}",
            which.name.empty() ? "model unknown" : printable(which.name),
            which.vram_bytes == 0
                ? "VRAM unknown"
                : say_size(which.vram_bytes, false) + " of VRAM");
        const int speed =
            generation(attribute(which.path / "current_link_speed"));
        const int speed_max =
            generation(attribute(which.path / "max_link_speed"));
        const std::string width = attribute(which.path / "current_link_width");
        const std::string width_max = attribute(which.path / "max_link_width");
        if (which.path.empty() || speed == 0 || speed_max == 0 ||
            width.empty()) {
            result.detail += "; its link is not shown";
            return result;
        }
        result.detail +=
            fmt::format(", link PCIe {}.0 x{} of {}.0 x{}", speed,
                        printable(width), speed_max, printable(width_max));
        if (width != width_max) {
            result.result = status::warn;
            result.detail += ": what overflows moves at this link's speed";
            result.fix = "look for a slot with all lanes, or seat the card "
                         "anew";
        } else if (speed < speed_max)
            result.detail +=
                "; an idle card slows its link, look again under load";
        return result;
    }

    // Tells why the named file cannot be read as a module.
    std::string problem_of_file() const
    {
        const std::string why = options_.module.find('/') == std::string::npos
                                    ? ""
                                    : why_no_module(options_.module, "");
        return why.empty() ? file_problem_ : why;
    }

    const doctor_options &options_;
    const environment &env_;
    bool loaded_;
    nvml_state nvml_;
    std::vector<card> cards_;
    std::optional<emuv::module_file> file_;
    std::string file_problem_;
};

tone tone_of(status what)
{
    switch (what) {
    case status::ok:
        return tone::good;
    case status::warn:
        return tone::warn;
    case status::fail:
        return tone::bad;
    case status::skip:
        break;
    }
    return tone::plain;
}

// A line a finding and more where they need it, no longer than the terminal is
// wide; on a narrow one the details stand below.
// @param terminal  its width; 0: there is none
std::string as_text(std::span<const finding> findings, std::size_t terminal,
                    bool colors)
{
    constexpr std::size_t usual = 80;
    constexpr std::size_t narrow = 60;
    constexpr std::size_t state_width = 5;
    const std::size_t width = (terminal == 0 ? usual : terminal) - 1;
    std::size_t name_width = 0;
    for (const auto &one : findings)
        name_width = std::max(name_width, one.check.size());
    const bool below = width < narrow;
    const std::size_t indent = state_width + 1 + (below ? 0 : name_width + 1);
    const std::string margin(indent, ' ');
    std::string text;
    for (const auto &one : findings) {
        const auto state = to_text(one.result);
        text += (colors ? in_color(state, tone_of(one.result))
                        : std::string(state)) +
                std::string(state_width + 1 - state.size(), ' ');
        text += below ? one.check + "\n" + margin
                      : fmt::format("{:<{}} ", one.check, name_width);
        text += wrap(one.detail, indent, width) + "\n";
        if (!one.fix.empty())
            text += margin + wrap("fix: " + one.fix, indent, width) + "\n";
    }
    return text;
}

void cmd_doctor(const doctor_options &options, environment &env)
{
    static constexpr std::string_view defaults[] = {"check", "status",
                                                    "detail"};
    printer print(options.output, columns, defaults);
    const auto findings = doctor(options, env).examine();
    const auto failed =
        std::count_if(findings.begin(), findings.end(), [](const finding &one) {
            return one.result == status::fail;
        });
    if (options.output.any()) {
        listing list;
        list.name = "checks";
        list.columns = columns;
        list.beside.emplace_back("ok", failed == 0);
        for (const auto &one : findings) {
            row line;
            line.tone = tone_of(one.result);
            line.cells = {one.check, std::string(to_text(one.result)),
                          one.detail, one.fix.empty() ? cell() : cell(one.fix)};
            list.rows.push_back(std::move(line));
        }
        print.print(list, env);
    } else {
        env.out.write(as_text(findings, env.out.width(),
                              colors_wanted(options.output.color, env)));
    }
    if (failed != 0)
        throw failure(
            fmt::format("{} check{} failed", failed, failed == 1 ? "" : "s"));
}

} // namespace

verb doctor_verb()
{
    const auto options = std::make_shared<doctor_options>();
    verb doctor{"doctor", "Machine",
                "check the machine, with a fix for what fails",
                "Checks what emuV needs here, and says for each failed check "
                "what to do. Exits\nwith 1 if a check failed."};
    doctor.options = {module_option(options->module),
                      config_option(options->config)};
    add_output(doctor, options->output, columns);
    doctor.action = [options](environment &env) { cmd_doctor(*options, env); };
    return doctor;
}

} // namespace emuvctl
