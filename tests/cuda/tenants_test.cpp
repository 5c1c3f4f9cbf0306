// SPDX-License-Identifier: GPL-2.0-or-later
// Tenants of one instance, each a process that emuvctl run started over the
// simulated CUDA driver. The module's ledger holds their limits together, and
// is right after one is killed. Needs the module, so it runs in a guest.
#include <emuv/control.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <cuda.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <linux/emuv.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

constexpr std::uint64_t mib = 1 << 20;
constexpr std::uint64_t physical = 64 * mib;
constexpr std::uint64_t virtual_share = 96 * mib;
// Of a wait: only what hangs takes so long.
constexpr std::chrono::seconds longest_wait(120);

template <typename Function>
Function *cuda(void *library, const char *name)
{
    return reinterpret_cast<Function *>(dlsym(library, name));
}

/// Makes the primary context of a device current; false where it cannot be.
bool current_context(void *library, int ordinal)
{
    CUdevice device = 0;
    CUcontext context = nullptr;
    return library != nullptr &&
           cuda<CUresult(unsigned)>(library, "cuInit")(0) == CUDA_SUCCESS &&
           cuda<CUresult(CUdevice *, int)>(library, "cuDeviceGet")(
               &device, ordinal) == CUDA_SUCCESS &&
           cuda<CUresult(CUcontext *, CUdevice)>(
               library, "cuDevicePrimaryCtxRetain")(&context, device) ==
               CUDA_SUCCESS &&
           cuda<CUresult(CUcontext)>(library, "cuCtxSetCurrent")(context) ==
               CUDA_SUCCESS;
}

/// Answers, and keeps what there is until its standard input ends.
int hold(CUresult result)
{
    const auto answer = static_cast<unsigned char>(result);
    if (write(STDOUT_FILENO, &answer, 1) != 1)
        return 4;
    char byte = 0;
    while (read(STDIN_FILENO, &byte, 1) > 0) {
    }
    return 0;
}

/// The same, but does something over and over meanwhile.
template <typename Work>
int hold_while(CUresult result, Work work)
{
    const auto answer = static_cast<unsigned char>(result);
    if (write(STDOUT_FILENO, &answer, 1) != 1)
        return 4;
    for (pollfd input{STDIN_FILENO, POLLIN, 0}; poll(&input, 1, 10) == 0;)
        work();
    return 0;
}

// --- the tenant: allocates so much device memory, whole or in buffers of
// EMUV_TEST_PIECE bytes. It fills and checks it, answers with the CUresult, and
// holds it until its standard input ends.

int tenant(std::uint64_t bytes, int ordinal)
{
    const char *const in_pieces = std::getenv("EMUV_TEST_PIECE");
    const std::uint64_t buffer =
        in_pieces != nullptr ? std::stoull(in_pieces) : bytes;
    const auto tag = [](std::size_t which) {
        return static_cast<unsigned char>(0x5a + which);
    };
    void *const library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!current_context(library, ordinal))
        return 3;
    std::vector<CUdeviceptr> places;
    CUresult result = CUDA_SUCCESS;
    for (std::uint64_t held = 0; held < bytes; held += buffer) {
        CUdeviceptr place = 0;
        result = cuda<CUresult(CUdeviceptr *, std::size_t)>(
            library, "cuMemAlloc_v2")(&place, buffer);
        if (result != CUDA_SUCCESS)
            break;
        places.push_back(place);
        result = cuda<CUresult(CUdeviceptr, unsigned char, std::size_t)>(
            library, "cuMemsetD8_v2")(place, tag(places.size()), buffer);
        if (result != CUDA_SUCCESS)
            break;
    }
    // The bytes that were set are there, whatever came after.
    std::vector<unsigned char> got(buffer);
    for (std::size_t which = 0; which < places.size(); which++)
        if (cuda<CUresult(void *, CUdeviceptr, std::size_t)>(
                library, "cuMemcpyDtoH_v2")(got.data(), places[which],
                                            buffer) != CUDA_SUCCESS ||
            std::any_of(got.begin(), got.end(), [&](unsigned char byte) {
                return byte != tag(which + 1);
            }))
            return hold(CUDA_ERROR_ASSERT);
    return hold(result);
}

// --- the pooling tenant: allocates so many bytes in stream order and frees
// them, in a pool that keeps them. It answers with the CUresult.

int pooling_tenant(std::uint64_t bytes)
{
    void *const library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!current_context(library, 0))
        return 3;
    CUmemoryPool pool = nullptr;
    std::uint64_t keeps = UINT64_MAX;
    CUdeviceptr place = 0;
    if (cuda<CUresult(CUmemoryPool *, CUdevice)>(
            library, "cuDeviceGetDefaultMemPool")(&pool, 0) != CUDA_SUCCESS ||
        cuda<CUresult(CUmemoryPool, CUmemPool_attribute, void *)>(
            library, "cuMemPoolSetAttribute")(
            pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keeps) != CUDA_SUCCESS ||
        cuda<CUresult(CUdeviceptr *, std::size_t, CUstream)>(
            library, "cuMemAllocAsync")(&place, bytes, nullptr) !=
            CUDA_SUCCESS ||
        cuda<CUresult(CUdeviceptr, CUstream)>(library, "cuMemFreeAsync")(
            place, nullptr) != CUDA_SUCCESS)
        return 5;
    const CUresult done = cuda<CUresult()>(library, "cuCtxSynchronize")();
    if (std::getenv("EMUV_TEST_GOES_ON") == nullptr)
        return hold(done);
    // Until its input ends it allocates and frees a little.
    return hold_while(done, [&] {
        cuda<CUresult(CUdeviceptr *, std::size_t, CUstream)>(
            library, "cuMemAllocAsync")(&place, 4096, nullptr);
        cuda<CUresult(CUdeviceptr, CUstream)>(library,
                                              "cuMemFreeAsync")(place, nullptr);
    });
}

// --- the circling tenant: sets one allocation after the other, twice as much
// as there is VRAM. For each byte on its standard input it goes half of a round
// and answers with the CUresult, once the device is done. So it rests where
// what is needed next lies in system RAM. Ends with 0 if every byte is what it
// has set.

int circling_tenant()
{
    constexpr std::uint64_t each = 8 * mib;
    void *const library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!current_context(library, 0))
        return 3;
    std::vector<CUdeviceptr> places(2 * physical / each);
    std::vector<unsigned char> set(places.size());
    for (auto &place : places)
        if (cuda<CUresult(CUdeviceptr *, std::size_t)>(
                library, "cuMemAlloc_v2")(&place, each) != CUDA_SUCCESS)
            return 5;
    std::size_t which = 0;
    for (char byte = 0; read(STDIN_FILENO, &byte, 1) > 0;) {
        auto result = CUDA_SUCCESS;
        for (std::size_t i = 0; i < places.size() / 2; i++) {
            set[which] = static_cast<unsigned char>(set[which] + 7 + which);
            if (result == CUDA_SUCCESS)
                result =
                    cuda<CUresult(CUdeviceptr, unsigned char, std::size_t)>(
                        library, "cuMemsetD8_v2")(places[which], set[which],
                                                  each);
            which = (which + 1) % places.size();
        }
        if (result == CUDA_SUCCESS)
            result = cuda<CUresult()>(library, "cuCtxSynchronize")();
        const auto answer = static_cast<unsigned char>(result);
        if (write(STDOUT_FILENO, &answer, 1) != 1)
            return 4;
    }
    std::vector<unsigned char> bytes(each);
    for (which = 0; which < places.size(); which++)
        if (cuda<CUresult(void *, CUdeviceptr, std::size_t)>(
                library, "cuMemcpyDtoH_v2")(bytes.data(), places[which],
                                            each) != CUDA_SUCCESS ||
            std::any_of(bytes.begin(), bytes.end(),
                        [&](unsigned char byte) { return byte != set[which]; }))
            return 6;
    return 0;
}

/// Starts the driver, and prints what it answers.
int starting_tenant()
{
    void *const library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == nullptr)
        return 2;
    std::printf("%d\n", int{cuda<CUresult(unsigned)>(library, "cuInit")(0)});
    return 0;
}

// --- the busy tenant: allocates, frees, copies and checks device memory at
// random, from a seed. It takes a step for each 's' on its standard input, and
// answers how much it holds then. After a 'g' it goes on without end.

struct holdings
{
    std::uint64_t wrong = 0; ///< allocations whose bytes were not its own
    std::uint64_t live = 0;  ///< bytes it holds
    std::uint64_t free = 0;  ///< what cuMemGetInfo answers
    std::uint64_t total = 0;
};

class busy
{
public:
    explicit busy(unsigned seed) : random_(seed)
    {
        library_ = dlopen("libcuda.so.1", RTLD_NOW);
        ready_ = current_context(library_, 0);
    }

    bool ready() const { return ready_; }

    /// @param whole  allocate in whole chunks only, which are charged to the
    ///   byte; else in all sizes and from a stream-ordered pool, too
    holdings step(bool whole)
    {
        const auto what = random_() % 8;
        if (what < 4)
            allocate(whole);
        else if (!buffers_.empty()) {
            const auto which = random_() % buffers_.size();
            check(buffers_[which]);
            if (what < 7)
                free(which);
        }
        call<CUresult()>("cuCtxSynchronize")();
        std::size_t free_bytes = 0, total = 0;
        call<CUresult(std::size_t *, std::size_t *)>("cuMemGetInfo_v2")(
            &free_bytes, &total);
        held_.free = free_bytes;
        held_.total = total;
        return held_;
    }

private:
    struct buffer
    {
        CUdeviceptr at = 0;
        std::size_t bytes = 0;
        unsigned char tag = 0;
        bool pooled = false;
    };

    template <typename Function>
    Function *call(const char *name)
    {
        return cuda<Function>(library_, name);
    }

    void allocate(bool whole)
    {
        buffer made;
        made.bytes = (1 + random_() % 8) * 2 * mib;
        if (!whole && random_() % 3 == 0)
            made.bytes = 1 + random_() % (2 * mib);
        made.pooled = !whole && random_() % 4 == 0;
        made.tag = static_cast<unsigned char>(1 + random_() % 255);
        const auto result =
            made.pooled ? call<CUresult(CUdeviceptr *, std::size_t, CUstream)>(
                              "cuMemAllocAsync")(&made.at, made.bytes, nullptr)
                        : call<CUresult(CUdeviceptr *, std::size_t)>(
                              "cuMemAlloc_v2")(&made.at, made.bytes);
        if (result != CUDA_SUCCESS) {
            held_.wrong += result != CUDA_ERROR_OUT_OF_MEMORY;
            return;
        }
        call<CUresult(CUdeviceptr, unsigned char, std::size_t)>(
            "cuMemsetD8_v2")(made.at, made.tag, made.bytes);
        held_.live += made.bytes;
        buffers_.push_back(made);
    }

    void check(const buffer &of)
    {
        std::vector<unsigned char> bytes(of.bytes);
        const auto result = call<CUresult(void *, CUdeviceptr, std::size_t)>(
            "cuMemcpyDtoH_v2")(bytes.data(), of.at, of.bytes);
        held_.wrong +=
            result != CUDA_SUCCESS ||
            std::any_of(bytes.begin(), bytes.end(),
                        [&](unsigned char byte) { return byte != of.tag; });
    }

    void free(std::size_t which)
    {
        const buffer gone = buffers_[which];
        buffers_.erase(buffers_.begin() + static_cast<std::ptrdiff_t>(which));
        const auto result =
            gone.pooled ? call<CUresult(CUdeviceptr, CUstream)>(
                              "cuMemFreeAsync")(gone.at, nullptr)
                        : call<CUresult(CUdeviceptr)>("cuMemFree_v2")(gone.at);
        held_.wrong += result != CUDA_SUCCESS;
        held_.live -= gone.bytes;
    }

    std::mt19937 random_;
    void *library_ = nullptr;
    bool ready_ = false;
    std::vector<buffer> buffers_;
    holdings held_;
};

int busy_tenant(unsigned seed)
{
    busy self(seed);
    if (!self.ready())
        return 3;
    char what = 0;
    while (read(STDIN_FILENO, &what, 1) > 0) {
        if (what == 'g')
            for (;;)
                if (self.step(false).wrong != 0)
                    return 5;
        const auto held = self.step(true);
        if (write(STDOUT_FILENO, &held, sizeof held) != sizeof held)
            return 4;
    }
    return 0;
}

// --- the test's side of it

struct streams
{
    int in = -1; ///< -1: this program's own, of each
    int out = -1;
    int error = -1;
};

/// @param user  whose only right is to be there; 0: root
pid_t spawn(const std::vector<std::string> &words, streams to, uid_t user = 0)
{
    const pid_t child = fork();
    if (child == 0) {
        if (to.in >= 0)
            dup2(to.in, STDIN_FILENO);
        if (to.out >= 0)
            dup2(to.out, STDOUT_FILENO);
        if (to.error >= 0)
            dup2(to.error, STDERR_FILENO);
        close_range(3, ~0U, 0);
        if (user != 0 && (setgroups(0, nullptr) != 0 || setgid(user) != 0 ||
                          setuid(user) != 0))
            _exit(126);
        std::vector<char *> arguments;
        for (const auto &word : words)
            arguments.push_back(const_cast<char *>(word.c_str()));
        arguments.push_back(nullptr);
        execv(arguments[0], arguments.data());
        _exit(127);
    }
    return child;
}

std::string emuvctl()
{
    const char *const path = std::getenv("EMUVCTL");
    return path != nullptr ? path : "emuvctl";
}

int run(std::vector<std::string> words)
{
    words.insert(words.begin(), emuvctl());
    int status = 0;
    waitpid(spawn(words, {}), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

std::filesystem::path this_program()
{
    return std::filesystem::read_symlink("/proc/self/exe");
}

/// The words of a command on both outputs when a user in no group runs it, and
/// its exit status.
std::pair<std::string, int> said_to_nobody(std::vector<std::string> words)
{
    constexpr uid_t nobody = 65534;
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0)
        return {"no pipe", -1};
    const pid_t child = spawn(words, {-1, ends[1], ends[1]}, nobody);
    close(ends[1]);
    std::string said;
    std::array<char, 4096> some{};
    for (ssize_t got = 0; (got = read(ends[0], some.data(), some.size())) > 0;)
        said.append(some.data(), static_cast<std::size_t>(got));
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    return {said, WIFEXITED(status) ? WEXITSTATUS(status) : -1};
}

class tenant_process
{
public:
    /// @param instances  whose memory, by device
    /// @param device  on which it allocates
    explicit tenant_process(std::uint64_t bytes,
                            const std::string &instances = "0", int device = 0)
        : tenant_process(instances, {"tenant", std::to_string(bytes),
                                     std::to_string(device)})
    {}
    /// @param seed  of a busy one
    tenant_process(const char *what, std::uint64_t seed)
        : tenant_process("0", {what, std::to_string(seed)})
    {}
    /// @param words  what this program is to be, and its arguments
    tenant_process(const std::string &instances,
                   const std::vector<std::string> &words);
    tenant_process(const tenant_process &) = delete;
    tenant_process &operator=(const tenant_process &) = delete;
    ~tenant_process() { end(0); }

    /// The result of its allocation; nothing if it ended before that.
    std::optional<CUresult> answer() const
    {
        unsigned char result = 0;
        if (read(output_, &result, 1) != 1)
            return std::nullopt;
        return static_cast<CUresult>(result);
    }

    /// Has a busy one make a step; nothing if it has ended.
    std::optional<holdings> step() const
    {
        holdings held;
        if (!go('s') || read(output_, &held, sizeof held) != sizeof held)
            return std::nullopt;
        return held;
    }

    /// Sends a busy one off ('g'), or on a step ('s').
    bool go(char how) const { return write(input_, &how, 1) == 1; }

    pid_t pid() const { return pid_; }

    /// Ends it: by a signal, or with 0 by itself. Waits until it is gone.
    int end(int signal)
    {
        int status = -1;
        if (pid_ <= 0)
            return status;
        if (signal != 0)
            kill(pid_, signal);
        close(input_);
        waitpid(pid_, &status, 0);
        close(output_);
        pid_ = -1;
        return status;
    }

private:
    pid_t pid_ = -1;
    int input_ = -1;
    int output_ = -1;
};

tenant_process::tenant_process(const std::string &instances,
                               const std::vector<std::string> &words)
{
    std::array<int, 2> in{};
    std::array<int, 2> out{};
    if (pipe2(in.data(), O_CLOEXEC) != 0 || pipe2(out.data(), O_CLOEXEC) != 0)
        return;
    std::vector<std::string> command = {emuvctl(),    "run",
                                        "--instance", instances,
                                        "--",         this_program().string()};
    command.insert(command.end(), words.begin(), words.end());
    pid_ = spawn(command, {in[0], out[1]});
    close(in[0]);
    close(out[1]);
    input_ = in[1];
    output_ = out[0];
}

class tenants : public testing::Test
{
protected:
    void SetUp() override
    {
        const char *const module = std::getenv("EMUV_KO");
        ASSERT_NE(module, nullptr) << "EMUV_KO names the module's file";
        ASSERT_EQ(setenv("EMUV_LIBCUDA", EMUV_SIM_LIBRARY, 1), 0);
        // Moving memory is in VRAM or not, from one moment to the next.
        ASSERT_EQ(setenv("EMUV_MOVE", "0", 1), 0);
        ASSERT_EQ(setenv("EMUV_SIM_DEVICES", "2", 1), 0);
        ASSERT_EQ(
            run({"load", "--module", module, "gpu_model=4070",
                 "physical_vram_mb=" + std::to_string(physical / mib),
                 "virtual_vram_mb=" + std::to_string(virtual_share / mib)}),
            0);
        control_.emplace();
    }

    void TearDown() override
    {
        control_.reset();
        EXPECT_EQ(run({"unload"}), 0) << "something still holds the instance";
    }

    emuv::instance_info ledger(int id = 0) { return control_->query(id); }

    std::optional<emuv::control> control_;
};

TEST_F(tenants, AreServedFromVramThenRamAndChargedForEveryByte)
{
    tenant_process one(100 * mib);
    ASSERT_EQ(one.answer(), CUDA_SUCCESS);
    EXPECT_EQ(ledger().physical_used_bytes, physical);
    EXPECT_EQ(ledger().virtual_used_bytes, 36 * mib);
    EXPECT_EQ(ledger().moved.spills, 1U);
    EXPECT_EQ(one.end(0), 0);
    EXPECT_EQ(ledger().physical_used_bytes, 0U);
    EXPECT_EQ(ledger().virtual_used_bytes, 0U);
    EXPECT_EQ(ledger().clients, 0U);
}

TEST_F(tenants, KeepToTheLimitsTogether)
{
    tenant_process one(100 * mib);
    ASSERT_EQ(one.answer(), CUDA_SUCCESS);
    tenant_process two(61 * mib); // 60 are left
    EXPECT_EQ(two.answer(), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(ledger().physical_used_bytes, physical);
    EXPECT_EQ(ledger().virtual_used_bytes, 36 * mib);
    tenant_process three(60 * mib);
    EXPECT_EQ(three.answer(), CUDA_SUCCESS);
    EXPECT_EQ(ledger().virtual_used_bytes, virtual_share);
}

// One frees memory in stream order, and its pool keeps that. Another one waits
// for so much VRAM, and gets it.
void expect_pools_give(emuv::control &control, std::uint64_t wanted)
{
    tenant_process one("pooling", 40 * mib);
    ASSERT_EQ(one.answer(), CUDA_SUCCESS);
    EXPECT_EQ(control.query(0).physical_used_bytes, 40 * mib);
    const int node = open("/dev/emuv0", O_RDWR | O_CLOEXEC);
    ASSERT_GE(node, 0);
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    emuv_charge all{};
    all.size = sizeof all;
    all.flags = EMUV_CHARGE_WAIT;
    all.bytes = wanted;
    all.deadline_ns =
        (static_cast<std::uint64_t>(now.tv_sec) + 120) * 1'000'000'000U;
    EXPECT_EQ(ioctl(node, EMUV_IOC_CHARGE, &all), 0) << strerror(errno);
    EXPECT_GE(control.query(0).physical_used_bytes, wanted);
    EXPECT_LE(control.query(0).physical_used_bytes, physical);
    close(node);
    if (wanted == physical) { // so the pool has given all of it
        EXPECT_EQ(control.query(0).physical_used_bytes, 0U);
    }
    EXPECT_EQ(one.end(0), 0);
    EXPECT_EQ(control.query(0).physical_used_bytes, 0U);
}

TEST_F(tenants, GiveWhatTheirPoolsKeepToWhoWaits)
{
    expect_pools_give(*control_, physical);
}

TEST_F(tenants, GiveWhatIsKeptForTheNextWhereMemoryMoves)
{
    unsetenv("EMUV_MOVE");
    ASSERT_EQ(setenv("EMUV_TEST_GOES_ON", "1", 1), 0);
    expect_pools_give(*control_, physical / 2);
    unsetenv("EMUV_TEST_GOES_ON");
}

TEST_F(tenants, PayForTheirContextsToo)
{
    ASSERT_EQ(setenv("EMUV_SIM_CONTEXT", "6M", 1), 0);
    ASSERT_EQ(setenv("EMUV_LIBNVML", EMUV_SIM_NVML, 1), 0);
    constexpr std::uint64_t each = 6 * mib + physical / 16; // and code
    {
        tenant_process one(20 * mib);
        EXPECT_EQ(one.answer(), CUDA_SUCCESS);
        EXPECT_EQ(ledger().physical_used_bytes, 20 * mib + each);
        tenant_process two(40 * mib);
        EXPECT_EQ(two.answer(), CUDA_SUCCESS);
        EXPECT_EQ(ledger().physical_used_bytes, physical);
        EXPECT_EQ(ledger().virtual_used_bytes, 60 * mib + 2 * each - physical);
        EXPECT_EQ(two.end(SIGKILL), SIGKILL);
        EXPECT_EQ(ledger().physical_used_bytes, 20 * mib + each);
        EXPECT_EQ(one.end(0), 0);
        EXPECT_EQ(ledger().physical_used_bytes, 0U);
    }
    unsetenv("EMUV_LIBNVML");
    unsetenv("EMUV_SIM_CONTEXT");
}

TEST_F(tenants, LeaveTheLedgerRightWhenOneIsKilled)
{
    tenant_process one(40 * mib);
    ASSERT_EQ(one.answer(), CUDA_SUCCESS);
    tenant_process two(100 * mib);
    ASSERT_EQ(two.answer(), CUDA_SUCCESS);
    EXPECT_EQ(ledger().physical_used_bytes, physical);
    EXPECT_EQ(ledger().virtual_used_bytes, 76 * mib);

    EXPECT_EQ(two.end(SIGKILL), SIGKILL);
    EXPECT_EQ(ledger().physical_used_bytes, 40 * mib);
    EXPECT_EQ(ledger().virtual_used_bytes, 0U);
    EXPECT_EQ(ledger().clients, 1U);

    tenant_process three(100 * mib);
    EXPECT_EQ(three.answer(), CUDA_SUCCESS) << "what it held is there again";
}

/// The rest can be allocated, though it lies between what others hold.
TEST_F(tenants, GetWhatIsLeftInOneAllocation)
{
    ASSERT_EQ(setenv("EMUV_STORE", "numa", 1), 0);
    tenant_process first(physical);
    ASSERT_EQ(first.answer(), CUDA_SUCCESS);
    tenant_process second(32 * mib);
    ASSERT_EQ(second.answer(), CUDA_SUCCESS);
    tenant_process third(8 * mib);
    ASSERT_EQ(third.answer(), CUDA_SUCCESS);
    second.end(0);
    // 32 MiB before the third's region, 56 behind it.
    tenant_process last(88 * mib);
    EXPECT_EQ(last.answer(), CUDA_SUCCESS);
    EXPECT_EQ(ledger().virtual_used_bytes, virtual_share);
    last.end(0);
    EXPECT_EQ(ledger().virtual_used_bytes, 8 * mib);
    tenant_process more(90 * mib);
    EXPECT_EQ(more.answer(), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(ledger().virtual_used_bytes, 8 * mib);
    unsetenv("EMUV_STORE");
}

/// At quiet moments, with nothing under way, the module's sums, what the
/// library says and what the programs know they hold are one.
TEST_F(tenants, AreToldByModuleAndLibraryAlikeToTheByte)
{
    const std::array seeds = {1U, 2U};
    std::array<std::optional<tenant_process>, 2> both;
    std::array<holdings, 2> held;
    for (std::size_t which = 0; which < seeds.size(); which++) {
        both[which].emplace("busy", seeds[which]);
        held[which] = both[which]->step().value_or(holdings{.wrong = 1});
    }
    auto spills = ledger().moved.spills;
    auto spilled = ledger().virtual_used_bytes;
    for (int step = 0; step < 80; step++) {
        SCOPED_TRACE(step);
        const auto which = static_cast<std::size_t>(step) % 2;
        const auto now = both[which]->step();
        ASSERT_TRUE(now) << "it has ended";
        held[which] = *now;
        EXPECT_EQ(now->wrong, 0U);
        const auto sums = ledger();
        const auto used = sums.physical_used_bytes + sums.virtual_used_bytes;
        EXPECT_EQ(used, held[0].live + held[1].live);
        EXPECT_EQ(now->total, physical + virtual_share);
        EXPECT_EQ(now->total - now->free, used);
        for (const auto &client : control_->clients(0))
            for (std::size_t of = 0; of < seeds.size(); of++)
                if (client.pid == both[of]->pid()) {
                    EXPECT_EQ(client.physical_bytes + client.virtual_bytes,
                              held[of].live);
                }
        // An allocation at a step, which spills or does not.
        EXPECT_EQ(sums.moved.spills - spills,
                  sums.virtual_used_bytes > spilled ? 1U : 0U);
        spills = sums.moved.spills;
        spilled = sums.virtual_used_bytes;
    }
    EXPECT_GT(spills, 0U) << "nothing has spilled: that has shown nothing";
}

/// A number from the environment, which scripts/test --long raises.
unsigned from_environment(const char *name, unsigned otherwise)
{
    const char *const text = std::getenv(name);
    return text != nullptr ? static_cast<unsigned>(std::stoul(text))
                           : otherwise;
}

TEST_F(tenants, AreKilledAtAnyMomentWithoutAByteLost)
{
    const auto kills = from_environment("EMUV_KILLS", 8);
    const auto seed = from_environment("EMUV_SEED", 8);
    RecordProperty("seed", static_cast<int>(seed));
    std::printf("killing %u processes, EMUV_SEED=%u\n", kills, seed);
    std::mt19937 random(seed);
    const auto before = ledger();
    tenant_process survivor("busy", seed);
    holdings held;
    for (int step = 0; step < 6; step++)
        held = survivor.step().value_or(holdings{.wrong = 1});
    unsigned working = 0;
    for (unsigned round = 0; round < kills; round++) {
        SCOPED_TRACE("kill " + std::to_string(round));
        ASSERT_EQ(setenv("EMUV_STORE", round % 2 ? "pages" : "numa", 1), 0);
        {
            tenant_process victim("busy", random());
            // Half of them while they start, half when they are at work.
            const bool at_work = random() % 2;
            if (at_work) {
                ASSERT_TRUE(victim.step()) << "it could not begin";
                working++;
            }
            victim.go('g');
            std::this_thread::sleep_for(
                std::chrono::microseconds(random() % 300'000));
            EXPECT_EQ(victim.end(SIGKILL), SIGKILL);
        }
        const auto after = ledger();
        EXPECT_EQ(after.physical_used_bytes + after.virtual_used_bytes,
                  held.live);
        EXPECT_EQ(after.unowned_bytes, 0U);
        EXPECT_EQ(after.clients, 1U);
        // The next one has all that is left: at once, or, of registered pages,
        // in buffers that fit between the survivor's.
        if (round % 2) {
            ASSERT_EQ(setenv("EMUV_TEST_PIECE", "2097152", 1), 0);
        } else {
            unsetenv("EMUV_TEST_PIECE");
        }
        tenant_process next(physical + virtual_share - held.live);
        EXPECT_EQ(next.answer(), CUDA_SUCCESS);
        EXPECT_EQ(next.end(0), 0);
        const auto now = survivor.step();
        ASSERT_TRUE(now) << "another's death has ended it";
        EXPECT_EQ(now->wrong, 0U);
        held = *now;
    }
    EXPECT_EQ(survivor.end(0), 0);
    EXPECT_GT(working, 0U);
    const auto after = ledger();
    EXPECT_EQ(after.physical_used_bytes, before.physical_used_bytes);
    EXPECT_EQ(after.virtual_used_bytes, before.virtual_used_bytes);
    EXPECT_EQ(after.resident_bytes, before.resident_bytes);
    EXPECT_EQ(after.clients, before.clients);
    unsetenv("EMUV_STORE");
    unsetenv("EMUV_TEST_PIECE");
}

std::uint64_t available_mb()
{
    std::ifstream info("/proc/meminfo");
    for (std::string word; info >> word;)
        if (word == "MemAvailable:" && info >> word)
            return std::stoull(word) / 1024;
    return 0;
}

TEST_F(tenants, AreOutOfMemoryAtTheHostsFloorAndLoseNothing)
{
    control_.reset();
    ASSERT_EQ(run({"unload"}), 0);
    constexpr std::uint64_t beyond = 512;
    const auto floor = available_mb() - beyond / 2;
    ASSERT_EQ(run({"load", "--module", std::getenv("EMUV_KO"), "gpu_model=4070",
                   "physical_vram_mb=8", "overcommit=1",
                   "virtual_vram_mb=" + std::to_string(beyond),
                   "host_floor_mb=" + std::to_string(floor)}),
              0);
    control_.emplace();
    ASSERT_EQ(setenv("EMUV_STORE", "pages", 1), 0);
    ASSERT_EQ(setenv("EMUV_TEST_PIECE", "2097152", 1), 0);
    tenant_process one(beyond * mib);
    EXPECT_EQ(one.answer(), CUDA_ERROR_OUT_OF_MEMORY);
    const auto held = ledger();
    EXPECT_EQ(held.physical_used_bytes, 8 * mib);
    EXPECT_GT(held.virtual_used_bytes, 16 * mib);
    EXPECT_LT(held.virtual_used_bytes, beyond * mib);
    EXPECT_EQ(held.resident_bytes, held.virtual_used_bytes);
    EXPECT_GT(available_mb() + 32, floor);
    EXPECT_EQ(one.end(0), 0);
    EXPECT_EQ(ledger().resident_bytes, 0U);
    unsetenv("EMUV_TEST_PIECE");
    tenant_process two(32 * mib);
    EXPECT_EQ(two.answer(), CUDA_SUCCESS) << "there is room again";
    unsetenv("EMUV_STORE");
}

TEST_F(tenants, AreToldHowMuchWasMovedForEach)
{
    ASSERT_EQ(setenv("EMUV_MOVE", "always", 1), 0);
    ASSERT_EQ(run({"create", "--gpu-model", "4070", "--physical", "64M",
                   "--virtual", "96M"}),
              0);
    tenant_process still(8 * mib, "1");
    ASSERT_EQ(still.answer(), CUDA_SUCCESS);
    tenant_process circling("1", {"circling"});
    unsetenv("EMUV_MOVE");
    // This test does not say how soon it moves. On a slow machine the next
    // round may call off what has not arrived, so the pauses grow.
    auto sums = ledger(1).moved;
    const auto is_late = [since = std::chrono::steady_clock::now()] {
        return std::chrono::steady_clock::now() - since >= longest_wait;
    };
    for (int round = 0;
         (sums.fetched_bytes == 0 || sums.evicted_bytes == 0) && !is_late();
         round++) {
        ASSERT_TRUE(circling.go('s'));
        ASSERT_EQ(circling.answer(), CUDA_SUCCESS);
        std::this_thread::sleep_for(std::chrono::milliseconds(10 * round));
        sums = ledger(1).moved;
    }
    EXPECT_GT(sums.fetched_bytes, 0U);
    EXPECT_GT(sums.evicted_bytes, 0U);
    EXPECT_GT(sums.hit_bytes, 0U);
    // Once movement that is under way has come to its end, the client tells
    // the same as the sum.
    const auto tells_the_sum = [&] {
        for (const auto &client : control_->clients(1))
            if (client.pid == circling.pid())
                return client.moved == sums;
        return false;
    };
    bool is_told = false;
    const auto ended = std::chrono::steady_clock::now();
    while (!is_told &&
           std::chrono::steady_clock::now() - ended < longest_wait) {
        sums = ledger(1).moved;
        is_told = tells_the_sum();
    }
    EXPECT_TRUE(is_told);
    for (const auto &client : control_->clients(1))
        if (client.pid != circling.pid()) {
            EXPECT_EQ(client.moved, emuv::counters{});
        }
    EXPECT_EQ(control_->clients(1).size(), 2U);
    EXPECT_EQ(ledger(0).moved, emuv::counters{});
    EXPECT_EQ(circling.end(0), 0) << "not the bytes that it had set";
    EXPECT_GE(ledger(1).moved.fetched_bytes, sums.fetched_bytes)
        << "what has ended counts in the sum";
}

TEST_F(tenants, ThatBothMoveKeepToTheirLimitsEach)
{
    ASSERT_EQ(setenv("EMUV_MOVE", "always", 1), 0);
    for (int made = 0; made < 2; made++)
        ASSERT_EQ(run({"create", "--gpu-model", "4070", "--physical", "64M",
                       "--virtual", "96M"}),
                  0);
    {
        tenant_process one("1", {"circling"});
        tenant_process two("2", {"circling"});
        unsetenv("EMUV_MOVE");
        const auto within = [&] {
            for (const int id : {1, 2}) {
                const auto now = ledger(id);
                EXPECT_LE(now.physical_used_bytes, now.physical_bytes);
                EXPECT_LE(now.virtual_used_bytes, now.virtual_bytes);
            }
        };
        const auto both_moved = [&] {
            const auto first = ledger(1).moved;
            const auto second = ledger(2).moved;
            return first.fetched_bytes > 0 && first.evicted_bytes > 0 &&
                   second.fetched_bytes > 0 && second.evicted_bytes > 0;
        };
        for (int round = 0; round < 120 && !both_moved(); round++) {
            ASSERT_TRUE(one.go('s'));
            ASSERT_TRUE(two.go('s'));
            for (int i = 0; i < 5; i++) {
                within();
                std::this_thread::sleep_for(
                    std::chrono::milliseconds(2 * round));
            }
            ASSERT_EQ(one.answer(), CUDA_SUCCESS);
            ASSERT_EQ(two.answer(), CUDA_SUCCESS);
            within();
            std::this_thread::sleep_for(std::chrono::milliseconds(10 * round));
        }
        EXPECT_TRUE(both_moved());
        // In the middle of it.
        ASSERT_TRUE(one.go('s'));
        ASSERT_TRUE(two.go('s'));
        EXPECT_NE(one.end(SIGKILL), 0);
        ASSERT_EQ(two.answer(), CUDA_SUCCESS);
        within();
        EXPECT_EQ(two.end(0), 0) << "not the bytes that it had set";
    }
    for (const int id : {1, 2}) {
        EXPECT_EQ(ledger(id).physical_used_bytes, 0U);
        EXPECT_EQ(ledger(id).virtual_used_bytes, 0U);
        EXPECT_EQ(ledger(id).clients, 0U);
    }
}

TEST_F(tenants, AreTurnedAwayWhereTheNodeIsNotTheirs)
{
    // A place where everybody may read it.
    namespace fs = std::filesystem;
    const fs::path open = "/tmp/emuv-tenants-test";
    fs::create_directories(open);
    const auto there = [&](const fs::path &file) {
        fs::copy_file(file, open / file.filename(),
                      fs::copy_options::overwrite_existing);
        return (open / file.filename()).string();
    };
    const auto library = fs::canonical(emuvctl()).parent_path() / "../cuda/lib";
    const auto program = there(this_program());
    const auto command = there(emuvctl());
    const auto preloaded = there(library / "libcuda.so.1");
    there(library / "libnvidia-ml.so.1");
    fs::create_directories(open / "sim");
    fs::copy_file(EMUV_SIM_LIBRARY, open / "sim/libcuda.so.1",
                  fs::copy_options::overwrite_existing);
    ASSERT_EQ(setenv("EMUV_LIBCUDA", (open / "sim/libcuda.so.1").c_str(), 1),
              0);

    const auto [refused, status] =
        said_to_nobody({command, "run", "--library", open.string(),
                        "--instance", "0", "--", program, "starting"});
    EXPECT_EQ(status, 125);
    EXPECT_EQ(refused.find("emuvctl: run: /dev/emuv0: not permitted"), 0U)
        << refused;
    const auto [said, started] =
        said_to_nobody({"/usr/bin/env", "LD_PRELOAD=" + preloaded,
                        "EMUV_INSTANCE=0", program, "starting"});
    EXPECT_EQ(started, 0);
    EXPECT_EQ(said, "emuV: /dev/emuv0: Permission denied\n" +
                        std::to_string(CUDA_ERROR_OPERATING_SYSTEM) + "\n");
    ASSERT_EQ(chmod("/dev/emuv0", 0666), 0);
    const auto [now, fine] =
        said_to_nobody({command, "run", "--library", open.string(),
                        "--instance", "0", "--", program, "starting"});
    EXPECT_EQ(now, "0\n") << "once it is, they are let in";
    EXPECT_EQ(fine, 0);
    // Also where an instance that lends by default is not theirs.
    ASSERT_EQ(run({"create", "--gpu-model", "4070", "--physical", "32M",
                   "--virtual", "32M"}),
              0);
    const auto lent_to = [&](const std::string &tiers) {
        return said_to_nobody({"/usr/bin/env", "LD_PRELOAD=" + preloaded,
                               "EMUV_SIM_DEVICES=2", "EMUV_INSTANCE=0,1",
                               "EMUV_TIER_DEFAULT=peer:1=16M",
                               "EMUV_TIER=" + tiers, program, "starting"})
            .first;
    };
    const std::string closed = "/dev/emuv1: Permission denied\n";
    EXPECT_EQ(lent_to(""),
              "emuV: the tier on card 1 of the instance is not used: " +
                  closed + "0\n");
    EXPECT_EQ(lent_to("none"),
              "emuV: card 1 has no instance of its own: " + closed + "0\n");
    EXPECT_EQ(lent_to("peer:1=8M"),
              "emuV: " + closed + std::to_string(CUDA_ERROR_OPERATING_SYSTEM) +
                  "\n");
    fs::remove_all(open);
}

TEST_F(tenants, HaveAnInstanceForEachDevice)
{
    ASSERT_EQ(run({"create", "--gpu-model", "4070", "--physical", "32M",
                   "--virtual", "32M"}),
              0);
    tenant_process one(40 * mib, "0,1", 1);
    ASSERT_EQ(one.answer(), CUDA_SUCCESS);
    EXPECT_EQ(ledger(0).physical_used_bytes, 0U);
    EXPECT_EQ(ledger(1).physical_used_bytes, 32 * mib);
    EXPECT_EQ(ledger(1).virtual_used_bytes, 8 * mib);
    tenant_process two(40 * mib, "0,1", 0);
    ASSERT_EQ(two.answer(), CUDA_SUCCESS);
    EXPECT_EQ(ledger(0).physical_used_bytes, 40 * mib);
    EXPECT_EQ(ledger(1).physical_used_bytes, 32 * mib);
    // Past the second's limit, with room in the first.
    tenant_process three(30 * mib, "0,1", 1);
    EXPECT_EQ(three.answer(), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(one.end(SIGKILL), SIGKILL);
    EXPECT_EQ(ledger(1).physical_used_bytes, 0U);
    EXPECT_EQ(ledger(0).physical_used_bytes, 40 * mib);
}

} // namespace

int main(int argc, char **argv)
{
    if (argc == 4 && std::strcmp(argv[1], "tenant") == 0)
        return tenant(std::strtoull(argv[2], nullptr, 10),
                      static_cast<int>(std::strtol(argv[3], nullptr, 10)));
    if (argc == 3 && std::strcmp(argv[1], "pooling") == 0)
        return pooling_tenant(std::strtoull(argv[2], nullptr, 10));
    if (argc == 2 && std::strcmp(argv[1], "circling") == 0)
        return circling_tenant();
    if (argc == 2 && std::strcmp(argv[1], "starting") == 0)
        return starting_tenant();
    if (argc == 3 && std::strcmp(argv[1], "busy") == 0)
        return busy_tenant(static_cast<unsigned>(std::stoul(argv[2])));
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
