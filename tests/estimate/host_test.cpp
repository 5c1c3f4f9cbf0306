// SPDX-License-Identifier: GPL-2.0-or-later
// The host's side of a job.
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <stdlib.h>

#include <host.hpp>

namespace emuv::estimate {
namespace {

constexpr double gib = 1 << 30;

TEST(host, needs_more_with_each_process_worker_and_spilled_byte)
{
    const model of = *find_builtin("resnet-50");
    job is;
    is.batch = 64;
    const needs has = compute(of, is);
    const auto likely = [&](double processes, double workers, double spilled) {
        return on_host(of, is, has, {processes, workers, 2},
                       range::exactly(spilled))
            .all.likely;
    };
    EXPECT_GT(likely(4, 0, 0), 3.9 * likely(1, 0, 0));
    EXPECT_GT(likely(1, 8, 0), likely(1, 4, 0));
    EXPECT_NEAR(likely(4, 0, 5 * gib) - likely(4, 0, 0), 20 * gib, gib);
}

// Four cards and 44 GB of RAM.
TEST(safe_workers, are_the_most_that_the_high_answer_allows)
{
    const model of = *find_builtin("resnet-50");
    job is;
    is.batch = 256;
    const needs has = compute(of, is);
    const host_job with = {4, 0, 2};
    const auto most = safe_workers(of, is, has, with, {}, 44 * gib);
    ASSERT_TRUE(most);
    EXPECT_GT(*most, 0);
    const auto high = [&](double workers) {
        return on_host(of, is, has, {4, workers, 2}, {}).all.high;
    };
    EXPECT_LE(high(*most), 44 * gib);
    EXPECT_GT(high(*most + 1), 44 * gib);
    EXPECT_FALSE(safe_workers(of, is, has, with, {}, gib));
}

class control_groups : public testing::Test
{
protected:
    void SetUp() override
    {
        std::string name =
            (std::filesystem::temp_directory_path() / "groups-XXXXXX").string();
        ASSERT_NE(::mkdtemp(name.data()), nullptr);
        root_ = name;
    }
    void TearDown() override { std::filesystem::remove_all(root_); }

    void write(const char *path, const char *content) const
    {
        std::filesystem::create_directories((root_ / path).parent_path());
        std::ofstream(root_ / path) << content;
    }
    [[nodiscard]] std::optional<std::uint64_t> limit() const
    {
        return cgroup_limit(root_ / "proc", root_ / "sys");
    }

    std::filesystem::path root_;
};

TEST_F(control_groups, of_version_2_limit_by_the_smallest_on_the_way_up)
{
    EXPECT_EQ(limit(), std::nullopt);
    write("proc/self/cgroup", "0::/user/job\n");
    write("sys/fs/cgroup/user/job/memory.max", "max\n");
    EXPECT_EQ(limit(), std::nullopt);
    write("sys/fs/cgroup/user/memory.max", "44000000000\n");
    EXPECT_EQ(limit(), 44000000000U);
    write("sys/fs/cgroup/user/job/memory.max", "1000\n");
    EXPECT_EQ(limit(), 1000U);
}

TEST_F(control_groups, of_version_1_limit_too)
{
    write("proc/self/cgroup", "5:cpu:/a\n4:memory:/job\n0::/\n");
    write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "2048\n");
    write("sys/fs/cgroup/memory/memory.limit_in_bytes",
          "9223372036854771712\n");
    EXPECT_EQ(limit(), 2048U);
}

TEST_F(control_groups, that_lead_elsewhere_are_not_followed)
{
    write("proc/self/cgroup", "0::/../../secret\n::\nno colons\n");
    write("secret/memory.max", "1\n");
    EXPECT_EQ(limit(), std::nullopt);
}

} // namespace
} // namespace emuv::estimate
