// SPDX-License-Identifier: GPL-2.0-or-later
// Explains in words for a person what went wrong in a call on the driver.
#include "environment.hpp"
#include "failure.hpp"
#include "host_memory.hpp"
#include "instances.hpp"
#include "module_file.hpp"

#include <emuv/error.hpp>
#include <emuv/module.hpp>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include <fmt/format.h>

namespace emuvctl {

namespace {

std::string explain_load(const emuv::error &problem, const environment &env)
{
    const std::string &module = problem.node();
    const bool path = module.find('/') != std::string::npos;
    // The kernel's number says less than the file does.
    if (path && problem.number() != EEXIST && problem.number() != EPERM) {
        const std::string why = why_no_module(
            module, emuv::read_line_file(env.proc / "sys/kernel/osrelease")
                        .value_or(""));
        if (!why.empty())
            return module + ": " + why;
    }
    switch (problem.number()) {
    case EEXIST:
        return "the module is loaded already";
    case ENOENT:
        if (problem.call() == "init_module")
            return module + ": wants symbols that this kernel does not have; "
                            "it was built for another one";
        return path ? module + ": no such file"
                    : "there is no module " + module +
                          " for the running kernel; install it, or name its "
                          "file with --module";
    case EPERM:
        return module + ": not permitted; loading a module takes root's "
                        "rights, and a kernel that is not locked down";
    case EKEYREJECTED:
    case ENOKEY:
        return module + ": the kernel refuses its signature; 'emuvctl doctor' "
                        "says how to sign it";
    case ENOEXEC:
        return module + ": not a module for the running kernel; 'emuvctl "
                        "doctor' compares the two";
    case ENOSYS:
        return "this kernel is built without loadable modules";
    case EINVAL:
        return module + ": the module refuses its parameters";
    default:
        return module + ": " + emuv::errno_text(problem.number());
    }
}

std::string explain_unload(const emuv::error &problem, const environment &env)
{
    switch (problem.number()) {
    case EAGAIN: // EWOULDBLOCK
    case EBUSY: {
        const std::string users = describe_users(env);
        return users.empty() ? "in use: an open node, a mapping or an exported "
                               "region holds it"
                             : "in use: " + users;
    }
    case ENOENT:
        return "the module is not loaded";
    case EPERM:
        return "not permitted; unloading a module takes root's rights";
    default:
        return emuv::errno_text(problem.number());
    }
}

std::string explain_create(const emuv::error &problem, const std::string &name,
                           const environment &env)
{
    switch (problem.number()) {
    case EEXIST:
        return name + ": already exists";
    case ENOSPC:
        return fmt::format("no id is free: {} instances exist",
                           EMUV_MAX_INSTANCES);
    case ENOMEM:
        return explain_promise(env);
    case EINVAL:
        return "the driver refuses these values";
    default:
        return name + ": " + emuv::errno_text(problem.number());
    }
}

std::string explain_destroy(const emuv::error &problem, const std::string &name,
                            const environment &env)
{
    if (problem.number() != EBUSY)
        return name + ": " +
               (problem.number() == ENODEV
                    ? std::string("no such instance")
                    : emuv::errno_text(problem.number()));
    const auto info = env.sysfs().instance(problem.id());
    if (info && info->clients != 0)
        return name + ": in use by " + describe_clients(*info, env);
    return name + ": in use: a mapping or an exported region holds memory of "
                  "it";
}

std::string explain_resize(const emuv::error &problem, const std::string &name,
                           const environment &env)
{
    const auto info = env.sysfs().instance(problem.id());
    switch (problem.number()) {
    case EBUSY:
        return name + ": memory is in use that the new sizes leave no place "
                      "for; it never moves, and must be freed first";
    case ENOMEM:
        return info && info->guaranteed
                   ? name + ": the host has not so much RAM to reserve now"
                   : name + ": the host cannot back so much more virtual VRAM; "
                            "'emuvctl doctor' tells what it can";
    case EINVAL:
        if (is_of_a_device(problem.id(), env))
            return name + ": its virtual VRAM is a device's memory, and has "
                          "that size for good";
        return info && info->swaps ? name + ": its swap file has no room for "
                                            "that"
                                   : name + ": the driver refuses these sizes";
    case ENOTTY:
        return "the module that is loaded is older than 'resize'";
    case ENODEV:
        return name + ": no such instance";
    default:
        return name + ": " + emuv::errno_text(problem.number());
    }
}

// A container has what it was given of /dev, and all of sysfs.
std::string explain_missing_node(const std::string &node,
                                 const std::string &name,
                                 const environment &env)
{
    const auto ids = env.sysfs().ids();
    const bool exists = std::any_of(ids.begin(), ids.end(), [&](int id) {
        return emuv::instance_name(id) == name;
    });
    return exists ? node + ": there is no such node here, though the instance "
                           "exists; pass the node into the container, or let "
                           "udev run"
                  : name + ": no such instance";
}

std::string explain_open(const emuv::error &problem, const environment &env)
{
    const std::string name =
        std::filesystem::path(problem.node()).filename().string();
    const bool control = name == "emuv-control";
    switch (problem.number()) {
    case ENOENT:
    case ENODEV:
    case ENXIO:
        if (!env.sysfs().loaded())
            return "the emuv module is not loaded; 'emuvctl load' loads it";
        return control ? problem.node() + ": there is no such node though the "
                                          "module is loaded; is devtmpfs "
                                          "mounted there?"
                       : explain_missing_node(problem.node(), name, env);
    case EACCES:
    case EPERM:
        return control ? problem.node() + ": not permitted; this takes root's "
                                          "rights"
                       : problem.node() + ": not permitted; root and the group "
                                          "of the node may use it";
    default:
        return problem.node() + ": " + emuv::errno_text(problem.number());
    }
}

} // namespace

std::string explain_promise(const environment &env)
{
    const auto host = read_host_memory(env);
    const std::string why =
        host ? fmt::format("{} of the {} that the host can back are promised "
                           "already",
                           say_size(promised_bytes(env), false),
                           say_size(host->promisable(), false))
             : "the host cannot back so much more virtual VRAM";
    return why + "; --overcommit promises more all the same";
}

std::string explain_promise(const environment &env, std::uint64_t bytes,
                            const std::string &profile,
                            std::optional<std::uint64_t> promised)
{
    const auto host = read_host_memory(env);
    const std::string left =
        host ? fmt::format(
                   "of the {} that the host can back, {} are promised "
                   "to others",
                   say_size(host->promisable(), false),
                   say_size(promised.value_or(promised_bytes(env)), false))
             : "that is more than the host can back";
    return fmt::format("[{0}] wants {1} of virtual VRAM: {2}; 'overcommit=yes' "
                       "in [{0}] promises it all the same",
                       profile, say_size(bytes, false), left);
}

std::string explain(const emuv::error &problem, const environment &env)
{
    // Nothing was done, for any call.
    if (dynamic_cast<const emuv::abi_mismatch *>(&problem) != nullptr)
        return problem.what();
    const std::string &call = problem.call();
    const std::string name =
        problem.id() >= 0 ? emuv::instance_name(problem.id()) : problem.node();
    if (call == "lookup" || call == "init_module")
        return explain_load(problem, env);
    if (call == "delete_module")
        return explain_unload(problem, env);
    if (call == "open")
        return explain_open(problem, env);
    if (call == "EMUV_IOC_CREATE")
        return explain_create(problem, name, env);
    if (call == "EMUV_IOC_DESTROY")
        return explain_destroy(problem, name, env);
    if (call == "EMUV_IOC_RESIZE")
        return explain_resize(problem, name, env);
    if (problem.number() == ENODEV && problem.id() >= 0)
        return name + ": no such instance";
    return name + ": " + emuv::errno_text(problem.number());
}

} // namespace emuvctl
