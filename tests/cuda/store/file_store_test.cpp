// SPDX-License-Identifier: GPL-2.0-or-later
// The file for memory that has no room in system RAM: what it keeps, and what
// it says of a disk that fails.
#include "base/size.hpp"
#include "store/file_store.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace emuv::cuda;

namespace {

constexpr std::uint64_t piece_bytes = 64 << 10;

// Memory as O_DIRECT wants it.
class piece
{
public:
    explicit piece(unsigned char value, std::uint64_t bytes = piece_bytes)
        : bytes_(bytes), at_(static_cast<unsigned char *>(
                             std::aligned_alloc(file_store::alignment, bytes)))
    {
        for (std::uint64_t i = 0; i < bytes; i++)
            at_[i] = static_cast<unsigned char>(value + i % 251);
    }
    piece(const piece &) = delete;
    piece &operator=(const piece &) = delete;
    ~piece() { std::free(at_); }

    unsigned char *data() { return at_; }
    bool operator==(const piece &other) const
    {
        return bytes_ == other.bytes_ &&
               std::memcmp(at_, other.at_, bytes_) == 0;
    }

private:
    const std::uint64_t bytes_;
    unsigned char *const at_;
};

// A folder of the test's own, in a file system that has files without a name.
class FileStore : public testing::TestWithParam<const char *>
{
protected:
    void SetUp() override
    {
        folder_ = std::string(GetParam()) + "/emuv-file-store-XXXXXX";
        ASSERT_NE(mkdtemp(folder_.data()), nullptr);
    }
    void TearDown() override
    {
        EXPECT_TRUE(is_empty());
        std::filesystem::remove_all(folder_);
    }

    bool is_empty() const { return std::filesystem::is_empty(folder_); }

    std::string folder_;
};

TEST_P(FileStore, WhatWasWrittenIsRead)
{
    file_store file;
    ASSERT_EQ(file.open(folder_.c_str(), 4 * chunk_bytes), 0);
    const std::uint64_t first = file.take(chunk_bytes);
    const std::uint64_t second = file.take(2 * chunk_bytes);
    ASSERT_NE(first, 0U);
    ASSERT_NE(second, 0U);
    piece one(1);
    piece other(77);
    piece last(5);
    EXPECT_EQ(file.write(first, 0, one.data(), piece_bytes), 0);
    EXPECT_EQ(file.write(second, 0, other.data(), piece_bytes), 0);
    EXPECT_EQ(file.write(second, 2 * chunk_bytes - piece_bytes, last.data(),
                         piece_bytes),
              0);
    piece got(0);
    EXPECT_EQ(file.read(first, 0, got.data(), piece_bytes), 0);
    EXPECT_TRUE(got == one);
    EXPECT_EQ(file.read(second, 0, got.data(), piece_bytes), 0);
    EXPECT_TRUE(got == other);
    EXPECT_EQ(file.read(second, 2 * chunk_bytes - piece_bytes, got.data(),
                        piece_bytes),
              0);
    EXPECT_TRUE(got == last);
    EXPECT_TRUE(is_empty()) << "the file has no name";
}

TEST_P(FileStore, NothingIsLeftOfAProcessThatIsKilled)
{
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    const pid_t child = fork();
    if (child == 0) {
        file_store file;
        piece one(1);
        const bool written =
            file.open(folder_.c_str(), chunk_bytes) == 0 &&
            file.write(file.take(chunk_bytes), 0, one.data(), piece_bytes) == 0;
        const char word = written ? 'y' : 'n';
        if (write(ready[1], &word, 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    char word = 0;
    EXPECT_EQ(read(ready[0], &word, 1), 1);
    EXPECT_EQ(word, 'y');
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    EXPECT_TRUE(is_empty());
    close(ready[0]);
    close(ready[1]);
}

INSTANTIATE_TEST_SUITE_P(Of, FileStore, testing::Values("/var/tmp", "/dev/shm"),
                         [](const auto &which) {
                             return std::string(which.param) == "/dev/shm"
                                        ? "Memory"
                                        : "Disk";
                         });

// The answers of system calls, in order: an errno above 0, or how many bytes
// are moved at most. With nothing left, all is moved.
struct script
{
    struct step
    {
        int error = 0;
        ssize_t most = 0;
    };
    static inline std::deque<step> reads;
    static inline std::deque<step> writes;
    static inline std::vector<int> opens; // their flags
    static inline int open_error = 0;
    static inline int refused_flags = 0;
    static inline int buffered = 0;
    static inline std::uint64_t file = 0; // that the descriptor is of
    static inline std::vector<unsigned char> disk;

    static void reset()
    {
        reads.clear();
        writes.clear();
        opens.clear();
        open_error = refused_flags = buffered = 0;
        file = 7;
        disk.assign(8 * chunk_bytes, 0);
    }

    // @return -1 with errno; else how many bytes
    static ssize_t next(std::deque<step> &of, std::size_t bytes)
    {
        if (of.empty())
            return static_cast<ssize_t>(bytes);
        const step now = of.front();
        of.pop_front();
        if (now.error != 0) {
            errno = now.error;
            return -1;
        }
        return std::min(now.most, static_cast<ssize_t>(bytes));
    }
};

const file_calls scripted = {
    .open =
        [](const char *, int flags) {
            script::opens.push_back(flags);
            if (script::open_error != 0 &&
                (flags & script::refused_flags) == script::refused_flags) {
                errno = script::open_error;
                return -1;
            }
            return 1000;
        },
    .close = [](int) { return 0; },
    .pread =
        [](int, void *to, std::size_t bytes, std::int64_t offset) {
            const ssize_t moved = script::next(script::reads, bytes);
            if (moved > 0)
                std::memcpy(to, script::disk.data() + offset,
                            static_cast<std::size_t>(moved));
            return moved;
        },
    .pwrite =
        [](int, const void *from, std::size_t bytes, std::int64_t offset) {
            const ssize_t moved = script::next(script::writes, bytes);
            if (moved > 0)
                std::memcpy(script::disk.data() + offset, from,
                            static_cast<std::size_t>(moved));
            return moved;
        },
    .buffer =
        [](int) {
            script::buffered++;
            return 0;
        },
    .identify =
        [](int, file_identity &is) {
            is = {1, script::file};
            return true;
        },
    .keep = [](int) -> void * { return &script::disk; },
    .let_go = [](void *) {},
};

class FailingFile : public testing::Test
{
protected:
    void SetUp() override
    {
        script::reset();
        ASSERT_EQ(file_.open("/", 8 * chunk_bytes), 0);
        place_ = file_.take(chunk_bytes);
        ASSERT_NE(place_, 0U);
    }

    int write() { return file_.write(place_, 0, one_.data(), piece_bytes); }
    int read() { return file_.read(place_, 0, got_.data(), piece_bytes); }

    file_store file_{scripted};
    std::uint64_t place_ = 0;
    piece one_{3};
    piece got_{0};
};

TEST_F(FailingFile, AFullDiskAndAnErrorAreTold)
{
    script::writes = {{ENOSPC, 0}};
    EXPECT_EQ(write(), ENOSPC);
    script::writes = {{0, 8192}, {ENOSPC, 0}};
    EXPECT_EQ(write(), ENOSPC) << "also amid a piece";
    script::writes = {{EIO, 0}};
    EXPECT_EQ(write(), EIO);
    EXPECT_EQ(write(), 0);
    script::reads = {{EIO, 0}};
    EXPECT_EQ(read(), EIO);
    EXPECT_EQ(read(), 0);
    EXPECT_TRUE(got_ == one_);
}

TEST_F(FailingFile, ACallThatIsCutShortGoesOn)
{
    script::writes = {{EINTR, 0}, {0, 4096}, {0, 8192}};
    EXPECT_EQ(write(), 0);
    script::reads = {{0, 4096}, {EINTR, 0}, {0, 12288}};
    EXPECT_EQ(read(), 0);
    EXPECT_TRUE(got_ == one_);
}

TEST_F(FailingFile, ShortReadsAndWritesAreErrorsWhereNothingFollows)
{
    script::writes = {{0, 4096}, {0, 0}};
    EXPECT_EQ(write(), EIO);
    script::writes = {{0, 100}};
    EXPECT_EQ(write(), EIO) << "no direct write begins there";
    script::reads = {{0, 4096}, {0, 0}};
    EXPECT_EQ(read(), EIO) << "the end of the file";
}

TEST_F(FailingFile, WhereDirectAccessIsRefusedPagesAreUsed)
{
    EXPECT_TRUE(file_.is_direct());
    script::writes = {{EINVAL, 0}};
    EXPECT_EQ(write(), 0);
    EXPECT_EQ(script::buffered, 1);
    EXPECT_FALSE(file_.is_direct());
    script::reads = {{EINVAL, 0}};
    EXPECT_EQ(read(), EINVAL) << "now it is an error";

    script::reset();
    script::open_error = EINVAL;
    script::refused_flags = O_DIRECT;
    file_store other(scripted);
    EXPECT_EQ(other.open("/", chunk_bytes), 0);
    EXPECT_FALSE(other.is_direct());
    EXPECT_EQ(script::opens.size(), 2U);
}

TEST_F(FailingFile, AnotherFileUnderItsNumberIsLeftAlone)
{
    EXPECT_EQ(write(), 0);
    const std::vector<unsigned char> before = script::disk;
    script::file = 8;
    one_.data()[0] ^= 1;
    EXPECT_EQ(write(), EBADF);
    EXPECT_EQ(read(), EBADF);
    EXPECT_TRUE(script::disk == before);
    script::file = 7;
    EXPECT_EQ(write(), 0);
}

TEST(FileStoreOpened, AProgramThatClosesItLosesNoFileOfItsOwn)
{
    const pid_t child = fork();
    if (child == 0) {
        file_store file;
        piece one(1);
        piece got(0);
        if (file.open("/var/tmp", chunk_bytes) != 0)
            _exit(1);
        const std::uint64_t place = file.take(chunk_bytes);
        if (file.write(place, 0, one.data(), piece_bytes) != 0)
            _exit(2);
        for (int fd = 3; fd < 1 << 16; fd++)
            close(fd);
        if (file.write(place, 0, one.data(), piece_bytes) != EBADF)
            _exit(3);
        // Its own file may get any number.
        const int own = open("/var/tmp", O_TMPFILE | O_RDWR, 0600);
        for (int fd = 3; fd < 1 << 16; fd++)
            if (fd != own && dup2(own, fd) < 0)
                break;
        if (file.write(place, 0, one.data(), piece_bytes) != EBADF ||
            file.read(place, 0, got.data(), piece_bytes) != EBADF)
            _exit(4);
        struct stat is = {};
        _exit(fstat(own, &is) == 0 && is.st_size == 0 ? 0 : 5);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(WEXITSTATUS(status), 0);
    EXPECT_TRUE(WIFEXITED(status));
}

TEST(FileStoreOpened, ALimitOnFilesIsToldBeforeAWriteWouldEndTheProcess)
{
    const pid_t child = fork();
    if (child == 0) {
        const rlimit most = {chunk_bytes, chunk_bytes};
        const bool told =
            setrlimit(RLIMIT_FSIZE, &most) == 0 &&
            file_store().open("/var/tmp", 2 * chunk_bytes) == EFBIG &&
            file_store().open("/var/tmp", chunk_bytes) == 0;
        _exit(told ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
}

TEST(FileStoreOpened, ErrorsOfTheFolderAreTold)
{
    EXPECT_EQ(file_store().open("/no/such/folder", chunk_bytes), ENOENT);
    EXPECT_NE(file_store().open("/proc", chunk_bytes), 0);
    script::reset();
    script::open_error = EISDIR;
    EXPECT_EQ(file_store(scripted).open("/", chunk_bytes), EOPNOTSUPP);
}

TEST_F(FailingFile, PlacesAreDividedWhereNoGapIsLargeEnough)
{
    const std::uint64_t second = file_.take(2 * chunk_bytes);
    const std::uint64_t third = file_.take(3 * chunk_bytes);
    ASSERT_NE(second, 0U);
    ASSERT_NE(third, 0U);
    EXPECT_EQ(file_.take(3 * chunk_bytes), 0U) << "two are left";
    file_.give(place_);
    file_.give(third);
    file_.give(third);
    file_.give(0);
    const std::uint64_t divided = file_.take(6 * chunk_bytes);
    ASSERT_NE(divided, 0U) << "of the first, and of those behind the second";
    EXPECT_EQ(file_.take(chunk_bytes), 0U);
    piece kept(9);
    EXPECT_EQ(file_.write(second, 0, kept.data(), piece_bytes), 0);
    // Across the end of the first part.
    EXPECT_EQ(file_.write(divided, chunk_bytes - piece_bytes / 2, one_.data(),
                          piece_bytes),
              0);
    EXPECT_EQ(file_.read(divided, chunk_bytes - piece_bytes / 2, got_.data(),
                         piece_bytes),
              0);
    EXPECT_TRUE(got_ == one_);
    EXPECT_EQ(file_.read(second, 0, got_.data(), piece_bytes), 0);
    EXPECT_TRUE(got_ == kept);
    EXPECT_EQ(file_.write(divided, 6 * chunk_bytes - piece_bytes / 2,
                          one_.data(), piece_bytes),
              EINVAL)
        << "beyond its end";
    EXPECT_EQ(file_.read(99, 0, got_.data(), piece_bytes), EINVAL);
    file_.give(second);
    file_.give(divided);
    EXPECT_NE(file_.take(8 * chunk_bytes), 0U) << "all of it is one again";
}

TEST_F(FailingFile, ADigestIsKeptWithItsPlace)
{
    content_digest sum;
    sum.add(one_.data(), piece_bytes);
    file_.note(place_, sum.sum());
    EXPECT_EQ(file_.noted(place_), sum.sum());
    EXPECT_EQ(file_.noted(99), content_digest::value{});
    const std::uint64_t other = file_.take(chunk_bytes);
    EXPECT_EQ(file_.noted(other), content_digest::value{});
}

content_digest::value digest_of(piece &of)
{
    content_digest made;
    made.add(of.data(), piece_bytes);
    return made.sum();
}

TEST(ContentDigest, EachBitAndItsPlaceCount)
{
    piece one(3);
    const auto before = digest_of(one);
    EXPECT_EQ(digest_of(one), before);
    for (const std::size_t at : {0UL, 7UL, 8UL, 15UL, 16UL, piece_bytes - 1}) {
        one.data()[at] ^= 1;
        EXPECT_NE(digest_of(one), before) << at;
        one.data()[at] ^= 1;
    }
    std::swap_ranges(one.data(), one.data() + 16, one.data() + 16);
    EXPECT_NE(digest_of(one), before) << "two words have changed places";
}

TEST(ContentDigest, PiecesInOrderAreAsTheWhole)
{
    piece one(3);
    content_digest parts;
    parts.add(one.data(), 16);
    parts.add(one.data() + 16, piece_bytes - 16);
    EXPECT_EQ(parts.sum(), digest_of(one));
    piece none(0, 4096);
    std::memset(none.data(), 0, 4096);
    content_digest shorter;
    shorter.add(none.data(), 2048);
    content_digest longer;
    longer.add(none.data(), 4096);
    EXPECT_NE(shorter.sum(), longer.sum());
}

} // namespace
