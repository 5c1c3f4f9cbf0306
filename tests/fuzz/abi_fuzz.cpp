// SPDX-License-Identifier: GPL-2.0-or-later
// libFuzzer's part in fuzzing the driver's ABI: the module's code that a call
// reached (KCOV), changes of inputs, and reports on them. Runs in a guest, as
// root, with EMUV_KO naming a module that was built with KCOV_INSTRUMENT=y. On
// a kernel without KCOV the calls' outcomes alone guide it.
#include "abi_executor.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <random>
#include <semaphore>
#include <thread>

#include <fcntl.h>
#include <linux/kcov.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace {

constexpr std::size_t code_bytes = 1024 * 1024;
constexpr std::size_t trace_words = 256 * 1024;

// libFuzzer takes the bytes of this section for its own counters. There is one
// for each byte of the module's code, and one for each of a page's bytes when
// the module has not stayed. The others are the calls' outcomes.
[[gnu::section("__libfuzzer_extra_counters")]] std::uint8_t
    counters[code_bytes + 4096 + fuzz::executor::outcome_count];

// One for each thread of the executor's, and one for the kernel's.
std::array<std::uint64_t *, fuzz::executor::threads + 1> traces;
std::array<bool, code_bytes> reached;
std::uint64_t code_start = 0;

void add(std::uint8_t &counter)
{
    counter = static_cast<std::uint8_t>(counter + (counter < 255));
}

/// Empties the traces into the counters.
void collect()
{
    for (auto *trace : traces) {
        if (!trace)
            continue;
        const auto count = std::min<std::uint64_t>(
            __atomic_load_n(&trace[0], __ATOMIC_RELAXED), trace_words - 1);
        for (std::uint64_t i = 1; i <= count; i++) {
            const auto at = trace[i] - code_start;
            if (at < code_bytes) {
                add(counters[at]);
                reached[at] = true;
            } else if (!code_start) {
                add(counters[code_bytes + trace[i] % 4096]);
            }
        }
        __atomic_store_n(&trace[0], 0, __ATOMIC_RELAXED);
    }
}

/// @return the trace's descriptor; -1 on a kernel without
int open_trace(std::size_t thread)
{
    const int fd = open("/sys/kernel/debug/kcov", O_RDWR | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return -1;
    guest::checked(fd, "kcov");
    guest::checked(ioctl(fd, KCOV_INIT_TRACE, trace_words), "KCOV_INIT_TRACE");
    void *at = mmap(nullptr, trace_words * sizeof(std::uint64_t),
                    PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    guest::checked(at == MAP_FAILED ? -1 : 0, "mmap of kcov");
    traces.at(thread) = static_cast<std::uint64_t *>(at);
    return fd;
}

/// Traces what the driver does in the kernel's threads (EMUV_KCOV_ID).
void start_remote_trace()
{
    std::binary_semaphore begun{0};
    std::thread([&begun] {
        const int fd = open_trace(fuzz::executor::threads);
        kcov_remote_arg remote{};
        remote.trace_mode = KCOV_TRACE_PC;
        remote.area_size = 64 * 1024;
        remote.common_handle = KCOV_SUBSYSTEM_COMMON | 0x656d7576U;
        guest::checked(ioctl(fd, KCOV_REMOTE_ENABLE, &remote),
                       "KCOV_REMOTE_ENABLE");
        begun.release();
        // The trace ends with the thread.
        for (;;)
            pause();
    }).detach();
    begun.acquire();
}

void start_trace(std::size_t thread)
{
    const int fd = open_trace(thread);
    if (fd < 0 && thread == 0)
        std::fprintf(stderr, "abi_fuzz: this kernel has no KCOV\n");
    if (fd < 0)
        return;
    if (thread == 0)
        start_remote_trace();
    guest::checked(ioctl(fd, KCOV_ENABLE, KCOV_TRACE_PC), "KCOV_ENABLE");
}

/// The places in the module's code that were reached, for addr2line.
void write_reached()
{
    const char *path = std::getenv("EMUV_FUZZ_REACHED");
    if (!path)
        return;
    std::ofstream file(path);
    for (std::size_t at = 0; at < reached.size(); at++)
        if (reached.at(at))
            file << std::hex << "0x" << at << '\n';
}

/// Puts the input into the kernel's log, which outlives the guest.
void tell(std::span<const std::uint8_t> input)
{
    static const int log = open("/dev/kmsg", O_WRONLY | O_CLOEXEC);
    constexpr const char *digits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string line = "emuv-fuzz: ";
    for (std::size_t i = 0; i < input.size(); i += 3) {
        std::uint32_t word = 0;
        const auto here = std::min<std::size_t>(3, input.size() - i);
        for (std::size_t j = 0; j < 3; j++)
            word = word << 8U | (j < here ? input[i + j] : 0U);
        for (std::size_t j = 0; j < 4; j++)
            line += j <= here ? digits[word >> (18 - 6 * j) & 63U] : '=';
    }
    static_cast<void>(!write(log, line.data(), line.size()));
}

fuzz::executor *driver = nullptr;

/// Not before the first input: a process that merges only starts others.
void start()
{
    try {
        driver = new fuzz::executor(start_trace); // NOLINT: for good
        driver->before_unload = [] {
            collect();
            code_start = 0;
        };
        driver->after_load = [] {
            code_start =
                std::stoull(guest::read_text("/sys/module/emuv/sections/.text"),
                            nullptr, 16);
            collect();
        };
        driver->after_load();
        // Code behind that would be reached unseen.
        if (std::stoull(guest::read_text("/sys/module/emuv/coresize")) >
            code_bytes)
            throw std::runtime_error("the module is larger than code_bytes");
    } catch (const std::exception &error) {
        std::fprintf(stderr, "abi_fuzz: %s\n", error.what());
        std::_Exit(2);
    }
    std::atexit(write_reached);
}

} // namespace

extern "C" {

std::size_t LLVMFuzzerMutate(std::uint8_t *data, std::size_t size,
                             std::size_t max_size);

[[gnu::visibility("default")]] int
LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size)
{
    const std::span input(
        data, std::min(size, fuzz::max_records * sizeof(fuzz::record)));
    if (!driver)
        start();
    tell(input);
    collect();
    std::fill(std::begin(counters), std::end(counters), 0);
    const auto objection = driver->run(input);
    collect();
    for (std::size_t i = 0; i < fuzz::executor::outcome_count; i++)
        counters[code_bytes + 4096 + i] = driver->outcomes().at(i);
    if (!objection.empty()) {
        std::fprintf(stderr, "abi_fuzz: %s\n", objection.c_str());
        std::abort();
    }
    return 0;
}

/// Changes whole records more often than bytes, so that the records that follow
/// stay the same.
[[gnu::visibility("default")]] std::size_t
LLVMFuzzerCustomMutator(std::uint8_t *data, std::size_t size,
                        std::size_t max_size, unsigned seed)
{
    std::minstd_rand random(seed);
    constexpr auto each = sizeof(fuzz::record);
    const auto most = std::min(max_size / each, fuzz::max_records);
    const auto count = std::min(size / each, most);
    if (random() % 8 == 0 || count == 0 || data[0] == 0xff)
        return LLVMFuzzerMutate(data, size, max_size);
    const auto at = random() % count * each;
    switch (random() % 8) {
    case 0: // twice
    case 1: {
        if (count == most)
            break;
        const auto to = random() % (count + 1) * each;
        std::array<std::uint8_t, each> record{};
        std::memcpy(record.data(), data + at, each);
        std::memmove(data + to + each, data + to, count * each - to);
        std::memcpy(data + to, record.data(), each);
        data[to] = random() % 2
                       ? data[to]
                       : static_cast<std::uint8_t>(random() % fuzz::kinds());
        return (count + 1) * each;
    }
    case 2: // not at all
        if (count == 1)
            break;
        std::memmove(data + at, data + at + each, count * each - at - each);
        return (count - 1) * each;
    case 3: { // in another place
        const auto other = random() % count * each;
        std::swap_ranges(data + at, data + at + each, data + other);
        return count * each;
    }
    case 4: // by another thread
        data[at + 1] = static_cast<std::uint8_t>(
            (data[at + 1] & ~3U) | random() % fuzz::executor::threads);
        return count * each;
    case 5: // another of its kind
        data[at + 3] = static_cast<std::uint8_t>(random());
        return count * each;
    case 6: // of other files
        data[at + 2] = static_cast<std::uint8_t>(random() % 256 & 0x77U);
        return count * each;
    default:
        break;
    }
    LLVMFuzzerMutate(data + at, each, each);
    return count * each;
}

} // extern "C"
