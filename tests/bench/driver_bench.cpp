// SPDX-License-Identifier: GPL-2.0-or-later
// Puts the driver's memory beside the kernel's other kinds of it, in the same
// kernel and the same run.
#include "pin.hpp"
#include "results.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <stdexcept>
#include <system_error>

#include <getopt.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

namespace {

using namespace guest;

constexpr u64 page = 4096;
constexpr double none = std::numeric_limits<double>::quiet_NaN();

const char *const help = R"(Usage: driver_bench [OPTION]...

Measure the driver's memory and, beside it, memfd (4 KiB pages, transparent
huge pages, hugetlb), mmap of hugetlb, brd and zram. Loads the module that
EMUV_KO names; run it as root in a guest (tests/bench/run-driver does that).

  -s, --size MIB   how much memory each is measured with (default 512)
  -r, --runs N     how often, in turn; medians are shown (default 3)
      --json FILE  leave the figures there as well, as JSON
  -h, --help       this text
)";

struct settings
{
    u64 bytes = 512 * mib;
    int runs = 3;
};

/// Memory of one kind: none of it backed when it is made, all of it gone with
/// the object.
class memory
{
public:
    memory() = default;
    virtual ~memory() = default;
    memory(const memory &) = delete;
    memory &operator=(const memory &) = delete;

    virtual unsigned char *map()
    {
        void *at = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED,
                        fd_.get(), offset_);
        if (at == MAP_FAILED)
            throw std::system_error(errno, std::generic_category(), "mmap");
        return static_cast<unsigned char *>(at);
    }
    virtual void unmap(unsigned char *at) { munmap(at, bytes_); }
    int fd() const { return fd_.get(); }
    off_t offset() const { return offset_; }
    u64 bytes() const { return bytes_; }

protected:
    void be(descriptor fd, u64 bytes, off_t offset = 0)
    {
        fd_ = std::move(fd);
        bytes_ = bytes;
        offset_ = offset;
    }

private:
    descriptor fd_;
    u64 bytes_ = 0;
    off_t offset_ = 0;
};

class emuv_memory : public memory
{
public:
    explicit emuv_memory(u64 bytes)
    {
        auto client = open_client(0);
        const auto got = allocate(client, bytes);
        be(std::move(client), bytes, static_cast<off_t>(got.offset));
    }
};

void must_write(const std::string &path, const std::string &text)
{
    if (!write_text(path, text))
        throw std::system_error(errno, std::generic_category(), path);
}

class memfd_memory : public memory
{
public:
    enum class pages
    {
        small,
        transparent,
        hugetlb
    };

    memfd_memory(u64 bytes, pages of) : of_(of)
    {
        must_write("/sys/kernel/mm/transparent_hugepage/shmem_enabled",
                   of == pages::transparent ? "advise" : "never");
        const unsigned flags =
            of == pages::hugetlb ? MFD_HUGETLB | MFD_HUGE_2MB : 0;
        descriptor fd(static_cast<int>(
            checked(memfd_create("driver_bench", MFD_CLOEXEC | flags),
                    "memfd_create")));
        checked(ftruncate(fd.get(), static_cast<off_t>(bytes)), "ftruncate");
        be(std::move(fd), bytes);
    }

    unsigned char *map() override
    {
        auto *at = memory::map();
        if (of_ == pages::transparent)
            checked(madvise(at, bytes(), MADV_HUGEPAGE), "MADV_HUGEPAGE");
        return at;
    }

private:
    pages of_;
};

/// Anonymous: unmapped memory is gone, so it is mapped once.
class hugetlb_memory : public memory
{
public:
    explicit hugetlb_memory(u64 bytes)
    {
        be(descriptor(), bytes);
        void *at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
        if (at == MAP_FAILED)
            throw std::system_error(errno, std::generic_category(),
                                    "mmap of hugetlb");
        at_ = static_cast<unsigned char *>(at);
    }
    hugetlb_memory(const hugetlb_memory &) = delete;
    hugetlb_memory &operator=(const hugetlb_memory &) = delete;
    ~hugetlb_memory() override { munmap(at_, bytes()); }
    unsigned char *map() override { return at_; }
    void unmap(unsigned char *) override {}

private:
    unsigned char *at_ = nullptr;
};

class brd_memory : public memory
{
public:
    explicit brd_memory(u64 bytes)
    {
        if (!load_stock_module("brd rd_nr=1 rd_size=" +
                               std::to_string(bytes / kib)))
            throw std::runtime_error("there is no brd");
        wait_until([] { return exists("/dev/ram0"); });
        be(descriptor(static_cast<int>(
               checked(open("/dev/ram0", O_RDWR | O_CLOEXEC), "/dev/ram0"))),
           bytes);
    }
    brd_memory(const brd_memory &) = delete;
    brd_memory &operator=(const brd_memory &) = delete;
    ~brd_memory() override
    {
        be(descriptor(), 0);
        static_cast<void>(load_stock_module("-r brd"));
    }
};

class zram_memory : public memory
{
public:
    explicit zram_memory(u64 bytes)
    {
        if (!load_stock_module("zram num_devices=1"))
            throw std::runtime_error("there is no zram");
        wait_until([] { return exists("/dev/zram0"); });
        must_write("/sys/block/zram0/disksize", std::to_string(bytes));
        be(descriptor(static_cast<int>(
               checked(open("/dev/zram0", O_RDWR | O_CLOEXEC), "/dev/zram0"))),
           bytes);
    }
    zram_memory(const zram_memory &) = delete;
    zram_memory &operator=(const zram_memory &) = delete;
    ~zram_memory() override
    {
        be(descriptor(), 0);
        write_text("/sys/block/zram0/reset", "1");
        static_cast<void>(load_stock_module("-r zram"));
    }
};

struct contestant
{
    std::string name;
    std::function<std::unique_ptr<memory>(u64 bytes)> make;
};

enum metric
{
    first_touch,
    faults,
    write_rate,
    read_rate,
    remap,
    pin_time,
    metric_count
};

struct metric_description
{
    const char *heading;
    const char *name;
    const char *title;
    const char *unit;
};

const metric_description descriptions[metric_count] = {
    {"touch GB/s", "first_touch", "first touch", "GB/s"},
    {"faults/GiB", "faults", "faults", "a GiB"},
    {"write GB/s", "write", "write", "GB/s"},
    {"read GB/s", "read", "read", "GB/s"},
    {"remap s/GiB", "remap", "remap", "s a GiB"},
    {"pin s/GiB", "pin", "pin", "s a GiB"},
};

using results = std::map<std::string, std::vector<double>[metric_count]>;

double seconds_of(const std::function<void()> &work)
{
    const auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() -
                                         start)
        .count();
}

double gb_per_s(u64 bytes, double seconds)
{
    return static_cast<double>(bytes) / seconds / 1e9;
}

double per_gib(double value, u64 bytes)
{
    return value * static_cast<double>(gib) / static_cast<double>(bytes);
}

void touch_all(volatile unsigned char *at, u64 bytes)
{
    for (u64 place = 0; place < bytes; place += page)
        at[place] = 1;
}

long faults_so_far()
{
    rusage usage{};
    checked(getrusage(RUSAGE_THREAD, &usage), "getrusage");
    return usage.ru_minflt + usage.ru_majflt;
}

/// The block that is read into and written from: it fits a processor's cache,
/// as a program's own buffer would.
std::vector<unsigned char> &block()
{
    static std::vector<unsigned char> bytes(mib, 0x5a);
    return bytes;
}

/// The rate of calls that each move a block, or nothing if the memory takes no
/// such call.
double rate_of(const memory &of, ssize_t (*move)(int, off_t))
{
    const auto start = of.offset();
    bool refused = of.fd() < 0;
    const double seconds = seconds_of([&] {
        for (u64 done = 0; done < of.bytes() && !refused;
             done += block().size())
            refused = move(of.fd(), start + static_cast<off_t>(done)) !=
                      static_cast<ssize_t>(block().size());
    });
    return refused ? none : gb_per_s(of.bytes(), seconds);
}

enum class pinner
{
    io_uring,
    socket
};

double pin_seconds(pinner by, unsigned char *at, u64 bytes)
{
    int error = 0;
    double seconds = 0;
    if (by == pinner::io_uring) {
        std::unique_ptr<pin> held;
        seconds = seconds_of([&] { held = std::make_unique<pin>(at, bytes); });
        error = held->error();
    } else {
        std::unique_ptr<socket_pin> held;
        seconds =
            seconds_of([&] { held = std::make_unique<socket_pin>(at, bytes); });
        error = held->error();
    }
    return error ? none : seconds;
}

void measure(const contestant &who, u64 bytes, pinner by, results &into)
{
    const auto of = who.make(bytes);
    auto &rows = into[who.name];

    auto *at = of->map();
    static_cast<void>(faults_so_far());
    const long faults_before = faults_so_far();
    const double touching = seconds_of([&] { touch_all(at, bytes); });
    rows[faults].push_back(
        per_gib(static_cast<double>(faults_so_far() - faults_before), bytes));
    rows[first_touch].push_back(gb_per_s(bytes, touching));
    rows[pin_time].push_back(per_gib(pin_seconds(by, at, bytes), bytes));
    of->unmap(at);

    if (of->fd() < 0) {
        rows[remap].push_back(none);
    } else {
        rows[remap].push_back(per_gib(seconds_of([&] {
                                          auto *again = of->map();
                                          touch_all(again, bytes);
                                          of->unmap(again);
                                      }),
                                      bytes));
    }
    rows[write_rate].push_back(rate_of(*of, [](int fd, off_t place) {
        return pwrite(fd, block().data(), block().size(), place);
    }));
    rows[read_rate].push_back(rate_of(*of, [](int fd, off_t place) {
        return pread(fd, block().data(), block().size(), place);
    }));
}

/// The rate of a program that copies by itself, block by block, to and from
/// memory of its own.
void measure_memcpy(u64 bytes, results &into)
{
    void *at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        throw std::system_error(errno, std::generic_category(), "mmap");
    madvise(at, bytes, MADV_HUGEPAGE);
    auto *data = static_cast<unsigned char *>(at);
    touch_all(data, bytes);
    auto &rows = into["memcpy"];
    const auto copy = [&](bool out) {
        return gb_per_s(bytes, seconds_of([&] {
                            for (u64 done = 0; done < bytes;
                                 done += block().size()) {
                                auto *to = out ? data + done : block().data();
                                auto *from = out ? block().data() : data + done;
                                std::memcpy(to, from, block().size());
                                asm volatile("" : : "r"(to) : "memory");
                            }
                        }));
    };
    rows[write_rate].push_back(copy(true));
    rows[read_rate].push_back(copy(false));
    munmap(at, bytes);
}

double median(std::vector<double> values)
{
    values.erase(std::remove_if(values.begin(), values.end(),
                                [](double value) { return std::isnan(value); }),
                 values.end());
    if (values.empty())
        return none;
    std::sort(values.begin(), values.end());
    const auto middle = values.size() / 2;
    return values.size() % 2 ? values[middle]
                             : (values[middle - 1] + values[middle]) / 2;
}

struct aim
{
    std::string text;
    double value;
    double wanted;
    bool at_most;

    bool met() const { return at_most ? value <= wanted : value >= wanted; }
};

std::vector<aim> aims(results &all)
{
    const auto of = [&](const char *who, metric what) {
        return median(all[who][what]);
    };
    const double touch = of("emuv", first_touch);
    return {
        {"first touch, times memfd 4K", touch / of("memfd 4K", first_touch), 2,
         false},
        {"first touch, times memfd with transparent huge pages",
         touch / of("memfd THP", first_touch), 1, false},
        {"first touch, times memfd with hugetlb pages",
         touch / of("memfd hugetlb", first_touch), 1, false},
        {"faults of the first touch of a GiB", of("emuv", faults), 512, true},
        {"read, times memcpy", of("emuv", read_rate) / of("memcpy", read_rate),
         0.9, false},
        {"write, times memcpy",
         of("emuv", write_rate) / of("memcpy", write_rate), 0.9, false},
    };
}

std::string figure(double value, const char *missing)
{
    if (std::isnan(value))
        return missing;
    char text[32];
    std::snprintf(text, sizeof text, value >= 1000 ? "%.0f" : "%.4g", value);
    return text;
}

void print_table(const std::vector<std::string> &names, results &all,
                 const settings &how, pinner by)
{
    utsname kernel{};
    uname(&kernel);
    std::printf("Linux %s, %llu MiB each, medians of %d runs in turn; in "
                "brackets: times memfd 4K\n",
                kernel.release,
                static_cast<unsigned long long>(how.bytes / mib), how.runs);
    std::printf(
        "pinned by %s; remap: mmap, touch and munmap of what is backed\n\n",
        by == pinner::io_uring ? "io_uring"
                               : "an AF_XDP socket (this io_uring takes no "
                                 "memory of device files)");
    std::printf("%-14s", "");
    for (const auto &column : descriptions)
        std::printf(" %19s", column.heading);
    std::printf("\n");
    for (const auto &name : names) {
        std::printf("%-14s", name.c_str());
        for (int column = 0; column < metric_count; column++) {
            const double value = median(all[name][column]);
            const double ratio = value / median(all["memfd 4K"][column]);
            const auto bracket = std::isnan(ratio)
                                     ? std::string()
                                     : "(" + figure(ratio, "") + ")";
            std::printf(" %9s %9s", figure(value, "-").c_str(),
                        bracket.c_str());
        }
        std::printf("\n");
    }
    std::printf("\n");
    for (const auto &one : aims(all))
        std::printf("%-54s %8s  aim: %s %-5s %s\n", one.text.c_str(),
                    figure(one.value, "-").c_str(),
                    one.at_most ? "at most " : "at least",
                    figure(one.wanted, "-").c_str(),
                    one.met() ? "met" : "missed");
}

void leave(bench::results &into, const std::vector<std::string> &names,
           results &all, const settings &how, pinner by)
{
    const auto cell = [](double value) { return figure(value, "null"); };
    utsname kernel{};
    uname(&kernel);
    into.note(std::string("Linux ") + kernel.release + ", " +
              std::to_string(how.bytes / mib) + " MiB each, medians of " +
              std::to_string(how.runs) + " runs in turn, pinned by " +
              (by == pinner::io_uring ? "io_uring." : "an AF_XDP socket."));
    std::vector<bench::results::column> columns{{"memory", "memory"}};
    for (const auto &one : descriptions)
        columns.push_back({one.name, one.title, one.unit});
    into.table(nullptr, nullptr, columns);
    for (const auto &name : names) {
        std::vector<std::string> row{bench::text(name.c_str())};
        for (int column = 0; column < metric_count; column++)
            row.push_back(cell(median(all[name][column])));
        into.row(std::move(row));
    }
    into.table("Aims", "",
               {{"what", "what"},
                {"value", "value"},
                {"at_least", "at least"},
                {"at_most", "at most"},
                {"met", "met or missed"}});
    for (const auto &one : aims(all))
        into.row({bench::text(one.text.c_str()), cell(one.value),
                  cell(one.at_most ? none : one.wanted),
                  cell(one.at_most ? one.wanted : none),
                  bench::text(one.met() ? "met" : "missed")});
}

/// Reserves huge pages for as long as it lives, and puts the settings back that
/// it and memfd_memory change.
class huge_pages
{
public:
    explicit huge_pages(u64 bytes)
        : reserved_(read_text(count)), shmem_(chosen(read_text(shmem)))
    {
        write_text("/proc/sys/vm/compact_memory", "1");
        must_write(count, std::to_string(bytes / (2 * mib)));
        enough_ = read_number(count) >= bytes / (2 * mib);
    }
    ~huge_pages()
    {
        write_text(count, reserved_);
        write_text(shmem, shmem_);
    }
    huge_pages(const huge_pages &) = delete;
    huge_pages &operator=(const huge_pages &) = delete;
    bool enough() const { return enough_; }

private:
    static constexpr const char *count =
        "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
    static constexpr const char *shmem =
        "/sys/kernel/mm/transparent_hugepage/shmem_enabled";

    /// The word in brackets of "always within_size [advise] never".
    static std::string chosen(const std::string &list)
    {
        const auto start = list.find('[') + 1;
        return list.substr(start, list.find(']') - start);
    }

    std::string reserved_;
    std::string shmem_;
    bool enough_ = false;
};

/// The module with one instance, for as long as it lives.
class loaded_module
{
public:
    explicit loaded_module(u64 bytes)
    {
        const auto mb = std::to_string(bytes / mib);
        errno =
            load("gpu_model=4070 physical_vram_mb=64 virtual_vram_mb=" + mb +
                 " overcommit=1");
        if (errno)
            throw std::system_error(errno, std::generic_category(),
                                    "insmod " + module_file());
    }
    ~loaded_module() { unload_eventually(); }
    loaded_module(const loaded_module &) = delete;
    loaded_module &operator=(const loaded_module &) = delete;
};

void run(const settings &how, bench::results &into)
{
    const huge_pages reserved(how.bytes);
    const loaded_module module(how.bytes);
    using pages = memfd_memory::pages;
    std::vector<contestant> all{
        {"emuv",
         [](u64 bytes) { return std::make_unique<emuv_memory>(bytes); }},
        {"memfd 4K",
         [](u64 bytes) {
             return std::make_unique<memfd_memory>(bytes, pages::small);
         }},
        {"memfd THP",
         [](u64 bytes) {
             return std::make_unique<memfd_memory>(bytes, pages::transparent);
         }},
    };
    if (reserved.enough()) {
        all.push_back({"memfd hugetlb", [](u64 bytes) {
                           return std::make_unique<memfd_memory>(
                               bytes, pages::hugetlb);
                       }});
        all.push_back({"hugetlb mmap", [](u64 bytes) {
                           return std::make_unique<hugetlb_memory>(bytes);
                       }});
    } else {
        std::fputs("driver_bench: not enough huge pages: hugetlb is left out\n",
                   stderr);
    }
    all.push_back(
        {"brd", [](u64 bytes) { return std::make_unique<brd_memory>(bytes); }});
    all.push_back({"zram", [](u64 bytes) {
                       return std::make_unique<zram_memory>(bytes);
                   }});

    pinner by = pinner::io_uring;
    {
        emuv_memory probe(chunk);
        auto *at = probe.map();
        if (pin(at, chunk).error())
            by = pinner::socket;
        probe.unmap(at);
    }

    results measured;
    for (int turn = 0; turn < how.runs; turn++) {
        std::fprintf(stderr, "driver_bench: run %d of %d\n", turn + 1,
                     how.runs);
        measure_memcpy(how.bytes, measured);
        for (const auto &one : all) {
            settled_available();
            try {
                measure(one, how.bytes, by, measured);
            } catch (const std::exception &error) {
                if (turn == 0)
                    std::fprintf(stderr, "driver_bench: %s is left out: %s\n",
                                 one.name.c_str(), error.what());
            }
        }
    }
    std::vector<std::string> names;
    names.reserve(all.size() + 1);
    for (const auto &one : all)
        names.push_back(one.name);
    names.emplace_back("memcpy");
    print_table(names, measured, how, by);
    leave(into, names, measured, how, by);
}

u64 number_above_0(const char *text)
{
    char *end = nullptr;
    errno = 0;
    const auto value = std::strtoull(text, &end, 10);
    if (errno || end == text || *end || value == 0 || text[0] == '-' ||
        value > 1'000'000) {
        std::fprintf(
            stderr, "driver_bench: not a number from 1 to 1000000: %s\n", text);
        std::exit(2);
    }
    return value;
}

settings read_options(int argc, char **argv)
{
    settings how;
    const option options[] = {{"size", required_argument, nullptr, 's'},
                              {"runs", required_argument, nullptr, 'r'},
                              {"help", no_argument, nullptr, 'h'},
                              {}};
    for (int found = 0;
         (found = getopt_long(argc, argv, "s:r:h", options, nullptr)) != -1;) {
        switch (found) {
        case 's':
            how.bytes = (number_above_0(optarg) + 1) / 2 * 2 * mib;
            break;
        case 'r':
            how.runs = static_cast<int>(number_above_0(optarg));
            break;
        case 'h':
            std::fputs(help, stdout);
            std::exit(0);
        default:
            std::fputs(help, stderr);
            std::exit(2);
        }
    }
    if (optind != argc) {
        std::fputs(help, stderr);
        std::exit(2);
    }
    return how;
}

} // namespace

int main(int argc, char **argv)
{
    bench::results into("driver_bench",
                        "The driver's memory beside the kernel's other kinds",
                        argc, argv);
    const auto how = read_options(argc, argv);
    if (geteuid() != 0 || module_file().empty()) {
        std::fputs("driver_bench: loads the module: run it as root in a guest, "
                   "with EMUV_KO naming emuv.ko\n",
                   stderr);
        return 2;
    }
    try {
        run(how, into);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "driver_bench: %s\n", error.what());
        return 1;
    }
    return into.write();
}
