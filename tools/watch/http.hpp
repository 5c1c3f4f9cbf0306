// SPDX-License-Identifier: GPL-2.0-or-later
// The part of HTTP/1.1 that a page of figures needs: GET and HEAD, one request
// a connection.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace emuvctl::watch {

/// The most bytes that a request may have before its body.
inline constexpr std::size_t most_request_bytes = 8192;

/// A request whose head is complete and makes sense.
struct request
{
    bool head = false; ///< HEAD: the answer has no body
    std::string path;  ///< without the query: "/metrics"
    std::string host;  ///< of the Host field, without the port; may be empty
};

/// An answer, or the part of it that differs between answers.
struct response
{
    int status = 200;
    std::string type = "text/plain; charset=utf-8";
    std::string body = {};
};

/// The outcome of reading bytes as a request.
struct reading
{
    std::optional<emuvctl::watch::request> request; ///< it is whole
    std::optional<response> refusal;                ///< it is none of ours
    // Neither: more bytes are needed.
};

/// Reads the head of a request, whatever the bytes are.
reading read_request(std::string_view bytes);

/// An answer as bytes. @param head  leave out the body
std::string write_response(const response &answer, bool head);

/// True for a host that names no domain: "localhost" or a numeric address. A
/// page of another site, whose name is made to lead here, sends its own name.
bool is_local_host(std::string_view host);

} // namespace emuvctl::watch
