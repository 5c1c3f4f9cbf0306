// SPDX-License-Identifier: GPL-2.0-or-later
// emuvctl vm-serve: memory of an instance, handed to virtual machines.
#include "draft.hpp"
#include "environment.hpp"
#include "failure.hpp"
#include "ivshmem_server.hpp"
#include "verbs.hpp"
#include "vm_socket.hpp"

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

#include <fmt/format.h>
#include <linux/emuv.h>

namespace emuvctl {

namespace {

struct vm_serve_options
{
    vm_socket_options at;
    std::string size;
    bool allow_unguaranteed = false;
};

// The device's memory is a power of two, as that of any PCI device.
std::uint64_t size_for_machines(const vm_serve_options &options,
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
void check_guaranteed(const vm_serve_options &options,
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
                                          const vm_serve_options &options,
                                          const std::filesystem::path &node)
{
    try {
        if (options.at.socket.empty()) {
            make_folder(path.parent_path().parent_path());
            make_folder(path.parent_path());
        }
        return std::make_unique<ivshmem_server>(path, node);
    } catch (const std::system_error &problem) {
        const bool elsewhere =
            options.at.socket.empty() && problem.code().value() == EACCES;
        throw failure(
            fmt::format("cannot listen at {}: {}{}", printable(path.native()),
                        emuv::errno_text(problem.code().value()),
                        elsewhere ? "; --socket names another place" : ""));
    }
}

void cmd_vm_serve(const vm_serve_options &options, environment &env)
{
    const auto info = read_vm_instance(options.at, env);
    const auto bytes = size_for_machines(options, info);
    check_guaranteed(options, info, env);
    const auto path = vm_socket_path(options.at, info, env);
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

} // namespace

verb vm_serve_verb()
{
    const auto options = std::make_shared<vm_serve_options>();
    verb serve{
        "vm-serve", "Virtual machines",
        "hand an instance's memory to virtual machines",
        "Hands memory of a guaranteed instance to each virtual machine that "
        "connects,\nuntil interrupted. A machine has it until it ends. "
        "Users who may open\nthe instance's node may connect.\n"
        "  emuvctl vm-serve emuv0 --size 16G"};
    serve.options = {vm_socket_option(options->at),
                     {"--size", "SIZE",
                      "for each machine, a power of two. Default:\n"
                      "the largest that the instance has",
                      &options->size},
                     flag("--allow-unguaranteed", options->allow_unguaranteed,
                          "serve an instance that is not guaranteed: a\n"
                          "full host then ends or stops a machine")};
    serve.arguments = instance_arguments(options->at.instances);
    serve.arguments->required = true;
    serve.action = [options](environment &env) { cmd_vm_serve(*options, env); };
    return serve;
}

} // namespace emuvctl
