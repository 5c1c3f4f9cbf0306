// SPDX-License-Identifier: GPL-2.0-or-later
// The growth of the CUDA library's engine with the program: the time it adds to
// a launch, and the memory it takes. It runs in front of a driver that does
// nothing and succeeds, so all the time is the library's.
//
//     growth_bench [--json FILE] [TEXT]
//
// With TEXT only the tables that have it in their names: launches, beside,
// tebibyte, schedule.
#include "apart.hpp"
#include "idle_driver.hpp"
#include "memory/memory.hpp"
#include "results.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include <malloc.h>

using namespace emuv::cuda;

namespace {

constexpr std::uint64_t MiB = 1ull << 20;

double seconds_since(std::chrono::steady_clock::time_point start)
{
    return std::chrono::duration<double>(std::chrono::steady_clock::now() -
                                         start)
        .count();
}

double heap_mib()
{
    return static_cast<double>(mallinfo2().uordblks) / static_cast<double>(MiB);
}

// The library, with a card of so many bytes and as much system RAM as it wants.
class engine
{
public:
    explicit engine(std::uint64_t physical)
        : calls_(idle_driver()), host_(calls_)
    {
        rows_.open(nullptr);
        limits_ = std::make_unique<file_ledger>(rows_, 0, physical,
                                                std::uint64_t{1} << 50);
        shares_ = std::make_unique<budget>(
            budget::options{.calls = calls_, .ledgers = {limits_.get()}});
        mover_ =
            std::make_unique<mover>(mover::options{.calls = calls_,
                                                   .shares = *shares_,
                                                   .record = record_,
                                                   .tell = [](const char *) {},
                                                   .always = true});
        memory_ =
            std::make_unique<memory>(memory::options{.calls = calls_,
                                                     .host = host_,
                                                     .shares = *shares_,
                                                     .movers = {mover_.get()}});
    }

    CUdeviceptr allocate(std::uint64_t bytes)
    {
        CUdeviceptr at = 0;
        if (memory_->allocate(&at, bytes) != CUDA_SUCCESS)
            std::abort();
        return at;
    }

    void launch(std::uint64_t kernel, const std::vector<CUdeviceptr> &names)
    {
        mover_->run(
            reinterpret_cast<CUstream>(0x20),
            [&](work &out) {
                out.what = kernel;
                out.trusted = true;
                for (const CUdeviceptr each : names)
                    out.add(each);
            },
            [] { return CUDA_SUCCESS; });
    }

private:
    driver calls_;
    numa_store host_;
    trace record_;
    ledger_file rows_;
    std::unique_ptr<file_ledger> limits_;
    std::unique_ptr<budget> shares_;
    std::unique_ptr<mover> mover_;
    std::unique_ptr<memory> memory_;
};

// A step of 512 launches, over and over: each is given one of 32 allocations of
// 64 MiB and seven of the small ones. With spills, half of the large ones fit.
// Mean, median and the slowest of a hundred, in microseconds, and bytes kept of
// each allocation.
std::vector<double> launches(std::size_t small, bool spills)
{
    constexpr std::uint64_t large = 32;
    engine under(small * 2 * MiB + (spills ? large / 2 : 2 * large) * 64 * MiB);
    const double before = heap_mib();
    std::vector<CUdeviceptr> weights(large);
    std::vector<CUdeviceptr> others(small);
    for (auto &each : others)
        each = under.allocate(2 * MiB);
    for (auto &each : weights)
        each = under.allocate(64 * MiB);
    const double held = heap_mib() - before;
    constexpr std::size_t step = 512;
    std::vector<std::vector<CUdeviceptr>> all(step);
    for (std::size_t i = 0; i < step; i++) {
        all[i].push_back(weights[i * large / step]);
        for (std::size_t j = 0; j < 7; j++)
            all[i].push_back(others[(i * 7 + j) * 977 % small]);
    }
    std::vector<double> times;
    for (int round = 0; round < 60; round++)
        for (std::size_t i = 0; i < step; i++) {
            const auto start = std::chrono::steady_clock::now();
            under.launch(i + 1, all[i]);
            if (round >= 20)
                times.push_back(seconds_since(start) * 1e6);
        }
    std::sort(times.begin(), times.end());
    return {std::accumulate(times.begin(), times.end(), 0.0) /
                static_cast<double>(times.size()),
            times[times.size() / 2], times[times.size() * 99 / 100],
            held * static_cast<double>(MiB) /
                static_cast<double>(small + large)};
}

// A model's step of 2,000 launches, each given a weight and three places in
// activations, which all are in VRAM. Between them the program does something
// else, which goes through so many bytes of its own. Returns the fastest tenth,
// the median and the slowest tenth, in microseconds.
std::vector<double> beside(std::size_t bytes)
{
    std::vector<std::uint64_t> mib;
    for (int layer = 0; layer < 32; layer++)
        mib.insert(mib.end(), {32, 32, 32, 32, 112, 112, 112});
    const std::size_t weights = mib.size();
    mib.insert(mib.end(), 60, 20);
    mib.insert(mib.end(), 6, 512);
    mib.insert(mib.end(), 40, 2);
    engine under(std::accumulate(mib.begin(), mib.end(), std::uint64_t{0}) *
                 MiB);
    std::vector<CUdeviceptr> at;
    for (const std::uint64_t each : mib)
        at.push_back(under.allocate(each * MiB));
    under.allocate(256 * MiB); // which spills
    std::mt19937 random(7);
    std::vector<std::vector<CUdeviceptr>> all(2000);
    for (auto &names : all) {
        names.push_back(at[random() % weights]);
        for (int i = 0; i < 3; i++) {
            const std::size_t of = weights + random() % (mib.size() - weights);
            names.push_back(at[of] + random() % (mib[of] * 2) * (MiB / 2));
        }
    }
    std::vector<unsigned char> other(bytes);
    std::vector<double> times;
    for (int round = 0; round < 12; round++)
        for (std::size_t i = 0; i < all.size(); i++) {
            for (std::size_t line = 0; line < bytes; line += 64)
                *static_cast<volatile unsigned char *>(&other[line]) = 1;
            const auto start = std::chrono::steady_clock::now();
            under.launch(i + 1, all[i]);
            if (round >= 4)
                times.push_back(seconds_since(start) * 1e6);
        }
    std::sort(times.begin(), times.end());
    return {times[times.size() / 10], times[times.size() / 2],
            times[times.size() * 9 / 10]};
}

// MiB that the library takes for a tebibyte of virtual memory, in allocations
// of so many bytes.
std::vector<double> tebibyte(std::uint64_t each)
{
    engine under(0);
    const double before = heap_mib();
    for (std::uint64_t held = 0; held < std::uint64_t{1} << 40; held += each)
        under.allocate(each);
    return {heap_mib() - before};
}

// A million launches: 2,000 steps of 500 of them. Nanoseconds and bytes a
// launch, and those that were not foreseen.
std::vector<double> long_schedule()
{
    schedule past;
    const double before = heap_mib();
    const auto start = std::chrono::steady_clock::now();
    for (std::uint32_t i = 0; i < 1000000; i++) {
        const std::uint32_t place = i % 500;
        const touch touches[] = {{(place + 1) * 64 * MiB, 0, 0}};
        past.note(place + 1, touches, 1);
    }
    return {seconds_since(start) * 1e3,
            (heap_mib() - before) * static_cast<double>(MiB) / 1e6,
            static_cast<double>(past.surprises())};
}

using bench::apart;
using bench::number;
using bench::results;
using bench::text;

void all_launches(results &into)
{
    std::puts(
        "what the library adds to a launch, in us, and keeps in memory\n"
        "allocations  has gone       mean     median       99 %   bytes each");
    into.table("Time that the library adds to a launch", "µs",
               {{"allocations", "small allocations", ""},
                {"spilled", "has spilled"},
                {"mean", "mean"},
                {"median", "median"},
                {"p99", "slowest of a hundred"},
                {"bytes", "kept of each allocation", "B"}});
    for (const bool spills : {false, true})
        for (const std::size_t count : {10u, 1000u, 100000u}) {
            const char *const what = spills ? "some" : "nothing";
            const auto is =
                apart("launches", [=] { return launches(count, spills); });
            if (is.empty())
                continue;
            std::printf("%11zu  %-9s  %9.2f  %9.2f  %9.2f  %11.0f\n", count,
                        what, is[0], is[1], is[2], is[3]);
            into.row({number(static_cast<double>(count)), text(what),
                      number(is[0], 2), number(is[1], 2), number(is[2], 2),
                      number(is[3])});
        }
}

void all_beside(results &into)
{
    std::puts("the same where the program does something else in between\n"
              "goes over, MiB       10 %     median       90 %");
    into.table("The same where the program does something else in between",
               "µs",
               {{"between", "goes over", "MiB"},
                {"p10", "fastest tenth"},
                {"median", "median"},
                {"p90", "slowest tenth"}});
    for (const std::size_t bytes : {0 * MiB, MiB * 3 / 2, 4 * MiB}) {
        const double mib =
            static_cast<double>(bytes) / static_cast<double>(MiB);
        const auto is = apart("beside", [=] { return beside(bytes); });
        if (is.empty())
            continue;
        std::printf("%13.1f  %9.2f  %9.2f  %9.2f\n", mib, is[0], is[1], is[2]);
        into.row({number(mib, 1), number(is[0], 2), number(is[1], 2),
                  number(is[2], 2)});
    }
}

void all_tebibyte(results &into)
{
    std::puts("a tebibyte of virtual memory\n   each of  library, MiB");
    into.table("A tebibyte of virtual memory", "MiB",
               {{"each", "allocations of"}, {"library", "the library takes"}});
    for (const std::uint64_t each : {2 * MiB, 64 * MiB, 1024 * MiB}) {
        const auto is = apart("tebibyte", [=] { return tebibyte(each); });
        if (is.empty())
            continue;
        std::printf("%8llu MiB  %11.1f\n",
                    static_cast<unsigned long long>(each / MiB), is[0]);
        into.row({number(static_cast<double>(each / MiB)), number(is[0], 1)});
    }
}

void all_schedule(results &into)
{
    std::puts("a schedule of a million launches");
    into.table("A schedule of a million launches", nullptr,
               {{"what", "what"}, {"unit", "unit"}, {"value", "value"}});
    const auto is = apart("schedule", long_schedule);
    if (is.empty())
        return;
    std::printf("%.0f ns and %.0f bytes a launch, %.0f not foreseen\n", is[0],
                is[1], is[2]);
    into.row({text("time a launch"), text("ns"), number(is[0])});
    into.row({text("memory a launch"), text("B"), number(is[1])});
    into.row({text("not foreseen"), text("launches"), number(is[2])});
}

} // namespace

int main(int count, char **arguments)
{
    results into("growth_bench",
                 "How the library's engine grows, before a driver that does "
                 "nothing",
                 count, arguments);
    const char *const only = count > 1 ? arguments[1] : "";
    const struct
    {
        const char *name;
        void (*run)(results &into);
    } tables[] = {{"launches", all_launches},
                  {"beside", all_beside},
                  {"tebibyte", all_tebibyte},
                  {"schedule", all_schedule}};
    const char *between = "";
    for (const auto &each : tables) {
        if (std::strstr(each.name, only) == nullptr)
            continue;
        std::fputs(between, stdout);
        between = "\n";
        each.run(into);
    }
    return into.write();
}
