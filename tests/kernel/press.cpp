// SPDX-License-Identifier: GPL-2.0-or-later
// Presses an instance past its physical size, for the demo. It charges all
// physical VRAM, fills all virtual VRAM with a pattern and checks every byte.
// It prints its steps.
#include <emuv/client.hpp>
#include <emuv/error.hpp>
#include <emuv/size.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>

namespace {

using clock = std::chrono::steady_clock;

constexpr std::uint64_t most_regions = 8;

/// Prints a line at once, even into a pipe.
void say(const std::string &line)
{
    std::printf("press: %s\n", line.c_str());
    std::fflush(stdout);
}

/// The eight bytes that belong at an offset. They differ between offsets, so
/// that a misplaced or old chunk shows.
std::uint64_t pattern(std::uint64_t offset)
{
    std::uint64_t x = offset + 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 31)) * 0xbf58476d1ce4e5b9;
    return x ^ (x >> 29);
}

/// Goes through all mappings, a MiB at a time, and reports progress. It calls
/// each(words, offset, n) for n 64-bit words at the node's offset.
template <typename Each>
void sweep(const std::string &verb, const std::vector<emuv::region> &regions,
           const std::vector<emuv::mapping> &mappings, Each each)
{
    constexpr std::size_t step = 1 << 20;
    std::uint64_t total = 0;
    for (const emuv::mapping &part : mappings)
        total += part.size();

    const auto start = clock::now();
    auto reported = start;
    const auto report = [&](std::uint64_t done, clock::time_point now) {
        const double seconds =
            std::chrono::duration<double>(now - start).count();
        const double gib = static_cast<double>(done) / (1 << 30);
        char text[128];
        std::snprintf(text, sizeof text, "%s %.2f of %s (%.2f GiB/s)",
                      verb.c_str(), gib, emuv::format_size_exact(total).c_str(),
                      gib / seconds);
        say(text);
    };
    std::uint64_t done = 0;
    for (std::size_t i = 0; i < mappings.size(); ++i) {
        for (std::size_t at = 0; at < mappings[i].size(); at += step) {
            const std::size_t bytes = std::min(step, mappings[i].size() - at);
            // The kernel maps whole pages, so words are aligned.
            auto *words =
                reinterpret_cast<std::uint64_t *>(mappings[i].data() + at);
            each(words, regions[i].offset() + at, bytes / sizeof *words);
            done += bytes;
            const auto now = clock::now();
            if (now - reported >= std::chrono::seconds(1) || done == total) {
                reported = now;
                report(done, now);
            }
        }
    }
}

/// Runs a call that the limit must refuse, and reports the refusal.
/// @throws std::runtime_error the call succeeded
template <typename Call>
void must_be_refused(const std::string &what, Call call)
{
    try {
        call();
    } catch (const emuv::error &refusal) {
        if (refusal.number() != ENOSPC)
            throw;
        say(what + ": refused (" + refusal.what() + ")");
        return;
    }
    throw std::runtime_error(what + " was granted");
}

void press(const std::string &node)
{
    emuv::client client(node, O_RDWR | O_CLOEXEC);
    emuv::client other(node, O_RDWR | O_CLOEXEC);
    const emuv::instance_info before = client.query();
    say(node + ": " + emuv::format_size_exact(before.physical_bytes) +
        " of physical VRAM, " + emuv::format_size_exact(before.virtual_bytes) +
        " of virtual VRAM");

    client.charge(before.physical_bytes - before.physical_used_bytes);
    say("charged " +
        emuv::format_size_exact(client.query().physical_used_bytes) +
        ": the physical VRAM is full");
    must_be_refused("one byte more", [&] { client.charge(1); });
    must_be_refused("one byte for another client", [&] { other.charge(1); });

    const std::uint64_t left = before.virtual_bytes - before.virtual_used_bytes;
    if (left == 0)
        throw std::runtime_error("no virtual VRAM is left to press");
    // Every region but the last has whole chunks; the last has the rest.
    const std::uint64_t share =
        left / most_regions / before.chunk_bytes * before.chunk_bytes;
    std::vector<emuv::region> regions;
    for (std::uint64_t rest = left; rest > 0; rest -= regions.back().bytes())
        regions.push_back(client.alloc(
            share == 0 || regions.size() == most_regions - 1 ? rest : share));
    say("allocated " + emuv::format_size_exact(left) + " of virtual VRAM in " +
        std::to_string(regions.size()) + " regions: past the physical size");
    must_be_refused("one byte more", [&] { (void)client.alloc(1); });
    must_be_refused("one byte for another client",
                    [&] { (void)other.alloc(1); });

    std::vector<emuv::mapping> mappings;
    for (const emuv::region &region : regions)
        mappings.push_back(region.map());

    sweep("filled", regions, mappings,
          [](std::uint64_t *words, std::uint64_t offset, std::size_t count) {
              for (std::size_t i = 0; i < count; ++i)
                  words[i] = pattern(offset + i * sizeof *words);
          });
    const std::uint64_t resident = client.query().resident_bytes;
    if (resident < left)
        throw std::runtime_error("only " + emuv::format_size_exact(resident) +
                                 " of RAM back what was filled");

    std::uint64_t checked = 0;
    sweep("checked", regions, mappings,
          [&](const std::uint64_t *words, std::uint64_t offset,
              std::size_t count) {
              for (std::size_t i = 0; i < count; ++i) {
                  const std::uint64_t at = offset + i * sizeof *words;
                  if (words[i] != pattern(at))
                      throw std::runtime_error("wrong bytes at offset " +
                                               std::to_string(at) + " of " +
                                               node);
              }
              checked += count * sizeof *words;
          });
    if (checked != left)
        throw std::runtime_error("not every byte was checked");
    say("all " + std::to_string(checked) + " bytes are right, at " +
        emuv::format_size_exact(before.physical_bytes + checked) +
        " in use of an instance with " +
        emuv::format_size_exact(before.physical_bytes) + " of physical VRAM");

    // The next client must not find the written data.
    mappings.clear();
    regions.clear();
    client.uncharge(before.physical_bytes - before.physical_used_bytes);
    const emuv::region fresh = other.alloc(before.chunk_bytes);
    const emuv::mapping seen = fresh.map(false);
    if (std::any_of(seen.data(), seen.data() + seen.size(),
                    [](std::byte b) { return b != std::byte{0}; }))
        throw std::runtime_error("a new region does not read as zeros");
    say("given back; the next client reads zeros");
}

} // namespace

int main(int argc, char **argv)
{
    if (argc != 2 || std::string_view(argv[1]).starts_with('-')) {
        std::fprintf(stderr, "Usage: press NODE, such as /dev/emuv0\n");
        return 2;
    }
    try {
        press(argv[1]);
    } catch (const std::exception &failure) {
        std::fprintf(stderr, "press: failed: %s\n", failure.what());
        return 1;
    }
    return 0;
}
