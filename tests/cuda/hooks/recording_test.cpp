// SPDX-License-Identifier: GPL-2.0-or-later
// A recorded program's calls are on its tape, in order, however it ends.
#include "tape.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

namespace {

namespace tape = emuv::tape;
using tape::code;

constexpr std::uint64_t MiB = std::uint64_t{1} << 20;

class Recording : public testing::Test
{
protected:
    Recording()
    {
        std::string made =
            (std::filesystem::temp_directory_path() / "emuv-tape-XXXXXX")
                .string();
        if (mkdtemp(made.data()) == nullptr)
            std::abort();
        folder_ = made;
    }
    ~Recording() override { std::filesystem::remove_all(folder_); }

    /// Runs the program until it ends in this way.
    /// @return its status, as of waitpid()
    int record(const char *way, const char *more = nullptr)
    {
        const pid_t child = begin(way, more);
        int status = 0;
        EXPECT_EQ(waitpid(child, &status, 0), child);
        return status;
    }

    /// The same. It ends once its tape has so many steps, or after 10 minutes.
    int record_until(std::size_t steps, const char *way)
    {
        const pid_t child = begin(way, nullptr);
        const auto end =
            std::chrono::steady_clock::now() + std::chrono::minutes(10);
        tape::tape seen;
        tape::wrong error;
        int status = 0;
        pid_t gone = 0;
        while (gone == 0 && seen.steps.size() < steps &&
               std::chrono::steady_clock::now() < end) {
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
            seen = {};
            if (std::filesystem::exists(file()))
                tape::read_file(file().string(), seen, error);
            gone = waitpid(child, &status, WNOHANG);
        }
        EXPECT_GE(seen.steps.size(), steps) << way << ": " << text();
        std::ofstream(file().string() + ".enough").close();
        if (gone == 0) {
            EXPECT_EQ(waitpid(child, &status, 0), child);
        }
        std::filesystem::remove(file().string() + ".enough");
        return status;
    }

    pid_t begin(const char *way, const char *more)
    {
        std::vector<std::string> set = {
            "LD_PRELOAD=" EMUV_CUDA_LIBRARY, "EMUV_LIBCUDA=" EMUV_SIM_LIBRARY,
            "EMUV_SIM_VRAM=64M", "ASAN_OPTIONS=verify_asan_link_order=0",
            "EMUV_RECORD=" + file().string()};
        if (more != nullptr)
            set.emplace_back(more);
        std::vector<char *> environment;
        for (std::string &each : set)
            environment.push_back(each.data());
        for (char **each = environ; *each != nullptr; each++)
            if (std::string_view(*each).substr(0, 5) != "EMUV_" &&
                std::string_view(*each).substr(0, 4) != "ASAN")
                environment.push_back(*each);
        environment.push_back(nullptr);
        std::string program = EMUV_RECORDED_PROGRAM;
        std::string word = way;
        char *words[] = {program.data(), word.data(), nullptr};
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_addopen(&actions, 2, said().c_str(),
                                         O_WRONLY | O_CREAT | O_TRUNC, 0600);
        pid_t child = 0;
        EXPECT_EQ(posix_spawn(&child, program.c_str(), &actions, nullptr, words,
                              environment.data()),
                  0);
        posix_spawn_file_actions_destroy(&actions);
        return child;
    }

    std::filesystem::path file() const { return folder_ / "tape"; }
    std::filesystem::path said() const { return folder_ / "said"; }
    std::filesystem::path folder() const { return folder_; }

    std::string text() const
    {
        std::ifstream in(said());
        return std::string(std::istreambuf_iterator<char>(in), {});
    }

    tape::tape read() const
    {
        tape::tape out;
        tape::wrong error;
        EXPECT_TRUE(tape::read_file(file().string(), out, error)) << error.why;
        return out;
    }

private:
    std::filesystem::path folder_;
};

std::vector<code> codes_of(const tape::tape &of)
{
    std::vector<code> out;
    for (const tape::step &each : of.steps)
        out.push_back(each.what);
    return out;
}

const std::vector<code> expected = {
    code::allocate,    code::allocate,     code::copy,
    code::fill,        code::launch,       code::event_record,
    code::event_wait,  code::launch,       code::synchronize,
    code::allocate,    code::launch,       code::free,
    code::graph,       code::graph_launch, code::graph_launch,
    code::synchronize, code::graph_gone,   code::copy,
    code::free};

TEST_F(Recording, HasWhatTheProgramDidInOrder)
{
    ASSERT_EQ(record("exit"), 0) << text();
    EXPECT_EQ(text(), "");
    const tape::tape is = read();
    EXPECT_TRUE(is.ended);
    EXPECT_FALSE(is.cut);
    EXPECT_EQ(is.said("program"), "emuv_cuda_recorded");
    EXPECT_NE(is.said("card"), "");
    ASSERT_EQ(codes_of(is), expected);
    ASSERT_EQ(is.allocations.size(), 3u);
    EXPECT_EQ(is.allocations[0].bytes, 8 * MiB);
    EXPECT_EQ(is.allocations[1].bytes, 4 * MiB);
    EXPECT_EQ(is.allocations[2].kind, tape::memory_kind::ordered);
    EXPECT_EQ(is.allocations[2].gone, 11u);
    EXPECT_EQ(is.allocations[1].gone, 18u);
    EXPECT_EQ(is.allocations[0].gone, SIZE_MAX);

    EXPECT_EQ(is.steps[2].to, (tape::place{0, 0}));
    EXPECT_EQ(is.steps[2].way, tape::copy_kind::to_device);
    EXPECT_EQ(is.steps[2].bytes, MiB);
    EXPECT_TRUE(is.steps[2].waits);
    EXPECT_EQ(is.steps[3].to, (tape::place{1, 0}));
    EXPECT_EQ(is.steps[3].bytes, 4 * MiB);

    const tape::step &launch = is.steps[4];
    ASSERT_EQ(is.names_of(launch).size(), 1u);
    EXPECT_EQ(is.names_of(launch)[0], (tape::place{0, 4096}));
    EXPECT_EQ(launch.stream, tape::legacy_stream);
    EXPECT_EQ(is.kernels.at(is.shapes.at(launch.which).kernel), "add");
    EXPECT_EQ(is.shapes[launch.which].grid[0], 4u);
    EXPECT_EQ(is.shapes[launch.which].block[0], 256u);
    EXPECT_EQ(is.steps[7].stream, tape::first_own_stream);
    EXPECT_EQ(is.steps[6].event, is.steps[5].event);
    // Of one kernel with two grids.
    EXPECT_NE(is.steps[7].which, launch.which);
    EXPECT_EQ(is.steps[10].which, launch.which);
    EXPECT_EQ(is.kernels.size(), 1u);

    ASSERT_EQ(is.graphs.size(), 1u);
    ASSERT_EQ(is.graphs[0].nodes.size(), 2u);
    EXPECT_EQ(is.graphs[0].nodes[0].kind, tape::node_kind::kernel);
    EXPECT_EQ(is.graphs[0].nodes[0].names[0], (tape::place{0, 0}));
    EXPECT_EQ(is.graphs[0].nodes[1].kind, tape::node_kind::fill);
    EXPECT_EQ(is.graphs[0].nodes[1].to, (tape::place{1, MiB}));
    EXPECT_EQ(is.graphs[0].nodes[1].bytes, MiB);
}

TEST_F(Recording, TimesLaunchesOnTheDevice)
{
    ASSERT_EQ(record("exit"), 0) << text();
    const tape::tape is = read();
    // All that had ended by the program's last wait.
    EXPECT_EQ(is.timed, 5u);
    for (const tape::step &each : is.steps)
        if (each.what == code::launch || each.what == code::graph_launch) {
            EXPECT_GT(each.ns, 0u);
        }
}

TEST_F(Recording, OfAProgramThatIsKilledIsAValidBeginning)
{
    for (const std::string_view way :
         {"_exit", "kill", "late_exit", "late_kill"}) {
        std::filesystem::remove(file());
        // Calls that are long past are on it.
        const int status = way.substr(0, 4) == "late"
                               ? record_until(expected.size() - 1, way.data())
                               : record(way.data());
        EXPECT_EQ(status,
                  way.find("kill") != std::string_view::npos ? SIGKILL : 0);
        const tape::tape is = read();
        EXPECT_FALSE(is.ended);
        const std::vector<code> codes = codes_of(is);
        const std::size_t common = std::min(codes.size(), expected.size());
        EXPECT_TRUE(std::equal(
            codes.begin(), codes.begin() + static_cast<std::ptrdiff_t>(common),
            expected.begin()))
            << way;
    }
}

TEST_F(Recording, OfAProgramThatForksIsTheParents)
{
    ASSERT_EQ(record("fork"), 0) << text();
    EXPECT_EQ(codes_of(read()), expected);
    EXPECT_TRUE(read().ended);
}

TEST_F(Recording, TakesLaunchesOfManyThreads)
{
    ASSERT_EQ(record("threads"), 0) << text();
    EXPECT_EQ(tape::summarize(read()).launches, 3u + 4 * 500);
}

TEST_F(Recording, HasThePartsThatAnAllocatorReports)
{
    ASSERT_EQ(record("parts"), 0) << text();
    EXPECT_EQ(text(), "");
    const tape::tape is = read();
    ASSERT_EQ(is.allocations.size(), 5u);
    for (const std::size_t i : {3, 4})
        EXPECT_EQ(is.allocations[i].kind, tape::memory_kind::part);
    EXPECT_EQ(is.allocations[4].of, (tape::place{1, 2 * MiB}));
    EXPECT_EQ(is.names.back(), (tape::place{4, 4096}));
    // The first is taken back, and the second ends with its allocation.
    const std::size_t last = is.steps.size() - 1;
    EXPECT_EQ(is.allocations[3].gone, last - 2);
    EXPECT_EQ(is.allocations[4].gone, last - 1);
    EXPECT_EQ(is.allocations[1].gone, last);
}

TEST_F(Recording, HasWhatTheNodesOfAGraphHaveBecomeBeforeItsNextLaunch)
{
    ASSERT_EQ(record("changes"), 0) << text();
    EXPECT_EQ(text(), "");
    const tape::tape is = read();
    const std::vector<code> all = codes_of(is);
    const std::vector<code> wanted = {code::graph,         code::graph_launch,
                                      code::graph_changed, code::graph_launch,
                                      code::graph_launch,  code::synchronize};
    const auto found =
        std::find_end(all.begin(), all.end(), wanted.begin(), wanted.end());
    ASSERT_NE(found, all.end());
    // A version for each of two graphs, and one after the changes.
    ASSERT_EQ(is.graphs.size(), 3u);
    for (const std::uint32_t allocation : {0u, 1u}) {
        const auto nodes = tape::nodes_of(is, 1 + allocation);
        ASSERT_EQ(nodes.size(), 2u);
        std::vector<tape::place> named;
        for (const tape::node *each : nodes)
            if (each->kind == tape::node_kind::kernel)
                named.insert(named.end(), each->names.begin(),
                             each->names.end());
            else
                named.push_back(each->to);
        std::sort(named.begin(), named.end(), [](auto &one, auto &other) {
            return one.offset < other.offset;
        });
        EXPECT_EQ(named[0], (tape::place{allocation, allocation * 4096u}));
        EXPECT_EQ(named[1], (tape::place{allocation, MiB}));
    }
}

TEST_F(Recording, LeavesAnotherProcessesTapeAlone)
{
    ASSERT_EQ(record("exit"), 0);
    const auto bytes = std::filesystem::file_size(file());
    ASSERT_EQ(record("exit"), 0);
    EXPECT_EQ(std::filesystem::file_size(file()), bytes);
    std::size_t tapes = 0;
    for (const auto &each : std::filesystem::directory_iterator(folder()))
        tapes += each.path().filename().string().substr(0, 4) == "tape" ? 1 : 0;
    EXPECT_EQ(tapes, 2u);
    EXPECT_NE(text().find("another process's tape"), std::string::npos)
        << text();
}

TEST_F(Recording, GoesBesideAFileThatAnotherProcessWrites)
{
    // Locked, and empty as yet.
    const int other = open(file().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    ASSERT_GE(other, 0);
    ASSERT_EQ(flock(other, LOCK_EX), 0);
    ASSERT_EQ(record("exit"), 0);
    EXPECT_EQ(std::filesystem::file_size(file()), 0u);
    EXPECT_NE(text().find(file().string() + "."), std::string::npos) << text();
    close(other);
    ASSERT_EQ(record("exit"), 0);
    EXPECT_TRUE(read().ended);
}

TEST_F(Recording, GoesWithoutALimit)
{
    EXPECT_NE(record("exit", "EMUV_PHYSICAL=32M"), 0);
    EXPECT_NE(text().find("EMUV_RECORD"), std::string::npos) << text();
    EXPECT_FALSE(std::filesystem::exists(file()));
}

} // namespace
