// SPDX-License-Identifier: GPL-2.0-or-later
// Many clients at once, short of memory. They allocate, touch, discard, export,
// fork and die. Meanwhile others eat the host's memory, cgroups have limits,
// the OOM killer is at work, and instances come and go. EMUV_LOAD_SECONDS makes
// the test longer, EMUV_LOAD_CLIENTS wider; EMUV_SEED gives another one.
#include "support.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <random>
#include <system_error>
#include <thread>

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using namespace guest;
using namespace std::chrono_literals;

constexpr u64 chunk_words = chunk / sizeof(u64);
constexpr u64 largest = 8; // chunks in a region

/// State that all processes share.
struct board
{
    std::atomic<bool> stop{false};
    std::atomic<u64> steps{0};
    std::atomic<u64> touched{0};   // chunks written
    std::atomic<u64> checked{0};   // chunks read and found right
    std::atomic<u64> handed_on{0}; // regions that another process imported
    std::atomic<u64> sigbus{0};
    std::atomic<u64> enomem{0};
    std::atomic<u64> enospc{0};
    std::atomic<u64> instances{0};
    std::atomic<bool> failed{false};
    char what[512] = {};

    void fail(const std::string &text)
    {
        if (!failed.exchange(true))
            text.copy(what, sizeof what - 1);
    }
};

/// Runs `body` in a child, which ends without destructors.
template <typename Body>
pid_t spawn(Body &&body)
{
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child != 0)
        return static_cast<pid_t>(checked(child, "fork"));
    int status = 1;
    try {
        status = body();
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
    }
    _exit(status);
}

/// True if a child ended as allowed: by itself, or killed.
bool ended_well(int status)
{
    return (WIFEXITED(status) && WEXITSTATUS(status) == 0) ||
           (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/// A filled region on its way to any process that reads the socket.
struct parcel
{
    u64 tag;
    u64 bytes;
};

bool send_parcel(int socket, const parcel &what, int fd)
{
    return send_with(socket, &what, sizeof what, fd, MSG_DONTWAIT) > 0;
}

descriptor receive_parcel(int socket, parcel &what)
{
    descriptor fd;
    receive_with(socket, &what, sizeof what, fd, MSG_DONTWAIT);
    return fd;
}

/// A client that may read only its own writes.
class worker
{
public:
    /// The ends of a socket that all workers share, for what they hand on.
    struct exchange
    {
        int take;
        int give;
    };

    worker(board &shared, int id, exchange others, u64 seed)
        : shared_(shared), id_(id), others_(others), random_(seed)
    {}

    /// Works until told to stop, or exits early while it holds its objects.
    int run()
    {
        const auto age = random_() % 400;
        for (u64 step = 0; step < age && !shared_.stop && !shared_.failed;
             step++) {
            try {
                if (!node_)
                    node_ = open_client(id_);
                one_step();
            } catch (const std::system_error &error) {
                // Opening and mapping need kernel memory too.
                if (error.code().value() != ENOMEM)
                    throw;
                shared_.enomem++;
            }
            shared_.steps++;
        }
        return shared_.failed ? 1 : 0;
    }

private:
    struct piece
    {
        region where;
        mapping map;
        std::array<u64, largest> tags{}; // of each chunk; 0: reads as zeros
    };

    void one_step()
    {
        switch (random_() % 12) {
        case 0:
        case 1:
            allocate_one();
            break;
        case 2:
        case 3:
        case 4:
            touch();
            break;
        case 5:
        case 6:
            check();
            break;
        case 7:
            drop();
            break;
        case 8:
            discard_some();
            break;
        case 9:
            random_() % 2 ? hand_on() : take_over();
            break;
        case 10:
            random_() % 4 ? charge_some() : have_child();
            break;
        default:
            if (random_() % 8 == 0) { // a new client from here on
                pieces_.clear();
                node_.reset();
                charged_ = 0;
            }
        }
    }

    void expect(bool holds, const char *what)
    {
        if (!holds)
            shared_.fail(std::string(what) +
                         " (errno: " + std::strerror(errno) + ")");
    }

    piece *any()
    {
        return pieces_.empty() ? nullptr : &pieces_[random_() % pieces_.size()];
    }

    void allocate_one()
    {
        if (pieces_.size() >= 6)
            return;
        piece made;
        const int error =
            try_allocate(node_, (1 + random_() % largest) * chunk, made.where,
                         random_() % 8 == 0 ? EMUV_ALLOC_POPULATE : 0);
        shared_.enomem += error == ENOMEM;
        shared_.enospc += error == ENOSPC;
        expect(error == 0 || error == ENOMEM || error == ENOSPC,
               "an allocation failed otherwise than for want of memory");
        if (error)
            return;
        made.map = mapping(node_.get(), made.where.bytes, made.where.offset);
        pieces_.push_back(std::move(made));
    }

    static u64 *words(const piece &of, u64 which)
    {
        return reinterpret_cast<u64 *>(of.map.data() + which * chunk);
    }

    /// Writes a chunk; false if there is no memory for it.
    bool write(piece &of, u64 which)
    {
        const u64 tag = random_() | 1;
        u64 *const at = words(of, which);
        // The first byte backs the whole chunk or nothing.
        volatile auto *const first = reinterpret_cast<unsigned char *>(at);
        const int signal = signal_of([&] { *first = *first; });
        expect(signal == 0 || signal == SIGBUS, "a touch raised no SIGBUS");
        if (signal) {
            shared_.sigbus++;
            return false;
        }
        std::fill_n(at, chunk_words, tag);
        of.tags[which] = tag;
        shared_.touched++;
        return true;
    }

    void touch()
    {
        if (piece *const of = any())
            write(*of, random_() % (of->where.bytes / chunk));
    }

    bool is(const u64 *at, u64 tag)
    {
        return at[0] == tag &&
               std::memcmp(at, at + 1, chunk - sizeof(u64)) == 0;
    }

    void check_chunk(const piece &of, u64 which)
    {
        const u64 *const at = words(of, which);
        bool right = false;
        const int signal = signal_of([&] { right = is(at, of.tags[which]); });
        if (signal == SIGBUS && of.tags[which] == 0) { // reading backs it, too
            shared_.sigbus++;
            return;
        }
        expect(signal == 0, "what was written cannot be read");
        expect(right, of.tags[which] ? "a chunk is not what was written there"
                                     : "a chunk that nobody wrote has bytes");
        shared_.checked++;
    }

    void check()
    {
        if (const piece *const of = any())
            check_chunk(*of, random_() % (of->where.bytes / chunk));
    }

    void drop()
    {
        if (pieces_.empty())
            return;
        const auto which =
            static_cast<std::ptrdiff_t>(random_() % pieces_.size());
        // Half of the regions are freed before their mapping.
        if (random_() % 2)
            pieces_[static_cast<std::size_t>(which)].map.reset();
        expect(release(node_,
                       pieces_[static_cast<std::size_t>(which)].where.offset) ==
                   0,
               "a region could not be freed");
        pieces_.erase(pieces_.begin() + which);
    }

    void discard_some()
    {
        piece *const of = any();
        if (of == nullptr)
            return;
        const u64 chunks = of->where.bytes / chunk;
        const u64 first = random_() % chunks;
        const u64 count = 1 + random_() % (chunks - first);
        expect(discard(node_, of->where.offset + first * chunk,
                       count * chunk) == 0,
               "a discard failed");
        for (u64 i = first; i < first + count; i++)
            of->tags[i] = 0;
    }

    /// Fills a small region, sends its descriptor and forgets the region.
    void hand_on()
    {
        piece made;
        if (try_allocate(node_, chunk, made.where) != 0)
            return;
        made.map = mapping(node_.get(), chunk, made.where.offset);
        if (write(made, 0)) {
            auto exported = fresh<emuv_export>();
            exported.offset = made.where.offset;
            const int error = call(node_, EMUV_IOC_EXPORT, exported);
            expect(error == 0 || error == ENOMEM, "an export failed");
            if (error == 0) {
                const descriptor file(exported.fd);
                send_parcel(others_.give, {made.tags[0], chunk}, file.get());
            }
        }
        made.map.reset();
        expect(release(node_, made.where.offset) == 0,
               "a region that was handed on could not be freed");
    }

    /// A received region holds the sender's data and nothing else.
    void take_over()
    {
        parcel what{};
        const auto file = receive_parcel(others_.take, what);
        if (!file)
            return;
        piece got;
        const int error = import_region(node_, file, got.where);
        expect(error == 0 || error == ENOMEM || error == EEXIST,
               "an import failed");
        if (error)
            return;
        got.map = mapping(node_.get(), got.where.bytes, got.where.offset);
        got.tags[0] = what.tag;
        check_chunk(got, 0);
        shared_.handed_on++;
        pieces_.push_back(std::move(got));
    }

    void charge_some()
    {
        if (charged_ && random_() % 2) {
            expect(uncharge(node_, charged_) == 0, "an uncharge failed");
            charged_ = 0;
            return;
        }
        const u64 bytes = 1 + random_() % (64 * mib);
        const int error = charge(node_, bytes);
        expect(error == 0 || error == ENOSPC, "a charge failed");
        if (error == 0)
            charged_ += bytes;
    }

    /// A child sees what its parent wrote; it ends by itself, or is killed.
    void have_child()
    {
        const pid_t child = fork();
        if (child == -1) {
            expect(errno == ENOMEM || errno == EAGAIN, "fork failed");
            return;
        }
        if (child == 0) {
            for (int i = 0; i < 8; i++)
                check();
            _exit(shared_.failed ? 1 : 0);
        }
        if (random_() % 2)
            kill(child, SIGKILL);
        int status = 0;
        waitpid(child, &status, 0);
        expect(ended_well(status), "a child died");
    }

    board &shared_;
    const int id_;
    const exchange others_;
    std::mt19937_64 random_;
    descriptor node_;
    std::vector<piece> pieces_;
    u64 charged_ = 0;
};

/// Takes host memory until `least` bytes are available. With 0 it takes all,
/// until it is killed.
int eat(board &shared, u64 least)
{
    constexpr u64 bite = 16 * mib;
    std::vector<void *> bites;
    // Get more processor time than each of the many clients.
    setpriority(PRIO_PROCESS, 0, -10);
    while (!shared.stop && !shared.failed) {
        if (least == 0 || meminfo("MemAvailable") > least + 2 * bite) {
            void *const at =
                mmap(nullptr, bite, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
            if (at == MAP_FAILED)
                break;
            bites.push_back(at);
        } else {
            // Give memory back, a quarter a second.
            std::this_thread::sleep_for(250ms);
            for (std::size_t i = 0; i < 1 + bites.size() / 4 && !bites.empty();
                 i++) {
                munmap(bites.back(), bite);
                bites.pop_back();
            }
        }
    }
    return 0;
}

/// Creates and destroys instances, one after the other, with a client in each.
int come_and_go(board &shared, u64 seed)
{
    std::mt19937_64 random(seed);
    const auto control = open_control();
    while (!shared.stop && !shared.failed) {
        auto asked = creation(1 + random() % gib, (1 + random() % 32) * chunk,
                              EMUV_ANY, EMUV_CREATE_OVERCOMMIT);
        const int error = call(control, EMUV_IOC_CREATE, asked);
        if (error == ENOMEM || error == ENOSPC)
            continue;
        if (error) {
            shared.fail("an instance could not be created: " +
                        std::string(std::strerror(error)));
            return 1;
        }
        {
            const auto node = open_client(asked.id);
            const auto got = allocate(node, chunk);
            if (!reads_zero(node.get(), got.offset, chunk))
                shared.fail("a new instance has bytes");
            const std::vector<char> data(4096, 'n');
            if (pwrite(node.get(), data.data(), data.size(),
                       static_cast<off_t>(got.offset)) < 0 &&
                errno != ENOMEM)
                shared.fail("a new instance could not be written");
            if (destroy(control, asked.id) != EBUSY)
                shared.fail("an instance in use was destroyed");
        }
        const int gone = destroy_eventually(control, asked.id);
        if (gone)
            shared.fail("an instance could not be destroyed: " +
                        std::string(std::strerror(gone)));
        shared.instances++;
    }
    return 0;
}

/// Has the host's OOM killer choose a process before others, or leave it alone:
/// -1000.
void choose_before_others(int score)
{
    write_text("/proc/self/oom_score_adj", std::to_string(score));
}

/// A process that the OOM killer takes before any that is not of this test.
template <typename Run>
pid_t start(Run run)
{
    return spawn([&] {
        choose_before_others(500);
        return run();
    });
}

class load : public driver_test
{
protected:
    load() : driver_test("host_floor_mb=" + std::to_string(floor_mb())) {}

    /// In MiB. It leaves less memory above the floor than the clients want.
    static u64 floor_mb()
    {
        const auto available = settled_available();
        return (available - std::min(available / 2, clients() * 10 * mib)) /
               mib;
    }

    static u64 clients() { return from_environment("EMUV_LOAD_CLIENTS", 24); }

    u64 floor_bytes() const
    {
        return read_number("/sys/module/emuv/parameters/host_floor_mb") * mib;
    }
};

TEST_F(load, ManyClientsShortOfMemoryLoseNoByteAndLeaveNothing)
{
    const auto seconds = from_environment("EMUV_LOAD_SECONDS", 8);
    const auto count = clients();
    const auto seed = from_environment("EMUV_SEED", 6);
    std::mt19937_64 random(seed);

    // Promises more than the host has, on purpose. That is refused without
    // overcommit.
    const u64 promised = 2 * meminfo("MemTotal") / chunk * chunk;
    auto refused = creation(gib, promised);
    ASSERT_EQ(call(control, EMUV_IOC_CREATE, refused), ENOMEM);
    const int id = create(
        control, creation(gib, promised, EMUV_ANY, EMUV_CREATE_OVERCOMMIT));

    void *const place = mmap(nullptr, sizeof(board), PROT_READ | PROT_WRITE,
                             MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(place, MAP_FAILED);
    auto &shared = *new (place) board;
    int ends[2];
    checked(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends),
            "socketpair");
    descriptor take(ends[0]);
    descriptor give(ends[1]);
    const memory_cgroup narrow("load-narrow");
    const memory_cgroup fatal("load-fatal");
    ASSERT_TRUE(narrow.usable && fatal.usable)
        << "no cgroup2 with a memory controller here";
    ASSERT_TRUE(narrow.limit(count * 4 * mib + 32 * mib));
    ASSERT_TRUE(fatal.limit(32 * mib));

    // Once it has killed the greedy process, it may take a second one.
    choose_before_others(-1000);
    const auto start_worker = [&](std::size_t which) {
        const u64 its_seed = random();
        return start([&, which, its_seed] {
            if (which % 4 == 0 && !narrow.enter())
                return 1;
            return worker(shared, id, {take.get(), give.get()}, its_seed).run();
        });
    };
    std::vector<pid_t> workers;
    for (std::size_t i = 0; i < count; i++)
        workers.push_back(start_worker(i));
    const pid_t pressing =
        start([&] { return eat(shared, floor_bytes() + 64 * mib); });
    const pid_t instances = start([&] { return come_and_go(shared, seed); });

    // The test's own processes may also take memory from below the floor.
    const u64 slack = (64 + count * (holds_back_freed() ? 8 : 2)) * mib;
    u64 lowest = ~u64{0};
    u64 highest_resident = 0;
    u64 kills = 0;
    u64 droughts = 0;
    pid_t doomed = -1;
    pid_t thirsty = -1;
    bool parched = false;
    const auto begun = std::chrono::steady_clock::now();
    const auto limit = std::chrono::seconds(seconds);
    // Emptying the host takes half a minute.
    auto next_drought = begun + 60s;
    while (std::chrono::steady_clock::now() - begun < limit && !shared.failed) {
        std::this_thread::sleep_for(20ms);
        // A new worker replaces each dead one.
        for (std::size_t i = 0; i < workers.size(); i++) {
            int status = 0;
            if (waitpid(workers[i], &status, WNOHANG) != workers[i])
                continue;
            if (!ended_well(status))
                shared.fail("a client ended with status " +
                            std::to_string(status));
            workers[i] = start_worker(i);
        }
        if (random() % 4 == 0) {
            kill(workers[random() % workers.size()], SIGKILL);
            kills++;
        }
        // The OOM killer of a cgroup, again and again.
        if (doomed == -1)
            doomed = start([&] { return fatal.enter() ? eat(shared, 0) : 1; });
        else if (waitpid(doomed, nullptr, WNOHANG) == doomed)
            doomed = -1;
        // The host's OOM killer: a process takes all memory, whatever the
        // floor.
        if (thirsty == -1 && std::chrono::steady_clock::now() > next_drought) {
            thirsty = spawn([&] {
                choose_before_others(1000);
                return eat(shared, 0);
            });
            parched = true;
        } else if (int status = 0;
                   thirsty != -1 &&
                   waitpid(thirsty, &status, WNOHANG) == thirsty) {
            EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
            thirsty = -1;
            droughts++;
            next_drought = std::chrono::steady_clock::now() + 60s;
        }

        const auto of = query(control, id);
        highest_resident = std::max<u64>(highest_resident, of.resident_bytes);
        EXPECT_LE(of.physical_used_bytes, of.physical_bytes);
        EXPECT_LE(of.virtual_used_bytes, of.virtual_bytes);
        const u64 available = meminfo("MemAvailable");
        if (thirsty == -1 && available > floor_bytes())
            parched = false;
        if (!parched)
            lowest = std::min(lowest, available);
    }
    shared.stop = true;
    for (const pid_t one : workers) {
        int status = 0;
        waitpid(one, &status, 0);
        EXPECT_TRUE(ended_well(status)) << status;
    }
    for (const pid_t one : {pressing, instances, doomed, thirsty})
        if (one > 0) {
            int status = 0;
            waitpid(one, &status, 0);
            EXPECT_TRUE(ended_well(status)) << status;
        }
    choose_before_others(0);
    EXPECT_FALSE(shared.failed) << shared.what;
    const u64 oom_kills = fatal.event("oom_kill") + narrow.event("oom_kill");
    std::printf(
        "%llu s, %llu clients at once, EMUV_SEED=%llu: %llu steps, %llu chunks "
        "written, %llu found right, %llu regions handed on, %llu instances; "
        "%llu killed, %llu by cgroups' OOM killer, %llu times the host without "
        "memory; SIGBUS %llu, ENOMEM %llu, ENOSPC %llu; at most %llu MiB "
        "backed; available at least %llu MiB, floor %llu\n",
        static_cast<unsigned long long>(seconds),
        static_cast<unsigned long long>(count),
        static_cast<unsigned long long>(seed),
        static_cast<unsigned long long>(shared.steps.load()),
        static_cast<unsigned long long>(shared.touched.load()),
        static_cast<unsigned long long>(shared.checked.load()),
        static_cast<unsigned long long>(shared.handed_on.load()),
        static_cast<unsigned long long>(shared.instances.load()),
        static_cast<unsigned long long>(kills),
        static_cast<unsigned long long>(oom_kills),
        static_cast<unsigned long long>(droughts),
        static_cast<unsigned long long>(shared.sigbus.load()),
        static_cast<unsigned long long>(shared.enomem.load()),
        static_cast<unsigned long long>(shared.enospc.load()),
        static_cast<unsigned long long>(highest_resident / mib),
        static_cast<unsigned long long>(lowest / mib),
        static_cast<unsigned long long>(floor_bytes() / mib));

    // Each kind of work has happened.
    EXPECT_GT(shared.checked, 0U);
    EXPECT_GT(shared.handed_on, 0U);
    EXPECT_GT(shared.instances, 0U);
    EXPECT_GT(shared.sigbus + shared.enomem, 0U) << "memory was never short";
    EXPECT_GT(oom_kills, 0U);
    if (seconds > 180) {
        EXPECT_GT(droughts, 0U);
    }
    EXPECT_GT(lowest + slack, floor_bytes()) << "the host's floor was passed";

    // Nothing is left.
    take.reset();
    give.reset();
    EXPECT_TRUE(wait_until([&] {
        const auto of = query(control, id);
        return of.clients == 0 && of.physical_used_bytes == 0 &&
               of.virtual_used_bytes == 0 && of.unowned_bytes == 0 &&
               of.resident_bytes == 0;
    })) << query(control, id).clients
        << " clients, " << query(control, id).physical_used_bytes
        << " physical, " << query(control, id).virtual_used_bytes
        << " virtual, " << query(control, id).resident_bytes << " backed";
    munmap(place, sizeof(board));
}

} // namespace
