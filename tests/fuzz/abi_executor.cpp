// SPDX-License-Identifier: GPL-2.0-or-later
// Carries out a fuzzer's inputs: see abi_executor.hpp.
#include "abi_executor.hpp"

#include "../kernel/vgem.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <optional>

#include <linux/capability.h>
#include <linux/dma-buf.h>
#include <linux/falloc.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

namespace fuzz {

using namespace guest;

namespace {

enum kind : std::uint8_t
{
    open_node,
    driver,
    driver_raw,
    control,
    transfer_data,
    map_file,
    change_map,
    touch_map,
    close_file,
    duplicate,
    pass,
    pipe_data,
    seek,
    allocate_file,
    inquire,
    dma_device,
    child,
    make_fail,
    read_text_files,
    press,
    own_instance,
    fail_memory,
    read_debugfs,
    in_limited_group,
    kind_count
};

/// The number that makes a first record a reload of the module; the parameters
/// follow it.
constexpr std::uint8_t reload_kind = 0xff;

/// The instances that are always there, and those that an input may make.
constexpr std::array<u64, 2> sizes{16 * mib, 6 * mib};
constexpr int first_own = 8;

/// Inputs may make pages fail: so many at once, one more after so many inputs,
/// and no more than these in all. The guest lacks a chunk for each from then
/// on.
constexpr u64 failures_at_once = 32, inputs_per_failure = 64,
              failures_in_all = 250;

/// A cgroup's room for chunks. Touches that find none ask for one of a swap
/// file's instance.
constexpr u64 limited_bytes = 4 * chunk;

constexpr std::array requests{
    EMUV_IOC_ALLOC,          EMUV_IOC_FREE,         EMUV_IOC_EXPORT,
    EMUV_IOC_IMPORT,         EMUV_IOC_DISCARD,      EMUV_IOC_CHARGE,
    EMUV_IOC_UNCHARGE,       EMUV_IOC_REPORT,       EMUV_IOC_VERSION,
    EMUV_IOC_QUERY_INSTANCE, EMUV_IOC_QUERY_CLIENT, EMUV_IOC_CREATE,
    EMUV_IOC_DESTROY,        EMUV_IOC_RESIZE};

constexpr std::array attributes{"gpu_model",
                                "physical_bytes",
                                "virtual_bytes",
                                "total_bytes",
                                "physical_used_bytes",
                                "virtual_used_bytes",
                                "unowned_bytes",
                                "lingering_bytes",
                                "resident_bytes",
                                "reserve_bytes",
                                "guaranteed",
                                "swap",
                                "numa_bind",
                                "swapped_bytes",
                                "clients",
                                "chunk_bytes",
                                "uuid",
                                "numa_node",
                                "pci_device_id",
                                "fetched_bytes",
                                "evicted_bytes",
                                "spills",
                                "faults",
                                "hit_bytes",
                                "miss_bytes",
                                "stalled_ns",
                                "state",
                                "waiters",
                                "vram_info"};

/// Makes the n-th thing fail that can in this thread, for as long as it lives.
class failure
{
public:
    explicit failure(unsigned nth) { arm(nth); }
    ~failure() { arm(0); }
    failure(const failure &) = delete;
    failure &operator=(const failure &) = delete;

private:
    static void arm(unsigned nth)
    {
        thread_local const int file =
            open("/proc/thread-self/fail-nth", O_RDWR | O_CLOEXEC);
        const auto text = std::to_string(nth);
        // The number is copied in, and that copy may itself be made to fail.
        for (int i = 0; i < 100 && file >= 0; i++)
            if (pwrite(file, text.data(), text.size(), 0) > 0)
                return;
    }
};

constexpr const char *swap_folder = "/run/emuv-fuzz";

/// Mounts a file system that takes direct I/O, on a RAM disk.
bool mount_swap_folder()
{
    return exists(swap_folder) ||
           (load_stock_module("zram num_devices=1") &&
            write_text("/sys/block/zram0/disksize",
                       std::to_string(128 * mib)) &&
            std::system("mkfs.ext4 -q -F /dev/zram0 && "
                        "mkdir -p /run/emuv-fuzz && "
                        "mount /dev/zram0 /run/emuv-fuzz") == 0);
}

void unmount_swap_folder()
{
    // The driver's last file may be closed a moment later.
    wait_until([] {
        return std::system("umount /run/emuv-fuzz 2>/dev/null") == 0 &&
               rmdir(swap_folder) == 0;
    });
    wait_until([] { return write_text("/sys/block/zram0/reset", "1"); });
}

/// A file for an instance, in the RAM disk's file system.
descriptor open_swap_file()
{
    descriptor file(
        open(swap_folder, O_RDWR | O_DIRECT | O_TMPFILE | O_CLOEXEC, 0600));
    return file && ftruncate(file.get(), 9 * mib) == 0 ? std::move(file)
                                                       : descriptor();
}

/// Another descriptor in place of a slot's, which is closed.
void put(std::atomic<int> &slot, int fd)
{
    if (const int old = slot.exchange(fd); old >= 0)
        close(old);
}

/// An instance that is always there, or one that may be.
int any_id(const record &what)
{
    return what.place & 8U ? first_own + static_cast<int>(what.place & 3U)
                           : what.place & 1U;
}

/// Waits for a child, or kills it in the midst of its calls.
long end_child(pid_t pid, const record &what)
{
    if (pid < 0)
        return pid;
    if (what.place & 0x40U) {
        usleep(static_cast<useconds_t>(what.value >> 32U) % 60000);
        kill(pid, SIGKILL);
    }
    int status = 0;
    return waitpid(pid, &status, 0);
}

/// The kernel asks for memory: cold memory leaves RAM.
bool press_on(const record &what)
{
    return what.place >> 6U == 3
               ? write_text("/sys/fs/cgroup/memory.reclaim", "64K")
               : write_text("/proc/sys/vm/drop_caches", "2");
}

thread_local unsigned fail_next = 0;

/// Unmaps memory, and keeps its place reserved.
int reserve(unsigned char *at, u64 bytes)
{
    return mmap(at, bytes, PROT_NONE,
                MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                0) == MAP_FAILED
               ? -1
               : 0;
}

} // namespace

std::size_t kinds()
{
    return kind_count;
}

/// A thread that waits for its part of an input.
struct executor::worker
{
    worker(executor &owner, std::size_t number, const thread_start &start)
        : thread([this, &owner, number, start] {
              if (start)
                  start(number);
              for (;;) {
                  begin.acquire();
                  if (over)
                      return;
                  owner.run_records(number);
                  done.release();
              }
          })
    {}

    std::binary_semaphore begin{0}, done{0};
    bool over = false;
    std::thread thread;
};

executor::executor(thread_start start)
{
    for (auto &file : files_)
        file = -1;
    for (auto &file : swap_files_)
        file = -1;
    if (start)
        start(0);
    for (std::size_t i = 1; i < threads; i++)
        workers_.push_back(std::make_unique<worker>(*this, i, start));
    can_fail_ = exists("/proc/thread-self/fail-nth") && make_failures_silent();
    load_stock_module("vgem");
    can_swap_ = mount_swap_folder();
    // An executor that was killed may have left it.
    rmdir("/sys/fs/cgroup/emuv-fuzz");
    group_.emplace("fuzz");
    if (group_->usable && limit_group())
        group_entry_ =
            descriptor(open((group_->folder() + "/cgroup.procs").c_str(),
                            O_WRONLY | O_CLOEXEC));
    void *at = mmap(nullptr, map_slots * map_bytes, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    checked(at == MAP_FAILED ? -1 : 0, "mmap");
    arena_ = static_cast<unsigned char *>(at);
    // An executor that was killed may have left the module loaded.
    if (loaded())
        unload_eventually();
    set_up();
}

executor::~executor()
{
    for (auto &each : workers_) {
        each->over = true;
        each->begin.release();
        each->thread.join();
    }
    control_.reset();
    unload_eventually();
    if (can_swap_)
        unmount_swap_folder();
    munmap(arena_, map_slots * map_bytes);
}

void executor::set_up()
{
    if (load("") != 0)
        throw std::runtime_error("the module cannot be loaded");
    control_ = open_control();
    for (std::size_t i = 0; i < sizes.size(); i++)
        create(control_,
               creation(sizes.at(i), sizes.at(i), static_cast<int>(i)));
    if (after_load)
        after_load();
}

std::string executor::run(std::span<const std::uint8_t> input)
{
    objected_ = false;
    objection_.clear();
    runs_++;
    for (auto &count : outcomes_)
        count.store(0, std::memory_order_relaxed);
    if (!input.empty() && input[0] == reload_kind)
        return reload(input.subspan(1));

    for (auto &program : programs_)
        program.clear();
    for (std::size_t i = 0;
         i < max_records && input.size() >= (i + 1) * sizeof(record); i++) {
        record next;
        std::memcpy(&next, input.data() + i * sizeof next, sizeof next);
        programs_.at((next.how & 3U) % threads).push_back(next);
    }
    alone_ = std::all_of(programs_.begin() + 1, programs_.end(),
                         [](const auto &program) { return program.empty(); });
    if (!alone_)
        for (auto &each : workers_)
            each->begin.release();
    run_records(0);
    if (!alone_)
        for (auto &each : workers_)
            each->done.acquire();
    clean_up();
    return objection_.empty() ? check_idle() : objection_;
}

void executor::run_records(std::size_t thread)
{
    fail_next = 0;
    for (const auto &what : programs_.at(thread))
        run_record(what);
}

void executor::run_record(const record &what)
{
    const auto kind = what.kind % kind_count;
    if (kind == make_fail) {
        fail_next = can_fail_ ? 1 + what.amount % 48 : 0;
        return;
    }
    std::optional<without_capability> meek;
    if (what.how & 0x80U)
        meek.emplace(CAP_SYS_RAWIO);
    long result = 0;
    errno = 0;
    // Not a touch: the signal that it may end in is more than can be done
    // without.
    const bool touches = kind == touch_map || kind == fail_memory;
    if (const auto nth = touches ? 0U : std::exchange(fail_next, 0U); nth) {
        const failure armed(nth);
        result = perform(what);
    } else {
        result = perform(what);
    }
    const auto error = static_cast<std::size_t>(result < 0 ? errno : 0);
    auto &count = outcomes_.at((kind * 211U + error) % outcome_count);
    count.fetch_add(count.load() < 255, std::memory_order_relaxed);
}

long executor::perform(const record &what)
{
    const int fd = files_.at(what.files % file_slots);
    const int other = files_.at((what.files >> 4U) % file_slots);
    switch (what.kind % kind_count) {
    case open_node: {
        constexpr std::array access{O_RDWR, O_RDWR, O_RDONLY, O_WRONLY};
        return keep(open(node_path(any_id(what)).c_str(),
                         access.at(what.amount & 3U) | O_CLOEXEC));
    }
    case driver:
        return call_driver(what, fd);
    case driver_raw:
        return call_raw(what, fd);
    case control:
        return call_control(what);
    case transfer_data:
        return transfer(what, fd);
    case map_file:
        return map(what, fd);
    case change_map:
        return change_mapping(what);
    case touch_map:
        return touch(what);
    case close_file: {
        const int old = files_.at(what.files % file_slots).exchange(-1);
        return old < 0 ? old : close(old);
    }
    case duplicate:
        return keep(fcntl(fd, F_DUPFD_CLOEXEC, 3));
    case pass:
        return pass_descriptor(fd);
    case pipe_data:
        return through_pipe(what, fd);
    case seek:
        return lseek(fd, static_cast<off_t>(place(what.value)),
                     static_cast<int>(what.amount % 6));
    case allocate_file: {
        const int mode = what.amount & 1U
                             ? FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
                             : static_cast<int>(what.place >> 4U);
        return fallocate(fd, mode, static_cast<off_t>(place(what.value)),
                         static_cast<off_t>(size(what.amount)));
    }
    case inquire: {
        struct stat status
        {};
        pollfd waiting{fd, POLLIN | POLLOUT | POLLPRI, 0};
        switch (what.place >> 4U) {
        case 0:
            return fstat(fd, &status);
        case 1:
            return fsync(fd);
        case 2:
            return ftruncate(fd, static_cast<off_t>(size(what.amount)));
        case 3:
            return fchmod(fd, 0600);
        case 4:
            return poll(&waiting, 1, 0);
        case 5:
            return posix_fadvise(fd, 0, 0, static_cast<int>(what.amount % 6));
        default:
            return fcntl(fd, F_SETFL, static_cast<int>(what.amount));
        }
    }
    case dma_device:
        return device(what, fd, other);
    case child:
        return in_child(what);
    case read_text_files:
        return read_files(what, fd);
    case press:
        return press_on(what) ? 0 : -1;
    case own_instance:
        return change_own(what);
    case fail_memory:
        return fail_page(what);
    case read_debugfs:
        return read_debug(what);
    case in_limited_group:
        return call_in_group(what, fd);
    default:
        return 0;
    }
}

/// Any bytes, any size, anywhere.
long executor::call_raw(const record &what, int fd)
{
    std::array<u64, 64> bytes{};
    bytes.fill(what.value);
    const auto size = what.amount;
    std::memcpy(bytes.data(), &size, sizeof size);
    if (what.place & 0x80U)
        std::fill(bytes.begin() + 1, bytes.end(), 0);
    void *at = bytes.data();
    if (what.place & 0x40U)
        at = arena(what.place & 7U);
    if (what.place & 0x20U)
        at = arena(1 + (what.place & 7U) % (map_slots - 1)) - 8; // over an end
    const auto request = requests.at(what.value % requests.size());
    const long result =
        ioctl(what.place & 0x10U ? control_.get() : fd, request, at);
    // The descriptor holds the region.
    emuv_export got{};
    if (result == 0 && request == EMUV_IOC_EXPORT &&
        !signal_of([&] { std::memcpy(&got, at, sizeof got); }))
        return keep(got.fd);
    return result;
}

long executor::call_driver(const record &what, int fd)
{
    const auto at = place(what.value);
    const auto bytes = size(what.amount);
    const auto flags = what.place >> 4U;
    switch (flags & 7U) {
    case 0:
    case 1: {
        auto argument = fresh<emuv_alloc>();
        argument.bytes = bytes;
        argument.flags = flags & 8U ? EMUV_ALLOC_POPULATE : 0;
        const long result = ioctl(fd, EMUV_IOC_ALLOC, &argument);
        if (result < 0)
            return result;
        remember(argument.offset);
        if (!alone_)
            return result;
        // Nobody has written there since.
        std::array<unsigned char, 4096> data{};
        for (const u64 from : {u64{0}, u64{argument.bytes / 2},
                               u64{argument.bytes - data.size()}}) {
            data.fill(0xff);
            const auto got = pread(fd, data.data(), data.size(),
                                   static_cast<off_t>(argument.offset + from));
            if (got > 0 && first_other(data.data(), static_cast<u64>(got)))
                object("a new region does not read as zeros");
        }
        return result;
    }
    case 2: {
        auto argument = fresh<emuv_free>();
        argument.offset = at;
        return ioctl(fd, EMUV_IOC_FREE, &argument);
    }
    case 3: {
        auto argument = fresh<emuv_export>();
        argument.offset = at;
        argument.flags = flags & 8U ? EMUV_EXPORT_DMABUF : 0;
        const long result = ioctl(fd, EMUV_IOC_EXPORT, &argument);
        return result < 0 ? result : keep(argument.fd);
    }
    case 4: {
        auto argument = fresh<emuv_import>();
        argument.fd = files_.at((what.files >> 4U) % file_slots);
        const long result = ioctl(fd, EMUV_IOC_IMPORT, &argument);
        if (result == 0)
            remember(argument.offset);
        return result;
    }
    case 5: {
        auto argument = fresh<emuv_discard>();
        argument.offset = at;
        argument.bytes = bytes;
        return ioctl(fd, EMUV_IOC_DISCARD, &argument);
    }
    case 6: {
        auto argument = fresh<emuv_charge>();
        argument.bytes = bytes;
        if (flags & 8U && what.value & 1U) {
            argument.flags = EMUV_CHARGE_WAIT;
            timespec now{};
            clock_gettime(CLOCK_MONOTONIC, &now);
            argument.deadline_ns =
                static_cast<std::uint64_t>(now.tv_sec) * 1000000000U +
                static_cast<std::uint64_t>(now.tv_nsec) + what.value % 4000000;
        }
        if (!(flags & 8U) && what.value & 2U)
            argument.flags = EMUV_UNCHARGE_CANCEL;
        return ioctl(fd, flags & 8U ? EMUV_IOC_CHARGE : EMUV_IOC_UNCHARGE,
                     &argument);
    }
    default: {
        auto client = fresh<emuv_query_client>();
        client.client = what.value % 8;
        client.flags = flags & 4U ? EMUV_QUERY_MEMORY : 0;
        auto report = fresh<emuv_report>();
        report.fetched_bytes = what.value;
        report.faults = what.amount;
        report.stalled_ns = what.place;
        if (flags & 8U)
            return ioctl(fd, EMUV_IOC_REPORT, &report);
        return ioctl(what.place & 1U ? control_.get() : fd,
                     EMUV_IOC_QUERY_CLIENT, &client);
    }
    }
}

long executor::call_control(const record &what)
{
    const int id = first_own + static_cast<int>(what.place % own_count);
    switch ((what.place >> 4U) & 3U) {
    case 0: {
        auto argument =
            creation(size(what.amount), (what.value % 9) * mib, id,
                     (what.value & 0x10U ? EMUV_CREATE_OVERCOMMIT : 0) |
                         (what.place & 8U ? EMUV_CREATE_GUARANTEED : 0) |
                         (what.place & 0x40U ? EMUV_CREATE_SWAP : 0) |
                         (what.place & 0x80U ? EMUV_CREATE_BIND : 0));
        // Each instance has a place in a RAM disk's file system of its own, or
        // any other descriptor.
        descriptor swap;
        if (what.place & 0x40U && can_swap_ && what.files != 0xffU) {
            swap = open_swap_file();
            if (swap)
                argument.swap_fd = swap.get();
        } else if (what.place & 0x40U) {
            argument.swap_fd = files_.at(what.files % file_slots);
        }
        if (what.value & 0x20U)
            argument.numa_node = static_cast<int>(what.value >> 32U);
        if (what.value & 0x40U)
            argument.gpu_model[(what.value >> 8U) % EMUV_MODEL_LEN] =
                static_cast<char>(what.value >> 16U);
        if (what.value & 0x80U)
            argument.pci_device_id =
                static_cast<__u32>(what.value >> 8U) & 0x1ffffU;
        if (what.value & 0x100U)
            argument.client_virtual_bytes = (what.value >> 9U) % (9 * mib);
        return ioctl(control_.get(), EMUV_IOC_CREATE, &argument);
    }
    case 1: {
        if (what.value & 2U) {
            auto size = fresh<emuv_resize>();
            size.id = id;
            size.flags = (what.value >> 2U) & 3U;
            if (size.flags & EMUV_RESIZE_PHYSICAL)
                size.physical_bytes = what.amount;
            if (size.flags & EMUV_RESIZE_VIRTUAL)
                size.virtual_bytes = (what.value >> 4U) % 5 * 2 * mib;
            return ioctl(control_.get(), EMUV_IOC_RESIZE, &size);
        }
        auto argument = fresh<emuv_destroy>();
        // Those that stay are busy, or are made again.
        argument.id = id;
        argument.flags = what.value & EMUV_DESTROY_FORCE;
        return ioctl(control_.get(), EMUV_IOC_DESTROY, &argument);
    }
    default: {
        auto argument = fresh<emuv_query_instance>();
        argument.id = static_cast<int>(what.amount % 32) - 4;
        argument.flags = what.value & EMUV_QUERY_NEXT;
        return ioctl(control_.get(), EMUV_IOC_QUERY_INSTANCE, &argument);
    }
    }
}

/// Makes and opens an instance with few choices, so that most of them succeed:
/// one whose memory is guaranteed, or one with a swap file. Or changes one.
long executor::change_own(const record &what)
{
    const int id = first_own + static_cast<int>(what.place % own_count);
    const bool swaps = what.place & 0x20U;
    if ((what.place >> 6U) == 2 && swaps)
        return ftruncate(swap_files_.at(what.place % own_count),
                         static_cast<off_t>(what.amount % 5 * chunk));
    if ((what.place >> 6U) == 2) {
        auto argument = fresh<emuv_resize>();
        argument.id = id;
        argument.flags = EMUV_RESIZE_VIRTUAL;
        argument.virtual_bytes = what.amount % 6 * chunk;
        return ioctl(control_.get(), EMUV_IOC_RESIZE, &argument);
    }
    if ((what.place >> 6U) == 3) {
        auto argument = fresh<emuv_destroy>();
        argument.id = id;
        argument.flags = what.place & 0x10U ? EMUV_DESTROY_FORCE : 0;
        return ioctl(control_.get(), EMUV_IOC_DESTROY, &argument);
    }
    auto argument =
        creation((1 + what.value % 4) * mib, (1 + what.amount % 4) * chunk, id,
                 swaps ? EMUV_CREATE_SWAP : EMUV_CREATE_GUARANTEED);
    descriptor swap;
    if (swaps) {
        swap = can_swap_ ? open_swap_file() : descriptor();
        argument.swap_fd = swap.get();
    }
    if (what.value & 4U)
        argument.client_virtual_bytes = (1 + (what.value >> 3U) % 4) * chunk;
    if (ioctl(control_.get(), EMUV_IOC_CREATE, &argument) < 0)
        return -1;
    if (swap)
        put(swap_files_.at(what.place % own_count),
            fcntl(swap.get(), F_DUPFD_CLOEXEC, 3));
    return keep(open(node_path(id).c_str(), O_RDWR | O_CLOEXEC));
}

long executor::transfer(const record &what, int fd)
{
    static const std::array<unsigned char, 3 * 4096> text = [] {
        std::array<unsigned char, 3 * 4096> bytes{};
        bytes.fill('x');
        return bytes;
    }();
    std::array<unsigned char, 3 * 4096> room; // NOLINT: need not be set
    const auto at = static_cast<off_t>(place(what.value));
    const auto length = what.amount % text.size();
    // Into, or out of, memory that is a mapping of the driver's, or is none.
    unsigned char *mapped = arena(what.place % map_slots);
    const std::array<iovec, 2> parts{iovec{room.data(), length / 3},
                                     iovec{mapped, length}};
    switch (what.place >> 4U) {
    case 0:
    case 1:
        return pwrite(fd, text.data(), length, at);
    case 2:
    case 3:
        return pread(fd, room.data(), length, at);
    case 4:
        return preadv(fd, parts.data(), 2, at);
    case 5:
        return pwrite(fd, mapped, what.amount % (3 * chunk), at);
    case 6:
        return pread(fd, mapped, what.amount % (3 * chunk), at);
    case 7:
        return read(fd, room.data(), length);
    case 8:
        return write(fd, text.data(), length);
    default:
        return pwritev2(fd, parts.data(), 2, at,
                        static_cast<int>(what.amount >> 28U));
    }
}

long executor::map(const record &what, int fd)
{
    constexpr std::array protections{PROT_READ | PROT_WRITE, PROT_READ,
                                     PROT_WRITE, PROT_READ | PROT_EXEC};
    constexpr std::array kinds{MAP_SHARED, MAP_SHARED, MAP_SHARED_VALIDATE,
                               MAP_PRIVATE};
    const auto bytes = std::min(size(what.amount), map_bytes);
    const auto variant = what.place >> 4U;
    void *at = mmap(arena(what.place % map_slots), bytes,
                    protections.at(what.value >> 60U & 3U),
                    MAP_FIXED | kinds.at(variant & 3U) |
                        (variant == 8 ? MAP_POPULATE : 0) |
                        (variant == 9 ? MAP_LOCKED : 0),
                    fd, static_cast<off_t>(place(what.value & ~(3ULL << 60U))));
    return at == MAP_FAILED ? -1 : 0;
}

long executor::change_mapping(const record &what)
{
    constexpr std::array advice{
        MADV_DONTNEED,       MADV_REMOVE,   MADV_DONTFORK, MADV_DOFORK,
        MADV_COLD,           MADV_PAGEOUT,  MADV_WILLNEED, MADV_POPULATE_READ,
        MADV_POPULATE_WRITE, MADV_HUGEPAGE, MADV_FREE,     MADV_WIPEONFORK};
    unsigned char *base = arena(what.place % map_slots);
    const u64 from = (what.value % 4096) * 4096 % map_bytes;
    const u64 bytes = std::min(size(what.amount), map_bytes - from);
    unsigned char *at = base + from;
    switch (what.place >> 4U) {
    case 0:
        return reserve(at, bytes);
    case 1:
        return mprotect(at, bytes, static_cast<int>(what.value >> 62U));
    case 2:
    case 3: {
        // To another slot, or to another size in its own.
        unsigned char *to = arena(what.value >> 61U);
        const u64 length = std::min(
            size(static_cast<std::uint32_t>(what.value >> 16U)), map_bytes);
        const bool moves = to != base && length != 0;
        const u64 stays = moves ? 0 : std::min(length, bytes);
        const void *got =
            moves ? mremap(at, bytes, length, MREMAP_MAYMOVE | MREMAP_FIXED, to)
                  : mremap(at, bytes, stays, 0);
        if (got == MAP_FAILED)
            return -1;
        // The range left behind must not become anybody else's.
        return reserve(at + stays, bytes - stays);
    }
    case 4:
        return msync(at, bytes, MS_SYNC);
    case 5:
        return mlock(at, bytes);
    case 6: {
        std::array<unsigned char, map_bytes / 4096> residency; // NOLINT
        return mincore(at, bytes, residency.data());
    }
    default:
        return madvise(at, bytes, advice.at(what.value >> 16U & 7U));
    }
}

long executor::touch(const record &what)
{
    volatile unsigned char *at =
        arena(what.place % map_slots) + size(what.amount) % map_bytes;
    const int number =
        what.place & 0x80U ? signal_of_read(at) : signal_of_write(at);
    errno = number;
    return number ? -1 : 0;
}

/// Makes the memory behind a place of a mapping fail.
long executor::fail_page(const record &what)
{
    unsigned char *at =
        arena(what.place % map_slots) +
        what.value % (what.place & 0x80U ? map_bytes : chunk) / 4096 * 4096;
    const u64 most = std::min(failures_at_once + runs_ / inputs_per_failure,
                              failures_in_all);
    // No page that all mappings without memory share: a write brings another.
    if (failed_pages_ >= most || signal_of_write(at))
        return -1;
    failed_pages_++;
    long result = 0;
    signal_of([&] { result = madvise(at, 4096, MADV_HWPOISON); });
    return result;
}

long executor::pass_descriptor(int fd)
{
    std::array<int, 2> ends{};
    if (fd < 0 ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) < 0)
        return -1;
    const descriptor ours(ends[0]), theirs(ends[1]);
    char byte = 0;
    iovec part{&byte, 1};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof fd)> room{};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = room.data();
    header.msg_controllen = room.size();
    cmsghdr *rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(rights), &fd, sizeof fd);
    if (sendmsg(ours.get(), &header, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ||
        recvmsg(theirs.get(), &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT) < 0)
        return -1;
    rights = CMSG_FIRSTHDR(&header);
    if (!rights)
        return -1;
    int got = -1;
    std::memcpy(&got, CMSG_DATA(rights), sizeof got);
    return keep(got);
}

long executor::through_pipe(const record &what, int fd)
{
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) < 0)
        return -1;
    const descriptor out(ends[0]), in(ends[1]);
    auto at = static_cast<loff_t>(place(what.value));
    const auto length = what.amount % (64 * kib);
    if (what.place & 0x80U) {
        // The pipe holds the mapping's pages while they are discarded, say.
        iovec part{arena(what.place % map_slots), 64 * kib};
        const auto got = vmsplice(in.get(), &part, 1, SPLICE_F_NONBLOCK);
        if (got > 0 && what.place & 0x40U) {
            auto argument = fresh<emuv_discard>();
            argument.offset = static_cast<u64>(at);
            argument.bytes = chunk;
            ioctl(fd, EMUV_IOC_DISCARD, &argument);
        }
        return got < 0 ? got : splice(out.get(), nullptr, fd, &at, 64 * kib, 0);
    }
    const auto got = splice(fd, &at, in.get(), nullptr, length, 0);
    return got < 0 || !(what.place & 0x40U)
               ? got
               : splice(out.get(), nullptr, fd, nullptr, length, 0);
}

long executor::device(const record &what, int fd, int other)
{
    switch (what.place >> 4U) {
    case 0:
    case 1:
        // Reading waits for events of the device, which has none.
        return keep(open("/dev/dri/card0", O_RDWR | O_CLOEXEC | O_NONBLOCK));
    case 2:
    case 3:
    case 4: {
        drm_prime_handle argument{0, 0, other};
        return ioctl(fd, prime_fd_to_handle, &argument);
    }
    case 5: {
        drm_prime_handle argument{1 + what.amount % 4, O_RDWR | O_CLOEXEC, -1};
        const long result = ioctl(fd, prime_handle_to_fd, &argument);
        return result < 0 ? result : keep(argument.fd);
    }
    case 6: {
        drm_gem_close argument{1 + what.amount % 4, 0};
        return ioctl(fd, gem_close, &argument);
    }
    default: {
        dma_buf_sync argument{};
        argument.flags = what.value & (what.value & 8U ? ~0ULL : 7ULL);
        return ioctl(fd, DMA_BUF_IOCTL_SYNC, &argument);
    }
    }
}

long executor::in_child(const record &what)
{
    const pid_t pid = fork();
    if (pid == 0) {
        // Of the other threads' state nothing can be relied on: calls alone.
        for (std::size_t i = 0; i < map_slots; i++)
            if (what.amount >> i & 1U)
                signal_of_write(arena(i) + what.value % map_bytes);
        if (what.place & 0x10U)
            munmap(arena_, map_slots * map_bytes);
        const int fd = files_.at(what.files % file_slots);
        auto argument = fresh<emuv_free>();
        argument.offset = regions_[0];
        if (what.place & 0x20U)
            ioctl(fd, EMUV_IOC_FREE, &argument);
        _exit(0);
    }
    return end_child(pid, what);
}

/// Calls the driver in a process whose cgroup has room for few chunks. Its
/// regions and guaranteed instances stay at that cgroup's expense.
long executor::call_in_group(const record &what, int fd)
{
    struct answer
    {
        long result = -1;
        int error = EIO;
        u64 offset = 0;
    };
    auto make = creation(mib, (1 + what.amount % 4) * chunk,
                         first_own + static_cast<int>(what.place % own_count),
                         EMUV_CREATE_GUARANTEED);
    auto region = fresh<emuv_alloc>();
    region.bytes = (1 + what.amount % 4) * chunk;
    region.flags = what.place & 0x20U ? EMUV_ALLOC_POPULATE : 0;
    std::array<int, 2> ends{};
    if (!group_entry_ || pipe2(ends.data(), O_CLOEXEC) < 0)
        return -1;
    const descriptor out(ends[0]);
    descriptor in(ends[1]);
    const pid_t pid = fork();
    if (pid == 0) {
        // Of the other threads' state nothing can be relied on: calls alone.
        answer now;
        if (write(group_entry_.get(), "0", 1) == 1)
            now.result = what.place & 0x10U
                             ? ioctl(control_.get(), EMUV_IOC_CREATE, &make)
                             : ioctl(fd, EMUV_IOC_ALLOC, &region);
        now.error = errno;
        now.offset = region.offset;
        _exit(write(in.get(), &now, sizeof now) < 0);
    }
    in.reset();
    if (end_child(pid, what) < 0)
        return -1;
    answer got;
    if (read(out.get(), &got, sizeof got) != sizeof got)
        got = answer();
    if (got.result == 0 && what.place & 0x10U)
        return keep(open(node_path(make.id).c_str(), O_RDWR | O_CLOEXEC));
    if (got.result == 0)
        remember(got.offset);
    errno = got.error;
    return got.result;
}

/// Reads a table of regions or clients in pieces.
long executor::read_debug(const record &what)
{
    const auto path = "/sys/kernel/debug/emuv/emuv" +
                      std::to_string(any_id(what)) +
                      (what.place & 0x10U ? "/clients" : "/regions");
    const descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file)
        return -1;
    std::array<char, 512> text{};
    long got = 1;
    for (int i = 0; i < 8 && got > 0; i++)
        got = read(file.get(), text.data(), 1 + what.amount % text.size());
    return what.place & 0x20U ? pread(file.get(), text.data(), text.size(),
                                      static_cast<off_t>(what.value % 4096))
                              : got;
}

long executor::read_files(const record &what, int fd)
{
    const int id = any_id(what);
    std::string path;
    switch (what.place >> 6U) {
    case 0:
        path = "/proc/self/fdinfo/" + std::to_string(fd);
        break;
    case 1:
        path = "/sys/module/emuv/parameters/host_floor_mb";
        break;
    default:
        path =
            attribute_path(id, attributes.at(what.value % attributes.size()));
    }
    const descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    std::array<char, 512> text{};
    return file ? read(file.get(), text.data(), 1 + what.amount % text.size())
                : -1;
}

/// Loads the module anew, with the input's parameters, and looks at the result.
std::string executor::reload(std::span<const std::uint8_t> input)
{
    std::string parameters(input.begin(),
                           std::find(input.begin(), input.end(), 0));
    control_.reset();
    if (before_unload)
        before_unload();
    if (unload_eventually() != 0)
        return "the idle module cannot be unloaded";
    if (load(parameters) == 0) {
        {
            const auto node = open_control();
            auto argument = fresh<emuv_query_instance>();
            argument.flags = EMUV_QUERY_NEXT;
            while (call(node, EMUV_IOC_QUERY_INSTANCE, argument) == 0) {
                for (const char *name : attributes)
                    read_text(attribute_path(argument.id, name));
                argument.id++;
            }
        }
        if (after_load)
            after_load();
        if (before_unload)
            before_unload();
        if (unload_eventually() != 0)
            return "the module cannot be unloaded after " + parameters;
    } else if (loaded()) {
        return "the module is there though loading failed";
    }
    const auto left = leftovers();
    set_up();
    return left;
}

void executor::clean_up()
{
    for (auto &file : files_)
        put(file, -1);
    for (auto &file : swap_files_)
        put(file, -1);
    reset_arena();
    for (auto &region : regions_)
        region = 0;
    next_file_ = next_region_ = 0;
    // Failed memory stays the cgroup's.
    if (failed_pages_ != failed_before_) {
        failed_before_ = failed_pages_;
        limit_group();
    }
}

bool executor::limit_group() const
{
    return group_->usable && group_->limit(group_->current() + limited_bytes);
}

/// Everything is closed: nothing may be left of it.
std::string executor::check_idle()
{
    std::string text;
    for (std::size_t i = 0; i < sizes.size(); i++) {
        emuv_query_instance now{};
        // Memory held by a device or a pipe goes back a moment later.
        const bool idle = wait_until([&] {
            now = query(control_, static_cast<int>(i));
            return !now.clients && !now.physical_used_bytes &&
                   !now.virtual_used_bytes && !now.unowned_bytes;
        });
        if (!idle)
            text += "emuv" + std::to_string(i) + " keeps " +
                    std::to_string(now.clients) + " clients, " +
                    std::to_string(now.physical_used_bytes) + " physical, " +
                    std::to_string(now.virtual_used_bytes) + " virtual and " +
                    std::to_string(now.unowned_bytes) + " unowned bytes\n";
        if (now.unowned_bytes > now.virtual_used_bytes)
            text += "more is unowned than used\n";
    }
    for (int id = first_own; id < first_own + own_count; id++)
        if (const int error = destroy(control_, id);
            error != 0 && error != ENODEV &&
            destroy_eventually(control_, id) != 0)
            text += "emuv" + std::to_string(id) + " cannot be destroyed\n";
    return text;
}

/// An offset: of a region that is known, somewhere in one, or any at all.
u64 executor::place(u64 value) const
{
    const u64 known = regions_.at(value >> 3U & 7U);
    switch (value & 7U) {
    case 0:
    case 1:
    case 2:
        return known;
    case 3:
        return known + (value >> 16U) % (4 * mib);
    case 4:
        return known + (value >> 16U) % 1024 * 4096;
    case 5:
        return (value >> 16U) % (16 * mib);
    case 6:
        return (value >> 16U) % 16 * chunk;
    default:
        return value;
    }
}

/// A size: some chunks, some pages, some bytes, or any at all.
u64 executor::size(std::uint32_t amount)
{
    switch (amount & 3U) {
    case 0:
        return (amount >> 2U) % 9 * chunk;
    case 1:
        return (amount >> 2U) % 2048 * 4096;
    case 2:
        return (amount >> 2U) % (8 * mib);
    default:
        return u64{amount} << (amount >> 2U & 31U);
    }
}

int executor::keep(long fd)
{
    if (fd < 0)
        return -1;
    put(files_.at(next_file_++ % file_slots), static_cast<int>(fd));
    return 0;
}

void executor::remember(u64 offset)
{
    regions_.at(next_region_++ % regions_.size()) = offset;
}

unsigned char *executor::arena(std::size_t slot) const
{
    return arena_ + slot % map_slots * map_bytes;
}

void executor::reset_arena()
{
    reserve(arena_, map_slots * map_bytes);
}

void executor::object(const std::string &text)
{
    if (!objected_.exchange(true))
        objection_ = text;
}

} // namespace fuzz
