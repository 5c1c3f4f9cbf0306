// SPDX-License-Identifier: GPL-2.0-or-later
// A server of figures over HTTP: one thread, nothing in it waits for a client.
#include "server.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <ctime>
#include <exception>
#include <stdexcept>
#include <system_error>
#include <vector>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace emuvctl::watch {

namespace {

constexpr int poll_milliseconds = 250;
// A client that was refused may still be sending. The rest is read for a while,
// or the refusal would be lost with the connection.
constexpr std::size_t most_drained_bytes = 1 << 16;
constexpr double most_drained_seconds = 2;

double now()
{
    timespec time{};
    ::clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<double>(time.tv_sec) +
           static_cast<double>(time.tv_nsec) * 1e-9;
}

bool is_ipv6(const std::string &address)
{
    return address.find(':') != std::string::npos;
}

union socket_address {
    sockaddr any;
    sockaddr_in ipv4;
    sockaddr_in6 ipv6;
};

socket_address to_socket_address(const endpoint &where, socklen_t &length)
{
    socket_address to{};
    if (is_ipv6(where.address)) {
        to.ipv6.sin6_family = AF_INET6;
        to.ipv6.sin6_port = htons(where.port);
        ::inet_pton(AF_INET6, where.address.c_str(), &to.ipv6.sin6_addr);
        length = sizeof(to.ipv6);
    } else {
        to.ipv4.sin_family = AF_INET;
        to.ipv4.sin_port = htons(where.port);
        ::inet_pton(AF_INET, where.address.c_str(), &to.ipv4.sin_addr);
        length = sizeof(to.ipv4);
    }
    return to;
}

[[noreturn]] void fail()
{
    throw std::system_error(errno, std::generic_category());
}

bool would_block(int number)
{
    return number == EAGAIN || number == EWOULDBLOCK || number == EINTR;
}

} // namespace

bool endpoint::loopback() const
{
    return address.starts_with("127.") || address == "::1";
}

std::string endpoint::text() const
{
    return is_ipv6(address) ? fmt::format("[{}]:{}", address, port)
                            : fmt::format("{}:{}", address, port);
}

endpoint parse_endpoint(std::string_view text)
{
    endpoint result;
    std::string_view port = text;
    std::string_view address;
    if (text.starts_with('[')) {
        const auto end = text.find("]:");
        if (end == std::string_view::npos)
            throw std::invalid_argument("a port is missing behind the address");
        address = text.substr(1, end - 1);
        port = text.substr(end + 2);
        if (address.find(':') == std::string_view::npos)
            throw std::invalid_argument("brackets are for IPv6 addresses");
    } else if (const auto colon = text.rfind(':');
               colon != std::string_view::npos) {
        address = text.substr(0, colon);
        port = text.substr(colon + 1);
        if (address.find(':') != std::string_view::npos)
            throw std::invalid_argument(
                "an IPv6 address stands in brackets, as in [::1]:9745");
    } else if (text.find('.') != std::string_view::npos) {
        throw std::invalid_argument("a port is missing behind the address");
    }
    if (!address.empty() && address != "localhost")
        result.address = address;
    const int family = is_ipv6(result.address) ? AF_INET6 : AF_INET;
    in6_addr parsed{};
    if (::inet_pton(family, result.address.c_str(), &parsed) != 1)
        throw std::invalid_argument("'" + result.address +
                                    "' is not a numeric address");
    // One text for an address: ::1 may be written at length.
    std::array<char, INET6_ADDRSTRLEN> canonical{};
    result.address =
        ::inet_ntop(family, &parsed, canonical.data(), canonical.size());
    const char *const end = port.data() + port.size();
    const auto [stop, problem] = std::from_chars(port.data(), end, result.port);
    if (problem != std::errc() || stop != end)
        throw std::invalid_argument("'" + std::string(port) +
                                    "' is not a port, 0 to 65535");
    return result;
}

struct server::connection
{
    enum class state
    {
        receiving,
        sending,
        draining,
        over
    };

    emuv::unique_fd fd;
    double until;
    state now = state::receiving;
    std::string in = {};
    std::string out = {};
    std::size_t sent = 0;
    std::size_t drained = 0;
};

server::server(const endpoint &where) : where_(where)
{
    socklen_t length = 0;
    socket_address at = to_socket_address(where_, length);
    listener_.reset(::socket(at.any.sa_family,
                             SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!listener_)
        fail();
    const int yes = 1;
    // A server that is started anew need not wait for the old connections.
    ::setsockopt(listener_.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (at.any.sa_family == AF_INET6)
        ::setsockopt(listener_.get(), IPPROTO_IPV6, IPV6_V6ONLY, &yes,
                     sizeof(yes));
    if (::bind(listener_.get(), &at.any, length) != 0 ||
        ::listen(listener_.get(), most_connections) != 0 ||
        ::getsockname(listener_.get(), &at.any, &length) != 0)
        fail();
    where_.port = ntohs(at.any.sa_family == AF_INET6 ? at.ipv6.sin6_port
                                                     : at.ipv4.sin_port);
}

server::~server() = default;

void server::accept_all()
{
    for (bool first = true;;) {
        emuv::unique_fd fd(::accept4(listener_.get(), nullptr, nullptr,
                                     SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (!fd) {
            // A client that waits keeps poll() from waiting. Past the first
            // one none may be there: a full table is told of before that.
            if (!first || (errno != EMFILE && errno != ENFILE) ||
                connections_.empty())
                return;
            connections_.pop_front();
            continue;
        }
        first = false;
        if (connections_.size() >= most_connections)
            connections_.pop_front();
        connections_.push_back({std::move(fd), now() + most_seconds});
    }
}

void server::receive(connection &one,
                     const std::function<response(std::string_view)> &answer)
{
    std::array<char, most_request_bytes> block{};
    const ssize_t got =
        ::recv(one.fd.get(), block.data(), block.size() - one.in.size(), 0);
    if (got <= 0) {
        if (got == 0 || !would_block(errno))
            one.now = connection::state::over;
        return;
    }
    one.in.append(block.data(), static_cast<std::size_t>(got));
    const reading result = read_request(one.in);
    if (result.refusal) {
        one.out = write_response(*result.refusal, false);
    } else if (result.request) {
        response reply;
        if (where_.loopback() && !is_local_host(result.request->host)) {
            reply = {421, reply.type, "this host is not served here\n"};
        } else {
            try {
                reply = answer(result.request->path);
            } catch (const std::exception &problem) {
                reply = {500, reply.type, std::string(problem.what()) + "\n"};
            }
        }
        one.out = write_response(reply, result.request->head);
    } else {
        return;
    }
    one.now = connection::state::sending;
    send(one);
}

void server::send(connection &one)
{
    const ssize_t done = ::send(one.fd.get(), one.out.data() + one.sent,
                                one.out.size() - one.sent, MSG_NOSIGNAL);
    if (done < 0) {
        if (!would_block(errno))
            one.now = connection::state::over;
        return;
    }
    one.sent += static_cast<std::size_t>(done);
    if (one.sent < one.out.size())
        return;
    ::shutdown(one.fd.get(), SHUT_WR);
    one.now = connection::state::draining;
    one.until = std::min(one.until, now() + most_drained_seconds);
}

void server::drain(connection &one)
{
    std::array<char, 4096> block{};
    const ssize_t got = ::recv(one.fd.get(), block.data(), block.size(), 0);
    if (got > 0)
        one.drained += static_cast<std::size_t>(got);
    if (got == 0 || (got < 0 && !would_block(errno)) ||
        one.drained > most_drained_bytes)
        one.now = connection::state::over;
}

void server::serve(connection &one, short events,
                   const std::function<response(std::string_view)> &answer)
{
    if (now() > one.until) {
        one.now = connection::state::over;
        return;
    }
    if (events == 0)
        return;
    switch (one.now) {
    case connection::state::receiving:
        receive(one, answer);
        break;
    case connection::state::sending:
        send(one);
        break;
    case connection::state::draining:
        drain(one);
        break;
    case connection::state::over:
        break;
    }
}

void server::run(const std::function<bool()> &goes_on,
                 const std::function<response(std::string_view path)> &answer)
{
    std::vector<pollfd> polled;
    while (goes_on()) {
        polled.assign(1, {listener_.get(), POLLIN, 0});
        for (const auto &one : connections_)
            polled.push_back(
                {one.fd.get(),
                 static_cast<short>(
                     one.now == connection::state::sending ? POLLOUT : POLLIN),
                 0});
        const int ready =
            ::poll(polled.data(), polled.size(), poll_milliseconds);
        if (ready < 0 && errno != EINTR)
            fail();
        if (ready < 0)
            continue;
        std::size_t i = 1;
        for (auto one = connections_.begin(); one != connections_.end(); i++) {
            serve(*one, polled[i].revents, answer);
            one = one->now == connection::state::over ? connections_.erase(one)
                                                      : std::next(one);
        }
        // After those that are there: a new one has no place in `polled`.
        if (polled[0].revents != 0)
            accept_all();
    }
}

} // namespace emuvctl::watch
