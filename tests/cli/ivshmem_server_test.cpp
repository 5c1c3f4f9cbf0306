// SPDX-License-Identifier: GPL-2.0-or-later
// The server of memory for virtual machines, with a machine of the test's own.
#include "failure.hpp"
#include "fake_kernel.hpp"
#include "ivshmem_server.hpp"

#include <emuv/client.hpp>
#include <emuv/control.hpp>
#include <emuv/unique_fd.hpp>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

namespace {

using emuv_test::fake_kernel;
using testing::ElementsAre;
using testing::EndsWith;
using testing::IsEmpty;
using testing::ThrowsMessage;

constexpr std::uint64_t size = 16ULL << 20;

emuv::unique_fd connect_to(const std::filesystem::path &path)
{
    emuv::unique_fd made(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
    if (::connect(made.get(), reinterpret_cast<sockaddr *>(&address),
                  sizeof address) != 0)
        made.reset();
    return made;
}

struct message
{
    std::int64_t number = 0;
    emuv::unique_fd fd;
};

// One message, if it is there.
std::optional<message> receive(int socket)
{
    std::array<unsigned char, 8> bytes{};
    iovec data{bytes.data(), bytes.size()};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
    msghdr header{};
    header.msg_iov = &data;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    if (::recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) != 8)
        return std::nullopt;
    message got;
    std::uint64_t number = 0;
    for (std::size_t i = 0; i < bytes.size(); i++)
        number |= std::uint64_t{bytes[i]} << (8 * i);
    got.number = static_cast<std::int64_t>(number);
    if (const cmsghdr *const with = CMSG_FIRSTHDR(&header); with != nullptr) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(with), sizeof fd);
        got.fd.reset(fd);
    }
    return got;
}

// QEMU ends as it is told of memory without a descriptor, and hangs without a
// word.
void expect_refusal(int socket)
{
    for (const std::int64_t wanted : {0, 0, -1}) {
        const auto got = receive(socket);
        ASSERT_TRUE(got);
        EXPECT_EQ(got->number, wanted);
        EXPECT_FALSE(got->fd);
    }
    char byte = 0;
    EXPECT_EQ(::recv(socket, &byte, 1, MSG_DONTWAIT), 0);
}

class ivshmem_server : public testing::Test
{
protected:
    void SetUp() override
    {
        kernel_.insert();
        emuv::instance_spec spec;
        spec.gpu_model = "4070";
        spec.virtual_bytes = 2 * size;
        emuv::control(kernel_.dev(), kernel_).create(spec);
        path_ = kernel_.root() / "socket";
    }

    std::uint64_t used() const
    {
        return emuv::control(kernel_.dev(), kernel_)
            .query(0)
            .virtual_used_bytes;
    }

    // Each of the steps happens before the server looks again.
    void serve(const std::vector<std::function<void()>> &steps)
    {
        emuvctl::ivshmem_server server(path_, kernel_.dev() / "emuv0");
        std::size_t next = 0;
        server.run(
            [&] {
                if (next == steps.size())
                    return false;
                steps[next++]();
                return true;
            },
            [this] {
                emuv::client client(0, kernel_.dev(), kernel_);
                asked_++;
                return client.alloc(size);
            },
            [this](std::string_view text) { said_.emplace_back(text); });
    }

    mutable fake_kernel kernel_;
    std::filesystem::path path_;
    std::vector<std::string> said_;
    int asked_ = 0; // times that memory was asked for
};

TEST_F(ivshmem_server, machine_gets_version_number_and_memory)
{
    emuv::unique_fd machine;
    serve({[&] { machine = connect_to(path_); },
           [&] {
               for (const std::int64_t wanted : {0, 0}) {
                   const auto got = receive(machine.get());
                   ASSERT_TRUE(got);
                   EXPECT_EQ(got->number, wanted);
                   EXPECT_FALSE(got->fd);
               }
               const auto memory = receive(machine.get());
               ASSERT_TRUE(memory);
               EXPECT_EQ(memory->number, -1);
               EXPECT_TRUE(memory->fd);
               EXPECT_FALSE(receive(machine.get())) << "that is all";
               EXPECT_EQ(used(), size);
           }});
    EXPECT_THAT(said_, ElementsAre(EndsWith(" has 16 MiB")));
}

TEST_F(ivshmem_server, memory_is_the_instances_again_once_the_machine_has_gone)
{
    emuv::unique_fd machine;
    serve({[&] { machine = connect_to(path_); },
           [&] {
               EXPECT_EQ(used(), size);
               machine.reset();
           },
           [&] { EXPECT_EQ(used(), 0U); }});
    EXPECT_THAT(said_,
                ElementsAre(EndsWith(" has 16 MiB"), EndsWith(" has gone")));
}

TEST_F(ivshmem_server, machine_that_finds_no_room_is_turned_away)
{
    std::array<emuv::unique_fd, 3> machines;
    serve({[&] {
               for (auto &one : machines)
                   one = connect_to(path_);
           },
           [&] {
               EXPECT_EQ(used(), 2 * size);
               EXPECT_TRUE(receive(machines[1].get()));
               expect_refusal(machines[2].get());
               machines[0].reset();
           },
           [&] { machines[2] = connect_to(path_); },
           [&] { EXPECT_TRUE(receive(machines[2].get())); }});
    ASSERT_EQ(said_.size(), 5U);
    EXPECT_THAT(said_[2],
                EndsWith(" gets nothing: the instance has not so much left"));
}

TEST_F(ivshmem_server, machine_that_comes_too_late_is_turned_away)
{
    emuv::unique_fd machine;
    {
        const emuvctl::ivshmem_server server(path_, kernel_.dev() / "emuv0");
        machine = connect_to(path_);
    }
    ASSERT_TRUE(machine);
    expect_refusal(machine.get());
}

TEST_F(ivshmem_server, words_of_a_machine_mean_nothing)
{
    emuv::unique_fd machine;
    const std::vector<char> words(4096, 'x');
    serve({[&] { machine = connect_to(path_); },
           [&] {
               EXPECT_EQ(::send(machine.get(), words.data(), words.size(), 0),
                         static_cast<ssize_t>(words.size()));
           },
           [&] { EXPECT_EQ(used(), size); },
           [&] { EXPECT_TRUE(receive(machine.get())); }});
}

TEST_F(ivshmem_server, socket_goes_with_it)
{
    serve({[&] { EXPECT_TRUE(std::filesystem::exists(path_)); }});
    EXPECT_FALSE(std::filesystem::exists(path_));
    EXPECT_THAT(said_, IsEmpty());
}

TEST_F(ivshmem_server, socket_that_nobody_serves_is_replaced)
{
    {
        emuv::unique_fd left(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        std::strncpy(address.sun_path, path_.c_str(),
                     sizeof address.sun_path - 1);
        ASSERT_EQ(::bind(left.get(), reinterpret_cast<sockaddr *>(&address),
                         sizeof address),
                  0);
    }
    ASSERT_TRUE(std::filesystem::exists(path_));
    emuv::unique_fd machine;
    serve({[&] { machine = connect_to(path_); },
           [&] { EXPECT_TRUE(receive(machine.get())); }});
}

TEST_F(ivshmem_server, second_one_takes_no_memory_to_see_the_first)
{
    serve({[&] {
               EXPECT_THROW(
                   emuvctl::ivshmem_server(path_, kernel_.dev() / "emuv0"),
                   emuvctl::failure);
           },
           [] {}});
    EXPECT_EQ(asked_, 0);
}

TEST_F(ivshmem_server, what_took_its_sockets_place_stays)
{
    serve({[&] {
        std::filesystem::remove(path_);
        emuv_test::write_file(path_, "precious");
    }});
    EXPECT_EQ(emuv_test::read_whole(path_), "precious");
}

TEST_F(ivshmem_server, machine_that_finds_no_descriptor_waits_for_one)
{
    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
    emuv::unique_fd machine;
    serve({[&] {
               machine = connect_to(path_);
               const emuv::unique_fd next(::dup(machine.get()));
               const rlimit none{static_cast<rlim_t>(next.get()),
                                 before.rlim_max};
               ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
           },
           [&] {
               EXPECT_FALSE(receive(machine.get()));
               ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
           },
           [&] { EXPECT_FALSE(receive(machine.get())) << "it has rested"; },
           [&] { EXPECT_TRUE(receive(machine.get())); }});
}

TEST_F(ivshmem_server, second_one_and_files_are_left_alone)
{
    const auto node = kernel_.dev() / "emuv0";
    {
        const emuvctl::ivshmem_server first(path_, node);
        EXPECT_THAT([&] { emuvctl::ivshmem_server(path_, node); },
                    ThrowsMessage<emuvctl::failure>(
                        path_.string() + ": another server listens there"));
        EXPECT_TRUE(connect_to(path_)) << "the first one is still there";
    }
    emuv_test::write_file(path_, "precious");
    EXPECT_THROW(emuvctl::ivshmem_server(path_, node), std::system_error);
    EXPECT_EQ(emuv_test::read_whole(path_), "precious");
}

TEST_F(ivshmem_server, path_that_fits_no_address_is_refused)
{
    EXPECT_THROW(emuvctl::ivshmem_server(kernel_.root() / std::string(120, 'x'),
                                         kernel_.dev() / "emuv0"),
                 emuvctl::failure);
}

TEST_F(ivshmem_server, folder_that_others_may_change_is_refused)
{
    const auto folder = kernel_.root() / "folder";
    std::filesystem::create_directories(folder / "inside");
    for (const auto &path : {folder / "socket", folder / "inside/socket"}) {
        for (const mode_t mode : {0777U, 0775U, 0757U}) {
            ASSERT_EQ(::chmod(folder.c_str(), mode), 0);
            EXPECT_THROW(emuvctl::ivshmem_server(path, kernel_.dev() / "emuv0"),
                         emuvctl::failure)
                << path << ' ' << mode;
            EXPECT_FALSE(std::filesystem::exists(path));
        }
        for (const mode_t mode : {0755U, 01777U}) {
            ASSERT_EQ(::chmod(folder.c_str(), mode), 0);
            const emuvctl::ivshmem_server server(path, kernel_.dev() / "emuv0");
            EXPECT_TRUE(connect_to(path)) << path << ' ' << mode;
        }
    }
}

TEST_F(ivshmem_server, folder_of_another_user_is_refused)
{
    const auto folder = kernel_.root() / "folder";
    std::filesystem::create_directories(folder / "inside");
    if (::chown(folder.c_str(), 12345, 12345) != 0)
        GTEST_SKIP() << "only root may give a folder away";
    for (const auto &path : {folder / "socket", folder / "inside/socket"}) {
        EXPECT_THROW(emuvctl::ivshmem_server(path, kernel_.dev() / "emuv0"),
                     emuvctl::failure);
        EXPECT_FALSE(std::filesystem::exists(path));
    }
}

TEST_F(ivshmem_server, no_symbolic_link_leads_to_its_folder)
{
    const auto folder = kernel_.root() / "folder";
    std::filesystem::create_directories(folder / "inside");
    std::filesystem::create_symlink(folder, kernel_.root() / "link");
    for (const auto *const path : {"link/socket", "link/inside/socket"})
        EXPECT_THROW(emuvctl::ivshmem_server(kernel_.root() / path,
                                             kernel_.dev() / "emuv0"),
                     emuvctl::failure);
    EXPECT_TRUE(std::filesystem::is_empty(folder / "inside"));
}

TEST_F(ivshmem_server, folder_that_is_replaced_loses_nothing)
{
    const auto folder = kernel_.root() / "folder";
    const auto moved = kernel_.root() / "moved";
    std::filesystem::create_directory(folder);
    path_ = folder / "socket";
    serve({[&] {
        std::filesystem::rename(folder, moved);
        std::filesystem::create_directory(folder);
        std::filesystem::create_hard_link(moved / "socket", path_);
    }});
    EXPECT_TRUE(std::filesystem::exists(path_)) << "it is another's place";
    EXPECT_FALSE(std::filesystem::exists(moved / "socket"));
}

TEST_F(ivshmem_server, whoever_may_open_the_node_may_connect)
{
    const auto node = kernel_.dev() / "emuv0";
    for (const mode_t mode : {0600U, 0660U, 0666U}) {
        ASSERT_EQ(::chmod(node.c_str(), mode), 0);
        const emuvctl::ivshmem_server server(path_, node);
        struct stat made
        {};
        ASSERT_EQ(::stat(path_.c_str(), &made), 0);
        EXPECT_EQ(made.st_mode & 07777, mode);
    }
}

} // namespace
