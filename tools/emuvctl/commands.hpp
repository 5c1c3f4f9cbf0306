// SPDX-License-Identifier: GPL-2.0-or-later
// The verbs: what each was asked for, and where it is done.
#pragma once

#include "output.hpp"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace emuvctl {

struct environment;

struct load_options
{
    std::string module = "emuv";
    std::vector<std::string> parameters; // NAME=VALUE
    bool dry_run = false;
    output_options output;
};
void cmd_load(const load_options &options, environment &env);

struct unload_options
{
    bool dry_run = false;
};
void cmd_unload(const unload_options &options, environment &env);

struct create_options
{
    std::string profile;
    std::string config;
    std::string gpu_model;
    std::string physical;
    std::string virtual_size;
    std::string id;
    std::string count;
    std::string numa_node;
    std::string pci_device_id;
    bool overcommit = false;
    std::string module = "emuv";
    bool dry_run = false;
    output_options output;
};
void cmd_create(const create_options &options, environment &env);

struct destroy_options
{
    std::vector<std::string> instances;
    bool all = false;
    bool dry_run = false;
};
void cmd_destroy(const destroy_options &options, environment &env);

struct list_options
{
    std::vector<std::string> instances;
    output_options output;
};
void cmd_list(const list_options &options, environment &env);
void cmd_info(const list_options &options, environment &env);

struct stats_options
{
    std::vector<std::string> instances;
    std::string interval;
    std::string count;
    bool no_clients = false;
    output_options output;
};
void cmd_stats(const stats_options &options, environment &env);
std::span<const column> stats_columns();

struct run_options
{
    std::string instance; // or several, by device
    std::string physical;
    std::string virtual_size;
    std::string ledger;
    std::string report;
    std::string store;
    std::string charge;
    bool reclaim = false;
    bool ipc = false;
    std::string move; // empty, 1, always or check
    std::string away;
    std::string trust;
    std::string trace;
    bool disable = false;
    std::string cuda_library_dir; // the folder of the CUDA library
    std::string libcuda;          // the driver's own, as is the next
    std::string libnvml;
    bool dry_run = false;
    std::vector<std::string> command;
};
/// Becomes the program; comes back with --dry-run alone.
void cmd_run(const run_options &options, environment &env);

struct profile_options
{
    std::string config;
    std::vector<std::string> names; // show: which
    output_options output;
};
void cmd_profile_list(const profile_options &options, environment &env);
void cmd_profile_show(const profile_options &options, environment &env);
std::span<const column> profile_columns();

struct apply_options
{
    std::string config;
    std::string module = "emuv";
    bool dry_run = false;
    output_options output;
};
void cmd_apply(const apply_options &options, environment &env);
std::span<const column> apply_columns();

struct export_options
{
    std::vector<std::string> instances;
    output_options output;
};
void cmd_export(const export_options &options, environment &env);

struct assert_options
{
    std::string config;
    output_options output;
};
void cmd_assert(const assert_options &options, environment &env);
std::span<const column> assert_columns();

struct gpu_options
{
    std::vector<std::string> names;
    output_options output;
};
void cmd_gpu_list(const gpu_options &options, environment &env);
std::span<const column> gpu_columns();

struct doctor_options
{
    std::string module = "emuv";
    std::string config;
    output_options output;
};
void cmd_doctor(const doctor_options &options, environment &env);
std::span<const column> doctor_columns();

} // namespace emuvctl
