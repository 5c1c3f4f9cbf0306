// SPDX-License-Identifier: GPL-2.0-or-later
// Kernels that write where they were given no address, beside work that has
// memory move. Each such write is kept, or it ends the program. None is lost.
//
// A fault ends the context for good, so each try is a process of its own.
// Usage:
//   emuv_cuda_stray TRIES WAY
//     keep   strays add to words of their own
//     undo   each stray is undone by a second one later, so that memory looks
//            as it did before
//     read   strays read, and what they read is compared.
//     again  as keep, until a try ends its program. The next ones get through.
// It prints what became of the tries, and fails where any lost a write.
#include "driver.hpp"
#include "kernels.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

namespace harness {
namespace {

// How a try ends, as the process's exit status.
enum outcome
{
    kept,
    loud, // the context ended
    lost, // a write, or a wrong byte was read
    broken,
};

constexpr std::size_t MiB = std::size_t{1} << 20;
constexpr std::size_t buffers = 8;
constexpr std::size_t places = 64; // in each, at its end, for strays alone
constexpr std::size_t place_words = 64;

std::size_t number_from(const char *name, std::size_t otherwise)
{
    const char *text = std::getenv(name);
    return text && *text ? std::strtoull(text, nullptr, 10) : otherwise;
}

// A driver's answer that ends the try.
struct ended
{
    outcome as;
};

void check(CUresult answer, const char *what)
{
    if (answer == CUDA_SUCCESS)
        return;
    if (answer == CUDA_ERROR_ILLEGAL_ADDRESS)
        throw ended{loud};
    std::fprintf(stderr, "stray: %s: error %d\n", what, answer);
    throw ended{broken};
}
#define NEED(call) check(cuda().call, #call)

class trial
{
public:
    explicit trial(std::string_view way, unsigned number)
        : undoes_(way == "undo"), reads_(way == "read"), number_(number)
    {}

    outcome run()
    {
        CUcontext context = nullptr;
        NEED(cuDevicePrimaryCtxRetain(&context, 0));
        NEED(cuCtxSetCurrent(context));
        CUmodule module = nullptr;
        NEED(cuModuleLoadData(&module, kernel_image(cuda().simulated)));
        NEED(cuModuleGetFunction(&fill_, module, "fill"));
        NEED(cuModuleGetFunction(&add_, module, "add"));
        NEED(cuModuleGetFunction(&stray_, module, "add_by_offset"));
        NEED(cuModuleGetFunction(&sum_, module, "checksum_by_offset"));
        NEED(cuMemAlloc(&base_, 4096));
        NEED(cuMemsetD8(base_, 0, 4096));
        const std::size_t bytes = 2 *
                                  number_from("EMUV_TEST_PHYSICAL", 64 * MiB) /
                                  buffers / (2 * MiB) * (2 * MiB);
        words_ = bytes / 4;
        for (std::size_t i = 0; i < buffers; ++i) {
            NEED(cuMemAlloc(&at_[i], bytes));
            launch(fill_, at_[i], words_, seed(i), nullptr, nullptr);
        }
        NEED(cuCtxSynchronize());
        for (CUstream *each : {&own_, &other_})
            NEED(cuStreamCreate(each, CU_STREAM_NON_BLOCKING));
        std::atomic<bool> done = false;
        std::atomic<outcome> strays = kept;
        std::thread beside([&] {
            try {
                NEED(cuCtxSetCurrent(context));
                std::mt19937 random(seed_of(2));
                while (!done)
                    stray(random);
            } catch (const ended &how) {
                strays = how.as;
            }
        });
        outcome mine = kept;
        try {
            for (int round = 0; round < 60; ++round)
                for (std::size_t i = 0; i < buffers; ++i)
                    touch(i);
            NEED(cuStreamSynchronize(own_));
        } catch (const ended &how) {
            mine = how.as;
        }
        done = true;
        beside.join();
        if (mine != kept || strays != kept)
            return std::max(mine, strays.load());
        return compare();
    }

private:
    struct stray_write
    {
        std::size_t buffer;
        std::size_t place;
        std::uint32_t value;
    };

    unsigned seed_of(unsigned what) const
    {
        return static_cast<unsigned>(number_from("EMUV_TEST_SEED", 0)) +
               100 * number_ + what;
    }
    static std::uint32_t seed(std::size_t buffer)
    {
        return static_cast<std::uint32_t>(1000 * buffer + 7);
    }
    std::size_t first_word(std::size_t place) const
    {
        return words_ - (places - place) * place_words;
    }

    static void launch(CUfunction what, CUdeviceptr at, std::uint64_t count,
                       std::uint32_t value, const std::uint64_t *rest,
                       CUstream stream)
    {
        std::uint64_t fourth = rest != nullptr ? *rest : 0;
        void *params[] = {&at, &count, &value, &fourth};
        NEED(cuLaunchKernel(
            what,
            static_cast<unsigned>((count + block_threads - 1) / block_threads),
            1, 1, block_threads, 1, 1, 0, stream, params, nullptr));
    }

    // The work that has memory move: in a circle, all but the strays' places.
    void touch(std::size_t i)
    {
        const auto value = undoes_ ? 0 : static_cast<std::uint32_t>(i + 1);
        launch(add_, at_[i], words_ - places * place_words, value, nullptr,
               own_);
        added_[i] += value;
    }

    void write(const stray_write &what)
    {
        const std::uint64_t offset =
            at_[what.buffer] + 4 * first_word(what.place) - base_;
        launch(stray_, base_, place_words, what.value, &offset, other_);
        NEED(cuStreamSynchronize(other_));
        strayed_[what.buffer][what.place] += what.value;
    }

    void stray(std::mt19937 &random)
    {
        const stray_write next{random() % buffers, random() % places,
                               static_cast<std::uint32_t>(random() % 7 + 1)};
        if (reads_) {
            read(next);
            return;
        }
        write(next);
        if (!undoes_)
            return;
        usleep(static_cast<useconds_t>(random() % 5000));
        stray_write back = next;
        back.value = 0 - next.value;
        write(back);
    }

    void read(const stray_write &where)
    {
        const std::size_t first = first_word(where.place);
        const std::uint64_t offset = at_[where.buffer] + 4 * first - base_;
        CUdeviceptr sum = base_ + 2048;
        NEED(cuMemsetD8Async(sum, 0, 8, other_));
        CUdeviceptr from = base_;
        std::uint64_t count = place_words;
        std::uint64_t off = offset;
        void *params[] = {&from, &count, &sum, &off};
        NEED(cuLaunchKernel(sum_, 1, 1, 1, block_threads, 1, 1, 0, other_,
                            params, nullptr));
        std::uint64_t got = 0;
        NEED(cuMemcpyDtoHAsync(&got, sum, 8, other_));
        NEED(cuStreamSynchronize(other_));
        std::uint64_t wanted = 0;
        for (std::size_t i = 0; i < place_words; ++i)
            wanted += std::uint64_t{pattern(seed(where.buffer), first + i)} *
                      (2 * i + 1);
        if (got != wanted)
            throw ended{lost};
    }

    outcome compare()
    {
        std::vector<std::uint32_t> got(words_);
        for (std::size_t i = 0; i < buffers; ++i) {
            NEED(cuMemcpyDtoH(got.data(), at_[i], words_ * 4));
            for (std::size_t word = 0; word < words_; ++word) {
                const bool is_place = word >= first_word(0);
                const std::uint32_t added =
                    is_place ? strayed_[i][(word - first_word(0)) / place_words]
                             : added_[i];
                const std::uint32_t wanted = pattern(seed(i), word) + added;
                if (got[word] == wanted)
                    continue;
                std::fprintf(stderr,
                             "stray: %s word %zu of buffer %zu is %u "
                             "more than it was, not %u\n",
                             is_place ? "a stray's" : "the program's", word, i,
                             got[word] - pattern(seed(i), word), added);
                return lost;
            }
        }
        return kept;
    }

    const bool undoes_;
    const bool reads_;
    const unsigned number_;
    CUfunction fill_ = nullptr, add_ = nullptr, stray_ = nullptr,
               sum_ = nullptr;
    CUstream own_ = nullptr, other_ = nullptr;
    CUdeviceptr base_ = 0; // of what strays are given
    std::array<CUdeviceptr, buffers> at_{};
    std::size_t words_ = 0;
    std::array<std::uint32_t, buffers> added_{};
    std::array<std::array<std::uint32_t, places>, buffers> strayed_{};
};

int try_once(std::string_view way, unsigned number)
{
    try {
        return trial(way, number).run();
    } catch (const ended &how) {
        return how.as;
    }
}

// The text of a file.
std::string text_of(const std::string &file)
{
    std::ifstream in(file);
    return {std::istreambuf_iterator<char>(in), {}};
}

// The tries of one call, with a cache folder of their own.
class tries
{
public:
    explicit tries(const char *way) : way_(way)
    {
        const char *const base = std::getenv("TMPDIR");
        folder_ =
            std::string(base != nullptr ? base : "/tmp") + "/emuv-stray.XXXXXX";
        if (mkdtemp(folder_.data()) == nullptr)
            std::exit(broken);
        said_ = folder_ + "/stderr";
    }
    tries(const tries &) = delete;
    tries &operator=(const tries &) = delete;
    ~tries()
    {
        std::error_code ignored;
        std::filesystem::remove_all(folder_, ignored);
    }

    // @param remembers  kernels that a fault was seen with before
    outcome run(unsigned number, bool remembers)
    {
        if (!remembers)
            std::filesystem::remove_all(folder_ + "/cache");
        setenv("XDG_CACHE_HOME", (folder_ + "/cache").c_str(), 1);
        const std::string as = std::to_string(number);
        const char *const arguments[] = {"emuv_cuda_stray", "try", way_,
                                         as.c_str(), nullptr};
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, said_.c_str(),
                                         O_WRONLY | O_CREAT | O_TRUNC, 0600);
        pid_t child = 0;
        int status = 0;
        const bool ran =
            posix_spawn(&child, "/proc/self/exe", &actions, nullptr,
                        const_cast<char *const *>(arguments), environ) == 0 &&
            waitpid(child, &status, 0) == child;
        posix_spawn_file_actions_destroy(&actions);
        auto how = ran && WIFEXITED(status) && WEXITSTATUS(status) <= broken
                       ? static_cast<outcome>(WEXITSTATUS(status))
                       : broken;
        const std::string said = text_of(said_);
        // A line names the kernel that ends the program.
        if (how == loud && said.find("_by_offset") == std::string::npos)
            how = broken;
        if (how >= lost)
            std::fprintf(stderr, "try %u:\n%s", number, said.c_str());
        return how;
    }

private:
    const char *const way_;
    std::string folder_;
    std::string said_;
};

int try_often(unsigned count, const char *way)
{
    tries all(way);
    std::array<unsigned, broken + 1> came_to{};
    for (unsigned i = 0; i < count; ++i)
        ++came_to[all.run(i, false)];
    std::printf("%u kept, %u loud, %u lost, %u broken\n", came_to[kept],
                came_to[loud], came_to[lost], came_to[broken]);
    return came_to[lost] + came_to[broken] == 0 && count > 0 ? 0 : 1;
}

// Until one is loud: the next ones get through.
int try_again(unsigned count)
{
    tries all("keep");
    for (unsigned i = 0; i < count; ++i) {
        const outcome how = all.run(i, true);
        if (how == kept)
            continue;
        if (how != loud)
            return 1;
        for (unsigned next = 0; next < 3; ++next)
            if (all.run(i, true) != kept)
                return 1;
        std::printf("loud, and then kept\n");
        return 0;
    }
    std::printf("none was loud\n");
    return 1;
}

} // namespace
} // namespace harness

int main(int count, char **arguments)
{
    if (count == 4 && std::string_view(arguments[1]) == "try")
        return harness::try_once(
            arguments[2], static_cast<unsigned>(std::atoi(arguments[3])));
    if (count == 3) {
        const auto tries = static_cast<unsigned>(std::atoi(arguments[1]));
        return std::string_view(arguments[2]) == "again"
                   ? harness::try_again(tries)
                   : harness::try_often(tries, arguments[2]);
    }
    std::fprintf(stderr, "usage: %s TRIES keep|undo|read|again\n",
                 arguments[0]);
    return 2;
}
