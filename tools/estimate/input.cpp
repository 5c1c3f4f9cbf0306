// SPDX-License-Identifier: GPL-2.0-or-later
// The bytes that a model's file is read from, a part at a time.
#include "input.hpp"

#include <emuv/unique_fd.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace emuv::estimate {

namespace {

std::string words(int number)
{
    return std::generic_category().message(number);
}

class file_input final : public input
{
public:
    file_input(std::string name, unique_fd fd, std::uint64_t size)
        : input(std::move(name)), fd_(std::move(fd)), size_(size)
    {}

    [[nodiscard]] std::uint64_t size() const override { return size_; }

    void read(std::uint64_t at, std::span<unsigned char> to) override
    {
        while (!to.empty()) {
            const ssize_t got = ::pread(fd_.get(), to.data(), to.size(),
                                        static_cast<off_t>(at));
            if (got < 0 && errno == EINTR)
                continue;
            if (got < 0)
                refuse(at, words(errno));
            if (got == 0)
                refuse(at, "the file has become shorter");
            at += static_cast<std::uint64_t>(got);
            to = to.subspan(static_cast<std::size_t>(got));
        }
    }

private:
    unique_fd fd_;
    std::uint64_t size_;
};

class memory_input final : public input
{
public:
    memory_input(std::string name, std::span<const unsigned char> bytes)
        : input(std::move(name)), bytes_(bytes)
    {}

    [[nodiscard]] std::uint64_t size() const override { return bytes_.size(); }

    void read(std::uint64_t at, std::span<unsigned char> to) override
    {
        const auto part = bytes_.subspan(at, to.size());
        std::copy(part.begin(), part.end(), to.begin());
    }

private:
    std::span<const unsigned char> bytes_;
};

} // namespace

void input::refuse(std::uint64_t at, const std::string &why) const
{
    throw unreadable(fmt::format("{}: byte {}: {}", name_, at, why));
}

void input::refuse(const std::string &why) const
{
    throw unreadable(fmt::format("{}: {}", name_, why));
}

std::unique_ptr<input> open_file(const std::filesystem::path &path)
{
    // A pipe must not hold this up before it is known to be one.
    unique_fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat is
    {};
    if (fd.get() < 0 || ::fstat(fd.get(), &is) != 0)
        throw unreadable(fmt::format("{}: {}", path.string(), words(errno)));
    if (!S_ISREG(is.st_mode))
        throw unreadable(fmt::format("{}: not a regular file", path.string()));
    return std::make_unique<file_input>(path.string(), std::move(fd),
                                        static_cast<std::uint64_t>(is.st_size));
}

std::unique_ptr<input> in_memory(std::string name,
                                 std::span<const unsigned char> bytes)
{
    return std::make_unique<memory_input>(std::move(name), bytes);
}

std::string read_text(input &from, std::uint64_t most)
{
    if (from.size() > most)
        from.refuse(fmt::format("{} bytes are too many; at most {} are read",
                                from.size(), most));
    std::string text(from.size(), '\0');
    from.read(0, {reinterpret_cast<unsigned char *>(text.data()), text.size()});
    return text;
}

} // namespace emuv::estimate
