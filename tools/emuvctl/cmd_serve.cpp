// SPDX-License-Identifier: GPL-2.0-or-later
// emuvctl serve: shows the instances over HTTP, as metrics and as a page.
#include "environment.hpp"
#include "failure.hpp"
#include "instances.hpp"
#include "sampling.hpp"
#include "verbs.hpp"
#include "watch/metrics.hpp"
#include "watch/page.hpp"
#include "watch/server.hpp"

#include <emuv/error.hpp>

#include <memory>
#include <optional>
#include <system_error>

#include <fmt/format.h>

namespace emuvctl {

namespace {

constexpr const char *default_endpoint = "127.0.0.1:9745";

struct serve_options
{
    std::vector<std::string> instances;
    std::string listen = default_endpoint;
    bool no_clients = false;
};

void cmd_serve(const serve_options &options, environment &env)
{
    const auto ids = parse_instances(options.instances, env);
    const auto where = parse_option("--listen", [&] {
        return watch::parse_endpoint(printable(options.listen));
    });
    std::optional<watch::server> server;
    try {
        server.emplace(where);
    } catch (const std::system_error &problem) {
        throw failure(fmt::format("cannot listen at {}: {}", where.text(),
                                  emuv::errno_text(problem.code().value())));
    }
    const std::string at = server->where().text();
    if (!server->where().loopback())
        env.say(fmt::format("anyone who reaches {} can read this: there is no "
                            "password and no encryption",
                            at));
    env.say(fmt::format("a page at http://{0}/, metrics at http://{0}/metrics; "
                        "until interrupted",
                        at));
    const auto answer = [&](std::string_view path) -> watch::response {
        if (path == "/")
            return {200, "text/html; charset=utf-8",
                    std::string(watch::page())};
        if (path == "/metrics")
            return {200, std::string(watch::metrics_type),
                    watch::metrics_text(
                        take_sample({ids, !options.no_clients, true}, env))};
        return {404, watch::response{}.type, "there are / and /metrics\n"};
    };
    server->run([&env] { return env.wait(0); }, answer);
}

} // namespace

verb serve_verb()
{
    const auto options = std::make_shared<serve_options>();
    verb serve{"serve", "Instances", "show instances over HTTP",
               "Shows instances and their clients over HTTP until interrupted: "
               "a live page at\n/, metrics for Prometheus at /metrics. It only "
               "answers, and changes nothing.\n"
               "  emuvctl serve --listen 127.0.0.1:9745"};
    serve.arguments = instance_arguments(options->instances);
    serve.options = {
        {"--listen", "ADDRESS:PORT",
         "address. Other machines reach it only if an address\n"
         "of this one, or 0.0.0.0, is named. "
         "Default:\n127.0.0.1:9745",
         &options->listen},
        flag("--no-clients", options->no_clients, "show instances only")};
    serve.action = [options](environment &env) { cmd_serve(*options, env); };
    return serve;
}

} // namespace emuvctl
