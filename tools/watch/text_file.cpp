// SPDX-License-Identifier: GPL-2.0-or-later
// A file that its readers see whole, old or new.
#include "text_file.hpp"

#include <cerrno>
#include <cstdlib>
#include <string>
#include <system_error>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace emuvctl::watch {

namespace {

[[noreturn]] void fail(int number)
{
    throw std::system_error(number, std::generic_category());
}

// A file that goes unless it was renamed.
class draft
{
public:
    explicit draft(const std::filesystem::path &beside)
    {
        // The node exporter reads *.prom only, so no draft ends so.
        path_ = (beside.parent_path() /
                 ("." + beside.filename().string() + ".XXXXXX"))
                    .string();
        fd_ = ::mkostemp(path_.data(), O_CLOEXEC);
        if (fd_ < 0)
            fail(errno);
    }
    draft(const draft &) = delete;
    draft &operator=(const draft &) = delete;
    ~draft()
    {
        if (fd_ >= 0)
            ::close(fd_);
        if (!renamed_)
            ::unlink(path_.c_str());
    }

    void write(std::string_view text) const
    {
        while (!text.empty()) {
            const ssize_t done = ::write(fd_, text.data(), text.size());
            if (done >= 0)
                text.remove_prefix(static_cast<std::size_t>(done));
            else if (errno != EINTR)
                fail(errno);
        }
    }

    void set_mode(mode_t mode) const
    {
        if (::fchmod(fd_, mode) != 0)
            fail(errno);
    }

    void rename(const std::filesystem::path &to)
    {
        // A full disk may be told of as late as here.
        const int fd = fd_;
        fd_ = -1;
        if (::close(fd) != 0 && errno != EINTR)
            fail(errno);
        if (::rename(path_.c_str(), to.c_str()) != 0)
            fail(errno);
        renamed_ = true;
    }

private:
    std::string path_;
    int fd_ = -1;
    bool renamed_ = false;
};

} // namespace

void replace_file(const std::filesystem::path &path, std::string_view text,
                  std::optional<mode_t> mode)
{
    std::filesystem::path target = path;
    mode_t own = 0;
    struct stat old
    {};
    if (::stat(path.c_str(), &old) == 0) {
        // A rename would put a file in the place of a device.
        if (!S_ISREG(old.st_mode))
            fail(EINVAL);
        own = old.st_mode & 0777U;
        target = std::filesystem::canonical(path);
    } else if (errno == ENOENT) {
        const mode_t mask = ::umask(0);
        ::umask(mask);
        own = 0644U & ~mask;
    } else {
        fail(errno);
    }
    draft file(target);
    file.write(text);
    file.set_mode(mode.value_or(own));
    file.rename(target);
}

} // namespace emuvctl::watch
