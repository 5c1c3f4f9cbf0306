// SPDX-License-Identifier: GPL-2.0-or-later
// Hands memory to virtual machines by QEMU's protocol of ivshmem servers.
#include "ivshmem_server.hpp"

#include "failure.hpp"
#include "output.hpp"

#include <emuv/error.hpp>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

namespace emuvctl {

namespace {

constexpr int poll_milliseconds = 250;

// The protocol: numbers of eight bytes, little endian. The version comes first,
// then the machine's number, and -1 with the descriptor of the memory. The
// first machine may take the memory along as it is saved or migrated. Without a
// descriptor QEMU ends. If it hears nothing before the connection ends, it
// reads on and on.
constexpr std::int64_t version = 0;
constexpr std::int64_t machine_number = 0;
constexpr std::int64_t memory_follows = -1;

[[noreturn]] void fail(const char *what)
{
    throw std::system_error(errno, std::generic_category(), what);
}

// The caller gives away rights to what lies in the folder. So others may
// neither change what lies there, nor have another folder in its place.
void check_folder(int folder, const std::filesystem::path &path)
{
    struct stat state
    {};
    if (::fstat(folder, &state) != 0)
        fail("fstat");
    // In a sticky folder, as /tmp is, each one's files are one's own.
    const bool is_open =
        (state.st_mode & 0022) != 0 && (state.st_mode & S_ISVTX) == 0;
    if (is_open || (state.st_uid != 0 && state.st_uid != ::geteuid()))
        throw failure(fmt::format("{}: other users may change this folder; "
                                  "--socket names a path in another one",
                                  printable(path.native())));
}

emuv::unique_fd open_next(int folder, const char *name)
{
    return emuv::unique_fd(
        ::openat(folder, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

emuv::unique_fd open_folder(const std::filesystem::path &path)
{
    std::filesystem::path reached = "/";
    auto folder = open_next(AT_FDCWD, "/");
    for (const auto &name : path.relative_path()) {
        if (!folder)
            break;
        check_folder(folder.get(), reached);
        if (name.empty())
            continue;
        reached /= name;
        folder = open_next(folder.get(), name.c_str());
    }
    if (!folder && (errno == ENOTDIR || errno == ELOOP))
        throw failure(printable(reached.native()) +
                      ": no folder, or a symbolic link to one; name the folder "
                      "itself");
    if (!folder)
        fail("open");
    check_folder(folder.get(), reached);
    return folder;
}

void check_path(const std::filesystem::path &path)
{
    if (path.native().size() >= sizeof(sockaddr_un::sun_path))
        throw failure(fmt::format("{}: a socket's path has at most {} bytes",
                                  printable(path.native()),
                                  sizeof(sockaddr_un::sun_path) - 1));
}

// Of a name in that folder, whatever the folder's path leads to meanwhile.
sockaddr_un address_of(int folder, const std::string &name)
{
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const auto text = fmt::format("/proc/self/fd/{}/{}", folder, name);
    if (text.size() >= sizeof(address.sun_path))
        throw failure(printable(name) + ": a socket's name is not so long");
    std::memcpy(address.sun_path, text.data(), text.size());
    return address;
}

emuv::unique_fd make_socket(int kind)
{
    emuv::unique_fd made(::socket(AF_UNIX, kind | SOCK_CLOEXEC, 0));
    if (!made)
        fail("socket");
    return made;
}

template <typename Call>
int with_address(const sockaddr_un &address, Call call)
{
    return call(reinterpret_cast<const sockaddr *>(&address),
                static_cast<socklen_t>(sizeof address));
}

// Does a process listen there? One that does is not asked for memory: sockets
// of two kinds do not come together.
bool is_served(const sockaddr_un &address)
{
    const auto probe = make_socket(SOCK_DGRAM);
    return with_address(address,
                        [&](auto *at, auto size) {
                            return ::connect(probe.get(), at, size);
                        }) == 0 ||
           errno != ECONNREFUSED;
}

// Nobody else may connect before the rights are set.
void take_place(int listener, int folder, const std::filesystem::path &path)
{
    const std::string name = path.filename();
    const auto address = address_of(folder, name);
    const auto bind = [&] {
        return with_address(address, [&](auto *at, auto size) {
            return ::bind(listener, at, size);
        });
    };
    if (::fchmod(listener, 0600) != 0)
        fail("fchmod");
    if (bind() == 0)
        return;
    struct stat there
    {};
    if (errno != EADDRINUSE ||
        ::fstatat(folder, name.c_str(), &there, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISSOCK(there.st_mode))
        fail("bind");
    if (is_served(address))
        throw failure(fmt::format("{}: another server listens there",
                                  printable(path.native())));
    ::unlinkat(folder, name.c_str(), 0);
    if (bind() != 0)
        fail("bind");
}

// Opens the socket in the file system, as a place alone.
emuv::unique_fd open_place(int folder, const std::string &name)
{
    emuv::unique_fd place(
        ::openat(folder, name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    struct stat made
    {};
    if (!place || ::fstat(place.get(), &made) != 0)
        fail("open");
    if (!S_ISSOCK(made.st_mode))
        throw failure(printable(name) + ": it is no socket any more");
    return place;
}

// Without the right to give any away, the socket stays the caller's own.
void give_rights_of(const std::filesystem::path &like, int place)
{
    const auto give_to = [place](uid_t user, gid_t group) {
        return ::fchownat(place, "", user, group, AT_EMPTY_PATH) == 0;
    };
    struct stat wanted
    {};
    if (::stat(like.c_str(), &wanted) == 0 &&
        (give_to(wanted.st_uid, wanted.st_gid) ||
         give_to(static_cast<uid_t>(-1), wanted.st_gid)))
        ::chmod(fmt::format("/proc/self/fd/{}", place).c_str(),
                wanted.st_mode & 0666);
}

bool are_the_same(int place, int folder, const std::string &name)
{
    struct stat one
    {
    }, other{};
    return ::fstat(place, &one) == 0 &&
           ::fstatat(folder, name.c_str(), &other, AT_SYMLINK_NOFOLLOW) == 0 &&
           one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

bool send_number(int socket, std::int64_t number, int fd = -1)
{
    std::array<unsigned char, 8> bytes{};
    for (std::size_t i = 0; i < bytes.size(); i++)
        bytes[i] = static_cast<unsigned char>(
            static_cast<std::uint64_t>(number) >> (8 * i));
    iovec data{bytes.data(), bytes.size()};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    if (fd >= 0) {
        message.msg_control = control.data();
        message.msg_controllen = control.size();
        cmsghdr *const header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof fd);
        std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
    }
    return ::sendmsg(socket, &message, MSG_NOSIGNAL) ==
           static_cast<ssize_t>(bytes.size());
}

// All that a machine is told. @param memory  its descriptor; -1: it gets none
bool tell(int socket, int memory)
{
    return send_number(socket, version) &&
           send_number(socket, machine_number) &&
           send_number(socket, memory_follows, memory);
}

std::string name_of(int socket)
{
    ucred peer{};
    socklen_t size = sizeof peer;
    if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
        return "a process";
    return fmt::format("process {}", peer.pid);
}

// Has the other end gone? Nothing that it says means anything. One that talks
// on and on holds up nobody.
bool is_over(int socket)
{
    std::array<char, 512> ignored{};
    const auto got =
        ::recv(socket, ignored.data(), ignored.size(), MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

} // namespace

ivshmem_server::ivshmem_server(const std::filesystem::path &path,
                               const std::filesystem::path &like)
    : name_(path.filename()),
      listener_(make_socket(SOCK_STREAM | SOCK_NONBLOCK))
{
    check_path(path);
    folder_ = open_folder(std::filesystem::absolute(path).parent_path());
    take_place(listener_.get(), folder_.get(), path);
    place_ = open_place(folder_.get(), name_);
    give_rights_of(like, place_.get());
    if (::listen(listener_.get(), SOMAXCONN) != 0)
        fail("listen");
}

ivshmem_server::~ivshmem_server()
{
    if (are_the_same(place_.get(), folder_.get(), name_))
        ::unlinkat(folder_.get(), name_.c_str(), 0);
    for (;;) {
        const emuv::unique_fd late(
            ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
        if (!late)
            return;
        tell(late.get(), -1);
    }
}

void ivshmem_server::serve(machine one,
                           const std::function<emuv::region()> &allocate,
                           const std::function<void(std::string_view)> &say)
{
    try {
        one.memory = allocate();
        const auto fd = one.memory.export_region();
        if (!tell(one.socket.get(), fd.get()))
            return; // it has gone again
    } catch (const emuv::error &problem) {
        tell(one.socket.get(), -1);
        say(fmt::format("{} gets nothing: {}", one.name,
                        problem.number() == ENOSPC
                            ? "the instance has not so much left"
                            : emuv::errno_text(problem.number())));
        return;
    }
    say(fmt::format("{} has {}", one.name,
                    say_size(one.memory.bytes(), false)));
    machines_.push_back(std::move(one));
}

bool ivshmem_server::accept_all(
    const std::function<emuv::region()> &allocate,
    const std::function<void(std::string_view)> &say)
{
    for (;;) {
        machine one;
        one.socket.reset(::accept4(listener_.get(), nullptr, nullptr,
                                   SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (one.socket) {
            one.name = name_of(one.socket.get());
            serve(std::move(one), allocate, say);
        } else if (errno == EAGAIN) {
            return true;
        } else if (errno != ECONNABORTED && errno != EINTR) {
            return false;
        }
    }
}

void ivshmem_server::forget_those_that_went(
    std::span<const pollfd> polled,
    const std::function<void(std::string_view)> &say)
{
    std::size_t i = 0;
    for (auto one = machines_.begin(); one != machines_.end(); i++) {
        if (polled[i].revents == 0 || !is_over(one->socket.get())) {
            ++one;
            continue;
        }
        say(fmt::format("{} has gone", one->name));
        one = machines_.erase(one);
    }
}

void ivshmem_server::run(const std::function<bool()> &goes_on,
                         const std::function<emuv::region()> &allocate,
                         const std::function<void(std::string_view)> &say)
{
    std::vector<pollfd> polled;
    bool may_accept = true;
    while (goes_on()) {
        polled.assign(1, {may_accept ? listener_.get() : -1, POLLIN, 0});
        for (const auto &one : machines_)
            polled.push_back({one.socket.get(), POLLIN, 0});
        const int ready =
            ::poll(polled.data(), polled.size(), poll_milliseconds);
        if (ready < 0 && errno != EINTR)
            fail("poll");
        if (ready < 0)
            continue;
        // The next ones come after those that are there: they were not polled.
        forget_those_that_went(std::span(polled).subspan(1), say);
        // If descriptors are short, those that wait do so for a while.
        may_accept = polled[0].revents == 0 || accept_all(allocate, say);
    }
}

} // namespace emuvctl
