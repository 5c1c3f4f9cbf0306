// SPDX-License-Identifier: GPL-2.0-or-later
// Tenants of one instance, each a process that emuvctl run started over the
// simulated CUDA driver: the module's ledger holds their limits together, and
// is right after one is killed. Needs the module: runs in a guest.
#include <emuv/control.hpp>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <cuda.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/emuv.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

constexpr std::uint64_t mib = 1 << 20;
constexpr std::uint64_t physical = 64 * mib;
constexpr std::uint64_t virtual_share = 96 * mib;

template <typename Function>
Function *cuda(void *library, const char *name)
{
    return reinterpret_cast<Function *>(dlsym(library, name));
}

// --- the tenant: allocates so many MiB of device memory, fills it, answers
// with the CUresult, and holds it until its standard input ends.

int tenant(std::uint64_t bytes)
{
    void *const library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == nullptr)
        return 2;
    CUdevice device = 0;
    CUcontext context = nullptr;
    CUdeviceptr place = 0;
    if (cuda<CUresult(unsigned)>(library, "cuInit")(0) != CUDA_SUCCESS ||
        cuda<CUresult(CUdevice *, int)>(library, "cuDeviceGet")(&device, 0) !=
            CUDA_SUCCESS ||
        cuda<CUresult(CUcontext *, CUdevice)>(
            library, "cuDevicePrimaryCtxRetain")(&context, device) !=
            CUDA_SUCCESS ||
        cuda<CUresult(CUcontext)>(library, "cuCtxSetCurrent")(context) !=
            CUDA_SUCCESS)
        return 3;
    CUresult result = cuda<CUresult(CUdeviceptr *, std::size_t)>(
        library, "cuMemAlloc_v2")(&place, bytes);
    if (result == CUDA_SUCCESS)
        result = cuda<CUresult(CUdeviceptr, unsigned char, std::size_t)>(
            library, "cuMemsetD8_v2")(place, 0x5a, bytes);
    const auto answer = static_cast<unsigned char>(result);
    if (write(STDOUT_FILENO, &answer, 1) != 1)
        return 4;
    char byte = 0;
    while (read(STDIN_FILENO, &byte, 1) > 0) {
    }
    return 0;
}

// --- the test's side of it

int spawn(const std::vector<std::string> &words, int in, int out)
{
    const pid_t child = fork();
    if (child == 0) {
        if (in >= 0)
            dup2(in, STDIN_FILENO);
        if (out >= 0)
            dup2(out, STDOUT_FILENO);
        close_range(3, ~0U, 0);
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
    waitpid(spawn(words, -1, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

class tenant_process
{
public:
    explicit tenant_process(std::uint64_t bytes)
    {
        std::array<int, 2> in{};
        std::array<int, 2> out{};
        if (pipe2(in.data(), O_CLOEXEC) != 0 ||
            pipe2(out.data(), O_CLOEXEC) != 0)
            return;
        pid_ = spawn({emuvctl(), "run", "--instance", "0", "--",
                      std::filesystem::read_symlink("/proc/self/exe").string(),
                      "tenant", std::to_string(bytes)},
                     in[0], out[1]);
        close(in[0]);
        close(out[1]);
        input_ = in[1];
        output_ = out[0];
    }
    tenant_process(const tenant_process &) = delete;
    tenant_process &operator=(const tenant_process &) = delete;
    ~tenant_process() { end(0); }

    /// What its allocation gave; nothing if it ended before that.
    std::optional<CUresult> answer() const
    {
        unsigned char result = 0;
        if (read(output_, &result, 1) != 1)
            return std::nullopt;
        return static_cast<CUresult>(result);
    }

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

class tenants : public testing::Test
{
protected:
    void SetUp() override
    {
        const char *const module = std::getenv("EMUV_KO");
        ASSERT_NE(module, nullptr) << "EMUV_KO names the module's file";
        ASSERT_EQ(setenv("EMUV_LIBCUDA", EMUV_SIM_LIBRARY, 1), 0);
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

    emuv::instance_info ledger() { return control_->query(0); }

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

TEST_F(tenants, AreKilledAtAnyMomentWithoutAByteLost)
{
    tenant_process one(10 * mib);
    ASSERT_EQ(one.answer(), CUDA_SUCCESS);
    for (int round = 0; round < 20; round++) {
        tenant_process two(100 * mib);
        std::this_thread::sleep_for(std::chrono::milliseconds(round * 40));
        two.end(SIGKILL);
        EXPECT_EQ(ledger().physical_used_bytes, 10 * mib) << round;
        EXPECT_EQ(ledger().virtual_used_bytes, 0U) << round;
        EXPECT_EQ(ledger().clients, 1U) << round;
    }
}

} // namespace

int main(int argc, char **argv)
{
    if (argc == 3 && std::strcmp(argv[1], "tenant") == 0)
        return tenant(std::strtoull(argv[2], nullptr, 10));
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
