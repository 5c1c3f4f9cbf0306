// SPDX-License-Identifier: GPL-2.0-or-later
// The part of HTTP/1.1 that a page of figures needs: GET and HEAD, one request
// a connection.
#include "http.hpp"

#include <algorithm>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <strings.h>

namespace emuvctl::watch {

namespace {

std::string_view reason_of(int status)
{
    switch (status) {
    case 200:
        return "OK";
    case 400:
        return "Bad Request";
    case 404:
        return "Not Found";
    case 405:
        return "Method Not Allowed";
    case 421:
        return "Misdirected Request";
    case 431:
        return "Request Header Fields Too Large";
    case 505:
        return "HTTP Version Not Supported";
    default:
        return "Internal Server Error";
    }
}

reading refuse(int status, std::string_view why)
{
    return {{}, response{status, response{}.type, std::string(why) + "\n"}};
}

// Takes a line off the front; nullopt if there is no whole one.
std::optional<std::string_view> take_line(std::string_view &from)
{
    const auto end = from.find('\n');
    if (end == std::string_view::npos)
        return std::nullopt;
    std::string_view line = from.substr(0, end);
    from.remove_prefix(end + 1);
    if (line.ends_with('\r'))
        line.remove_suffix(1);
    return line;
}

std::string_view trimmed(std::string_view text)
{
    const auto first = text.find_first_not_of(" \t");
    if (first == std::string_view::npos)
        return {};
    return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

// "[::1]:80" and "localhost:80" without their ports.
std::string_view without_port(std::string_view host)
{
    if (host.starts_with('[')) {
        const auto end = host.find(']');
        return end == std::string_view::npos ? host : host.substr(0, end + 1);
    }
    return host.substr(0, host.find(':'));
}

bool same_text(std::string_view a, std::string_view b)
{
    return a.size() == b.size() &&
           ::strncasecmp(a.data(), b.data(), a.size()) == 0;
}

struct request_line
{
    std::string_view method;
    std::string_view target;
    std::string_view version;
};

std::optional<request_line> split(std::string_view line)
{
    const auto first = line.find(' ');
    const auto last = line.rfind(' ');
    if (first == std::string_view::npos || first == last || first == 0)
        return std::nullopt;
    request_line parts{line.substr(0, first),
                       line.substr(first + 1, last - first - 1),
                       line.substr(last + 1)};
    const auto visible = [](char c) { return c > 0x20 && c < 0x7f; };
    if (!std::all_of(parts.target.begin(), parts.target.end(), visible))
        return std::nullopt;
    return parts;
}

// Reads the fields up to the empty line. @return a refusal, if any
std::optional<reading> read_fields(std::string_view rest, bool &complete,
                                   std::string &host)
{
    int hosts = 0;
    while (const auto line = take_line(rest)) {
        if (line->empty()) {
            complete = true;
            if (hosts > 1)
                return refuse(400, "the request names several hosts");
            return std::nullopt;
        }
        const auto colon = line->find(':');
        if (colon == std::string_view::npos || colon == 0 ||
            line->find_first_of(" \t") < colon)
            return refuse(400, "a field of the request is malformed");
        if (same_text(line->substr(0, colon), "Host")) {
            hosts++;
            host = without_port(trimmed(line->substr(colon + 1)));
        }
    }
    return std::nullopt;
}

} // namespace

reading read_request(std::string_view bytes)
{
    const bool full = bytes.size() >= most_request_bytes;
    std::string_view rest = bytes.substr(0, most_request_bytes);
    const auto first = take_line(rest);
    if (!first)
        return full ? refuse(431, "the request is too long") : reading{};
    const auto line = split(*first);
    if (!line)
        return refuse(400, "the request makes no sense");
    if (!line->version.starts_with("HTTP/1."))
        return line->version.starts_with("HTTP/")
                   ? refuse(505, "HTTP/1.1 is spoken here")
                   : refuse(400, "the request makes no sense");
    request result;
    bool complete = false;
    if (auto refusal = read_fields(rest, complete, result.host))
        return *refusal;
    if (!complete)
        return full ? refuse(431, "the request is too long") : reading{};
    result.head = line->method == "HEAD";
    if (!result.head && line->method != "GET")
        return refuse(405, "only GET and HEAD are answered");
    if (!line->target.starts_with('/'))
        return refuse(400, "the path is missing");
    result.path = line->target.substr(0, line->target.find('?'));
    return {std::move(result), {}};
}

std::string write_response(const response &answer, bool head)
{
    // Only the page itself may be asked for figures, and it loads nothing else.
    std::string text = fmt::format(
        "HTTP/1.1 {} {}\r\n"
        "Content-Type: {}\r\n"
        "Content-Length: {}\r\n"
        "Connection: close\r\n"
        "Cache-Control: no-store\r\n"
        "X-Content-Type-Options: nosniff\r\n"
        "Referrer-Policy: no-referrer\r\n"
        "Cross-Origin-Resource-Policy: same-origin\r\n"
        "Content-Security-Policy: default-src 'none'; style-src "
        "'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; "
        "img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action "
        "'none'\r\n"
        "{}"
        "\r\n",
        answer.status, reason_of(answer.status), answer.type,
        answer.body.size(), answer.status == 405 ? "Allow: GET, HEAD\r\n" : "");
    if (!head)
        text += answer.body;
    return text;
}

bool is_local_host(std::string_view host)
{
    if (host.empty() || same_text(host, "localhost"))
        return true;
    if (host.starts_with('[') && host.ends_with(']'))
        host = host.substr(1, host.size() - 2);
    const std::string text(host);
    in6_addr address{};
    return ::inet_pton(AF_INET, text.c_str(), &address) == 1 ||
           ::inet_pton(AF_INET6, text.c_str(), &address) == 1;
}

} // namespace emuvctl::watch
