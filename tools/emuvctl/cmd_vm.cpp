// SPDX-License-Identifier: GPL-2.0-or-later
// emuvctl vm-serve and vm-args: memory of an instance for virtual machines.
#include "draft.hpp"
#include "environment.hpp"
#include "failure.hpp"
#include "instances.hpp"
#include "ivshmem_server.hpp"
#include "verbs.hpp"

#include <emuv/client.hpp>
#include <emuv/error.hpp>
#include <emuv/size.hpp>

#include <bit>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <linux/emuv.h>

#include <nlohmann/json.hpp>

namespace emuvctl {

namespace {

struct vm_options
{
    std::vector<std::string> instances;
    std::string socket;
    std::string size;
    bool libvirt = false;
    bool allow_unguaranteed = false;
    output_options output;
};

emuv::instance_info find_one(const vm_options &options, const environment &env)
{
    if (options.instances.size() != 1)
        throw usage_error("give one instance");
    return read_instances(parse_instances(options.instances, env), env).front();
}

// The socket that machines connect to. QEMU may be started in any folder.
std::filesystem::path socket_path(const vm_options &options,
                                  const emuv::instance_info &info,
                                  const environment &env)
{
    if (options.socket.empty())
        return env.run / "emuv/vm" / (info.name() + ".sock");
    return std::filesystem::absolute(options.socket);
}

// vm-serve

// The device's memory is a power of two, as that of any PCI device.
std::uint64_t size_for_machines(const vm_options &options,
                                const emuv::instance_info &info)
{
    if (options.size.empty()) {
        if (info.virtual_bytes == 0)
            throw failure(
                fmt::format("{}: it has no virtual VRAM", info.name()));
        return std::bit_floor(info.virtual_bytes);
    }
    const auto bytes =
        parse_option("--size", [&] { return emuv::parse_size(options.size); });
    if (!std::has_single_bit(bytes) || bytes < EMUV_CHUNK_BYTES)
        throw usage_error(fmt::format("--size: {} is no power of two of 2M or "
                                      "more, as a PCI device's memory is",
                                      printable(options.size)));
    if (bytes > info.virtual_bytes)
        throw failure(fmt::format("{}: it has {} of virtual VRAM in all",
                                  info.name(),
                                  say_size(info.virtual_bytes, false)));
    return bytes;
}

// Guests take their memory for certain. A machine fails as its guest touches
// memory that the host no longer has.
void check_guaranteed(const vm_options &options,
                      const emuv::instance_info &info, const environment &env)
{
    if (info.guaranteed)
        return;
    const auto problem = fmt::format(
        "{} is not guaranteed: a full host ends or stops the machine",
        info.name());
    if (!options.allow_unguaranteed)
        throw failure(problem + "; create it with --guaranteed, or give "
                                "--allow-unguaranteed");
    env.say(problem);
}

// The instance of which memory is handed out. It is held: when it has gone, its
// number may be that of another one, which other users may open.
class served_instance
{
public:
    served_instance(const emuv::instance_info &info, const environment &env)
        : info_(info), env_(env), holder_(info.id, env.dev, env.kernel)
    {
        check();
    }

    // @throws failure  it has gone
    void check() const
    {
        try {
            if (holder_.query().uuid == info_.uuid)
                return;
        } catch (const emuv::error &problem) {
            if (problem.number() != ENODEV)
                throw;
        }
        throw failure(info_.name() + ": it has been destroyed, and machines "
                                     "have lost its memory");
    }

    // Memory of a client of its own, which the limit of a client holds for.
    [[nodiscard]] emuv::region allocate(std::uint64_t bytes) const
    {
        emuv::client one(info_.id, env_.dev, env_.kernel);
        check();
        return one.alloc(bytes);
    }

private:
    const emuv::instance_info &info_;
    const environment &env_;
    emuv::client holder_;
};

std::unique_ptr<ivshmem_server> listen_at(const std::filesystem::path &path,
                                          const vm_options &options,
                                          const std::filesystem::path &node)
{
    try {
        if (options.socket.empty()) {
            make_folder(path.parent_path().parent_path());
            make_folder(path.parent_path());
        }
        return std::make_unique<ivshmem_server>(path, node);
    } catch (const std::system_error &problem) {
        const bool elsewhere =
            options.socket.empty() && problem.code().value() == EACCES;
        throw failure(
            fmt::format("cannot listen at {}: {}{}", printable(path.native()),
                        emuv::errno_text(problem.code().value()),
                        elsewhere ? "; --socket names another place" : ""));
    }
}

void cmd_vm_serve(const vm_options &options, environment &env)
{
    const auto info = find_one(options, env);
    const auto bytes = size_for_machines(options, info);
    check_guaranteed(options, info, env);
    const auto path = socket_path(options, info, env);
    const served_instance instance(info, env);
    const auto server = listen_at(path, options, env.dev / info.name());
    env.say(fmt::format("{} of {} for each virtual machine, at {}; until "
                        "interrupted",
                        say_size(bytes, false), info.name(),
                        printable(path.native())));
    server->run(
        [&] {
            instance.check();
            return env.wait(0);
        },
        [&] { return instance.allocate(bytes); },
        [&env](std::string_view text) { env.say(text); });
}

// vm-args

std::string in_xml(std::string_view text)
{
    std::string safe;
    for (const char one : text) {
        switch (one) {
        case '&':
            safe += "&amp;";
            break;
        case '<':
            safe += "&lt;";
            break;
        case '\'':
            safe += "&apos;";
            break;
        default:
            safe += one;
        }
    }
    return safe;
}

// QEMU's options come apart at commas, the words at blanks.
std::string in_option(const std::string &path)
{
    if (path.find_first_of(" \t\n'\"\\*?[$") != std::string::npos)
        throw failure(fmt::format("{}: this path cannot be a word of a command "
                                  "line; name another one by --socket",
                                  printable(path)));
    std::string safe;
    for (const char one : path)
        safe.append(one == ',' ? 2 : 1, one);
    return safe;
}

std::string in_libvirt(const std::string &name, const std::string &path)
{
    return fmt::format("<shmem name='{}'>\n"
                       "  <model type='ivshmem-doorbell'/>\n"
                       "  <server path='{}'/>\n"
                       "  <msi vectors='1' ioeventfd='off'/>\n"
                       "</shmem>\n",
                       name, in_xml(path));
}

std::vector<std::string> in_words(const std::string &name,
                                  const std::string &path)
{
    return {"-chardev",
            fmt::format("socket,id={},path={}", name, in_option(path)),
            "-device",
            fmt::format("ivshmem-doorbell,chardev={},vectors=1,ioeventfd=off",
                        name)};
}

std::string text_of_args(const vm_options &options, const std::string &name,
                         const std::string &path)
{
    if (options.libvirt)
        return in_libvirt(name, path);
    const auto words = in_words(name, path);
    if (!options.output.json)
        return fmt::format("{}\n", fmt::join(words, " "));
    return nlohmann::ordered_json{
               {"schema", 1}, {"socket", path}, {"arguments", words}}
               .dump(2, ' ', false,
                     nlohmann::ordered_json::error_handler_t::replace) +
           "\n";
}

void cmd_vm_args(const vm_options &options, environment &env)
{
    const auto info = find_one(options, env);
    const auto path = socket_path(options, info, env);
    const auto text = text_of_args(options, info.name(), path.native());
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored))
        env.say(fmt::format("no machine can start with this until 'emuvctl "
                            "vm-serve {}' runs",
                            info.name()));
    env.out.write(text);
}

option socket_option(vm_options &options)
{
    return {"--socket", "PATH",
            "where machines connect. Default:\n/run/emuv/vm/emuvN.sock",
            &options.socket, offered::files};
}

} // namespace

verb vm_args_verb()
{
    const auto options = std::make_shared<vm_options>();
    verb args{
        "vm-args", "Virtual machines",
        "print QEMU's options for an instance's memory",
        "Prints the options with which QEMU shows a guest the memory that "
        "'vm-serve'\nhands out. In the guest, the module makes an instance of "
        "it:\n'modprobe emuv ivshmem=all'.\n"
        "  qemu-system-x86_64 $(emuvctl vm-args emuv0) ..."};
    args.options = {socket_option(*options),
                    flag("--libvirt", options->libvirt,
                         "print a device of libvirt's domains instead"),
                    json_flag(options->output)};
    args.options.back().excludes = {"--libvirt"};
    args.arguments = instance_arguments(options->instances);
    args.arguments->required = true;
    args.action = [options](environment &env) { cmd_vm_args(*options, env); };
    return args;
}

verb vm_serve_verb()
{
    const auto options = std::make_shared<vm_options>();
    verb serve{
        "vm-serve", "Virtual machines",
        "hand an instance's memory to virtual machines",
        "Hands memory of a guaranteed instance to each virtual machine that "
        "connects,\nuntil interrupted. A machine has it until it ends. "
        "Users who may open\nthe instance's node may connect.\n"
        "  emuvctl vm-serve emuv0 --size 16G"};
    serve.options = {socket_option(*options),
                     {"--size", "SIZE",
                      "for each machine, a power of two. Default:\n"
                      "the largest that the instance has",
                      &options->size},
                     flag("--allow-unguaranteed", options->allow_unguaranteed,
                          "serve an instance that is not guaranteed: a\n"
                          "full host then ends or stops a machine")};
    serve.arguments = instance_arguments(options->instances);
    serve.arguments->required = true;
    serve.action = [options](environment &env) { cmd_vm_serve(*options, env); };
    return serve;
}

} // namespace emuvctl
