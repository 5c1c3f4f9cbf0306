// SPDX-License-Identifier: GPL-2.0-or-later
// The host's side of a job.
#include "host.hpp"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string>
#include <string_view>

namespace emuv::estimate {

namespace {

constexpr double mib = 1 << 20;
constexpr double gib = 1 << 30;

// Bytes of a batch as it waits in RAM: tokens of 64 bits with their mask and
// labels, images of three colours in 32 bits.
double batch_bytes(const model &of, const job &as, const needs &has)
{
    double sample = 3 * 8 * has.tokens;
    double images = as.images;
    double edge = 0;
    if (of.net) {
        images = 1;
        edge = static_cast<double>(of.net->image);
    } else if (of.eyes) {
        edge = static_cast<double>(of.eyes->image);
    } else if (of.text.vocabulary == 0) {
        images = 1;
        edge = 224;
    }
    const double area = as.image_width != 0 && as.image_height != 0
                            ? static_cast<double>(as.image_width) *
                                  static_cast<double>(as.image_height)
                            : edge * edge;
    sample += images * area * 3 * 4;
    return as.batch * sample;
}

std::optional<std::uint64_t> number_in(const std::filesystem::path &file)
{
    std::ifstream stream(file);
    std::string line;
    if (!std::getline(stream, line))
        return std::nullopt;
    std::uint64_t value = 0;
    const auto [stop, problem] =
        std::from_chars(line.data(), line.data() + line.size(), value);
    // "max", and what version 1 has in its place.
    if (problem != std::errc() || value >= std::uint64_t{1} << 60U)
        return std::nullopt;
    return value;
}

// The smallest limit of a group and those above it.
std::optional<std::uint64_t> smallest(const std::filesystem::path &root,
                                      std::filesystem::path group,
                                      const char *file)
{
    std::optional<std::uint64_t> out;
    for (;;) {
        const auto here = number_in(root / group / file);
        if (here && (!out || *here < *out))
            out = here;
        if (group.empty())
            return out;
        group = group.parent_path();
    }
}

} // namespace

host_needs on_host(const model &of, const job &as, const needs &has,
                   const host_job &with, const range &spilled)
{
    host_needs out;
    // A process with PyTorch and a context, and its fork that loads data.
    out.programs = range{1.5 * gib, 2.5 * gib, 4 * gib} * with.processes;
    out.workers = range{150 * mib, 500 * mib, 1.5 * gib} *
                  (with.processes * with.workers);
    const double waiting = std::max(1.0, with.workers * with.prefetch);
    out.batches = range{1, 1.5, 2.5} *
                  (with.processes * waiting * batch_bytes(of, as, has));
    // Mapped files need nothing of their own; pickled ones are read as a whole.
    out.loading = range{0, 0.1, 1} * (with.processes * has.weights.likely);
    out.spilled = spilled * with.processes;
    // A checkpoint is read before anything spills but weights.
    out.all = out.programs + out.workers + out.batches +
              larger(out.loading, out.spilled);
    return out;
}

std::optional<double> safe_workers(const model &of, const job &as,
                                   const needs &has, host_job with,
                                   const range &spilled, double ram)
{
    std::optional<double> out;
    for (with.workers = 0; with.workers <= 256; with.workers++) {
        if (on_host(of, as, has, with, spilled).all.high > ram)
            break;
        out = with.workers;
    }
    return out;
}

std::optional<std::uint64_t> cgroup_limit(const std::filesystem::path &proc,
                                          const std::filesystem::path &sys)
{
    std::ifstream groups(proc / "self/cgroup");
    std::optional<std::uint64_t> out;
    // "0::/a/b", or "7:memory:/a/b" in version 1.
    for (std::string line; std::getline(groups, line);) {
        const auto first = line.find(':');
        const auto second = line.find(':', first + 1);
        if (first == std::string::npos || second == std::string::npos)
            continue;
        const std::string_view all = line;
        const auto controllers = all.substr(first + 1, second - first - 1);
        std::string path = line.substr(second + 1);
        if (path.find("..") != std::string::npos)
            continue;
        path.erase(0, path.find_first_not_of('/'));
        std::optional<std::uint64_t> here;
        if (all.starts_with("0::"))
            here = smallest(sys / "fs/cgroup", path, "memory.max");
        else if (controllers == "memory")
            here = smallest(sys / "fs/cgroup/memory", path,
                            "memory.limit_in_bytes");
        if (here && (!out || *here < *out))
            out = here;
    }
    return out;
}

} // namespace emuv::estimate
