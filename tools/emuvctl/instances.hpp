// SPDX-License-Identifier: GPL-2.0-or-later
// Finds, describes, makes and unmakes instances, for several verbs.
#pragma once

#include "output.hpp"

#include <emuv/control.hpp>
#include <emuv/profile.hpp>
#include <emuv/types.hpp>

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace emuvctl {

struct card;
struct environment;
class kernel_log;

/// The columns of an instance, for list, info and create.
std::span<const column> instance_columns();
/// The card that a label means as NVML names it, without a variant; the label
/// where it means none, or cards of several names.
std::string nvml_name(const std::string &label);
/// The part of an instance's VRAM that is used, in percent to one place.
double used_percent(const emuv::instance_info &info);
/// One instance in those columns.
/// @param names  as read_names() gives them
/// @param cards  as find_cards() gives them
row instance_row(const emuv::instance_info &info, const environment &env,
                 const std::map<std::string, std::string> &names,
                 const std::vector<card> &cards);

/// Prints instances that were made: their nodes, or as the options want it.
void print_instances(std::span<const emuv::instance_info> made, printer &print,
                     const output_options &output, environment &env);

/// The ids that the words of a command line name, by number or by the name
/// that somebody gave.
/// @throws usage_error a word can name no instance
/// @throws failure no instance has that name
std::vector<int> parse_instances(std::span<const std::string> words,
                                 const environment &env);

/// The instances of these ids, or all without any.
/// @throws failure the module is not loaded, or there is no such instance
std::vector<emuv::instance_info> read_instances(std::span<const int> ids,
                                                const environment &env);

/// Opens an instance's node and closes it: a program under the CUDA library
/// would say a mistake as a number.
/// @throws emuv::error
void try_instance(int id, const environment &env);

/// Throws a failure that says how to load the module, unless it is.
void require_module(const environment &env);

/// An instance's clients, through whichever node may be opened; nullopt if
/// none may. Its own open file is left out. With @p memory the memory behind
/// their regions is looked at, too.
std::optional<std::vector<emuv::client_info>>
read_clients(int id, const environment &env, bool memory = false);

/// "2 clients: 1234 python, 1300 train" or "2 clients".
std::string describe_clients(const emuv::instance_info &info,
                             const environment &env);

/// "emuv0 (2 clients: 1234 python, 1300 train), emuv2 (1 client)"; empty where
/// no instance has any.
std::string describe_users(const environment &env);

/// True if an instance's virtual VRAM is memory of a PCI device, which a host
/// handed to this machine, and none of this machine's own.
bool is_of_a_device(int id, const environment &env);

/// The virtual VRAM that this machine has to back for all instances.
std::uint64_t promised_bytes(const environment &env);

/// "4090, 6 GiB + 2 GiB, 0x2684": model, physical and virtual VRAM, card.
std::string describe(const emuv::instance_spec &spec);
std::string describe(const emuv::instance_info &info);
/// ", with emuv1=40GiB as its tier": to go behind such a text; empty for none.
std::string describe(const std::vector<emuv::tier> &tiers);
/// The values that would make the same instance anew.
emuv::instance_spec to_spec(const emuv::instance_info &info);

/// Loads the module if it is not there.
/// @param module  a path, or a name for modprobe's way
/// @throws emuv::error
void ensure_module(const std::string &module, environment &env);

/// Makes instances, all or none: those that were made go again unless
/// commit() was reached.
class creation
{
public:
    explicit creation(environment &env);
    creation(const creation &) = delete;
    creation &operator=(const creation &) = delete;
    ~creation();

    /// Makes one, waits until its node is there, and gives it tiers.
    /// @param profile  the section that asks for it, for messages; or empty
    /// @throws emuv::error, failure, std::system_error
    emuv::instance_info make(const emuv::instance_spec &spec,
                             const std::vector<emuv::tier> &tiers,
                             const std::string &profile = {});
    /// They stay. Containers are offered them where their names were before.
    void commit() noexcept;

private:
    int make_one(const emuv::instance_spec &spec, const std::string &profile);
    void await_node(int id) const;

    environment &env_;
    emuv::control control_;
    std::vector<int> made_;
};

/// The ids that instances would get if they were made one after the other.
/// @param profiles  the sections that ask for them, for messages; or empty
/// @throws failure an id is taken or none is free, or the host cannot back them
std::vector<int> predict_ids(std::span<const emuv::instance_spec> specs,
                             const environment &env,
                             std::span<const std::string> profiles = {});

} // namespace emuvctl
