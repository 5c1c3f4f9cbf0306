// SPDX-License-Identifier: GPL-2.0-or-later
// emuvctl doctor: finds what keeps emuV from working here, and says what to do.
#include "cuda_library.hpp"
#include "environment.hpp"
#include "failure.hpp"
#include "host_memory.hpp"
#include "instances.hpp"
#include "profiles.hpp"
#include "verbs.hpp"

#include <emuv/error.hpp>
#include <emuv/module.hpp>
#include <emuv/profile.hpp>
#include <emuv/version.hpp>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>
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

// An NVIDIA display controller, as PCI shows it.
struct card
{
    std::string address;
    std::filesystem::path path;
};

std::string attribute(const std::filesystem::path &path)
{
    return emuv::read_line_file(path).value_or("");
}

std::vector<card> find_cards(const environment &env)
{
    std::vector<card> cards;
    std::error_code problem;
    std::filesystem::directory_iterator entry(env.sys / "bus/pci/devices",
                                              problem);
    for (; !problem && entry != std::filesystem::directory_iterator();
         entry.increment(problem))
        if (attribute(entry->path() / "vendor") == "0x10de" &&
            attribute(entry->path() / "class").starts_with("0x03"))
            cards.push_back({entry->path().filename().string(), entry->path()});
    std::sort(cards.begin(), cards.end(), [](const card &a, const card &b) {
        return a.address < b.address;
    });
    return cards;
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
          cards_(find_cards(env))
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
            kernel(), module(),   signature(),    control(), instance_nodes(),
            memory(), profiles(), nvidia_nodes(), cuda(),    library()};
        for (auto &one : links())
            all.push_back(std::move(one));
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
                    fmt::format("{}: {}", options_.module, file_problem_),
                    "build it again"};
        if (!file_)
            return {"module", status::fail,
                    fmt::format("there is no {} for {}", options_.module,
                                release(env_)),
                    fmt::format("install the headers of {0} and run 'make -C "
                                "/lib/modules/{0}/build M=$PWD' in emuV's "
                                "tree, or name the file with --module",
                                release(env_))};
        const std::string built_for =
            file_->vermagic.substr(0, file_->vermagic.find(' '));
        if (built_for != release(env_))
            return {"module", status::fail,
                    fmt::format("{} was built for {}, and {} is running",
                                file_->path, built_for, release(env_)),
                    "build it for the running kernel"};
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
                    "install packaging/udev/70-emuv.rules, then 'udevadm "
                    "control --reload' and 'udevadm trigger'"};
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
        for (const char *const node : {"nvidiactl", "nvidia0", "nvidia-uvm"}) {
            std::error_code ignored;
            if (!std::filesystem::exists(env_.dev / node, ignored))
                missing +=
                    (missing.empty() ? "" : ", ") + (env_.dev / node).string();
        }
        if (missing.empty())
            return {name, status::ok, "all there"};
        return {name, status::fail, missing + ": not there",
                "install NVIDIA's driver; 'nvidia-modprobe -u -c 0' makes the "
                "nodes"};
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
                "install CUDA's toolkit, 13.0 or later, and build emuV again"};
    }

    std::vector<finding> links() const
    {
        std::vector<finding> all;
        for (const auto &one : cards_)
            all.push_back(link(one));
        if (all.empty())
            all.push_back({"link", status::skip, "there is no NVIDIA card"});
        return all;
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

    finding link(const card &which) const
    {
        const std::string name = "link " + which.address;
        const int speed =
            generation(attribute(which.path / "current_link_speed"));
        const int speed_max =
            generation(attribute(which.path / "max_link_speed"));
        const std::string width = attribute(which.path / "current_link_width");
        const std::string width_max = attribute(which.path / "max_link_width");
        if (speed == 0 || speed_max == 0 || width.empty())
            return {name, status::skip, "its link is not shown"};
        std::string state =
            fmt::format("PCIe {}.0 x{} of {}.0 x{}", speed, printable(width),
                        speed_max, printable(width_max));
        if (width != width_max)
            return {name, status::warn,
                    state + ": what overflows moves at this link's speed",
                    "look for a slot with all lanes, or seat the card anew"};
        if (speed < speed_max)
            state += "; an idle card slows its link, look again under load";
        return {name, status::ok, state};
    }

    const doctor_options &options_;
    const environment &env_;
    bool loaded_;
    std::vector<card> cards_;
    std::optional<emuv::module_file> file_;
    std::string file_problem_;
};

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
            line.cells = {one.check, std::string(to_text(one.result)),
                          one.detail, one.fix.empty() ? cell() : cell(one.fix)};
            list.rows.push_back(std::move(line));
        }
        print.print(list, env);
    } else {
        constexpr std::size_t indent = 23;
        constexpr std::size_t width = 79;
        std::string text;
        for (const auto &one : findings) {
            text += fmt::format("{:<5} {:<16} {}\n", to_text(one.result),
                                one.check, wrap(one.detail, indent, width));
            if (!one.fix.empty())
                text += fmt::format("{:23}{}\n", "",
                                    wrap("fix: " + one.fix, indent, width));
        }
        env.out.write(text);
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
