// SPDX-License-Identifier: GPL-2.0-or-later
// A server of figures over HTTP: one thread, nothing in it waits for a client.
#pragma once

#include "http.hpp"

#include <emuv/unique_fd.hpp>

#include <cstdint>
#include <functional>
#include <list>
#include <string>
#include <string_view>

namespace emuvctl::watch {

/// An address to listen at.
struct endpoint
{
    std::string address = "127.0.0.1"; ///< numeric, IPv4 or IPv6
    std::uint16_t port = 0;            ///< 0: one that is free

    /// True if only this machine's programs can reach it.
    [[nodiscard]] bool loopback() const;
    /// "127.0.0.1:80", "[::1]:80"
    [[nodiscard]] std::string text() const;
};

/// Reads "ADDRESS:PORT", "[IPv6]:PORT", "localhost:PORT", ":PORT" or "PORT";
/// without an address it is 127.0.0.1.
/// @throws std::invalid_argument
endpoint parse_endpoint(std::string_view text);

/// Answers GET and HEAD, a request a connection. A connection has ten seconds
/// in all; the oldest one ends where too many are open.
class server
{
public:
    static constexpr std::size_t most_connections = 64;
    static constexpr double most_seconds = 10; ///< for a connection

    /// Listens. @throws std::system_error
    explicit server(const endpoint &where);
    server(const server &) = delete;
    server &operator=(const server &) = delete;
    ~server();

    /// The address it listens at, with the port that it got.
    [[nodiscard]] const endpoint &where() const { return where_; }

    /// Serves until @p goes_on says false; it is asked four times a second and
    /// after each signal.
    /// @param answer  the answer to a path; may throw std::exception
    void run(const std::function<bool()> &goes_on,
             const std::function<response(std::string_view path)> &answer);

private:
    struct connection;

    void accept_all();
    void serve(connection &one, short events,
               const std::function<response(std::string_view)> &answer);
    void receive(connection &one,
                 const std::function<response(std::string_view)> &answer);
    static void send(connection &one);
    static void drain(connection &one);

    endpoint where_;
    emuv::unique_fd listener_;
    std::list<connection> connections_; // the oldest first
};

} // namespace emuvctl::watch
