// SPDX-License-Identifier: GPL-2.0-or-later
// Options that several verbs take.
#include "verb.hpp"

#include <utility>

namespace emuvctl {

option flag(const char *name, bool &set, const char *help)
{
    return {name, "", help, &set};
}

option config_option(std::string &config)
{
    return {"--config", "FILE",
            "profile file, '-': standard input; its drop-ins\n"
            "are FILE.d/*.conf. Default: $EMUV_CONFIG or\n"
            "/etc/emuv/vgpu-profiles.conf",
            &config, offered::files};
}

option dry_run_flag(bool &dry_run)
{
    return flag("--dry-run", dry_run,
                "only say what would be done; needs no rights");
}

option json_flag(output_options &output)
{
    return flag("--json", output.json, "print JSON");
}

option module_option(std::string &module)
{
    return {"--module", "MODULE", "its file, or its name for modprobe", &module,
            offered::files};
}

arguments instance_arguments(std::vector<std::string> &instances)
{
    return {"INSTANCE", &instances, offered::instances};
}

void add_output(verb &to, output_options &output,
                std::span<const column> columns)
{
    to.columns = columns;
    for (auto &each : std::vector<option>{
             json_flag(output),
             {"-o,--output", "COLUMNS",
              "print these columns, comma-separated, or all;\n"
              "'+' before them adds to the default ones",
              &output.columns, offered::columns},
             flag("--bytes", output.bytes, "print sizes in bytes"),
             flag("--raw", output.raw,
                  "print no alignment, one blank between columns"),
             flag("--noheadings", output.noheadings, "print no headings"),
             {"--query", "COLUMNS",
              "print these columns as CSV, as nvidia-smi does", &output.query,
              offered::columns},
             {"--format",
              "WORDS",
              "with --query: csv, noheader, nounits",
              &output.format,
              offered::words,
              {{"csv"},
               {"csv,noheader"},
               {"csv,nounits"},
               {"csv,noheader,nounits"}}},
             {"--sort", "COLUMNS",
              "sort by these, '-' before one: largest first", &output.sort,
              offered::columns},
             {"--filter", "CONDITIONS",
              "print only what fits, as in 'clients>0,name~1';\n"
              "=, !=, <, <=, >, >=, and ~: has",
              &output.filter},
             {"--color",
              "WHEN",
              "auto (on a terminal), always or never",
              &output.color,
              offered::words,
              {{"auto"}, {"always"}, {"never"}}}})
        to.options.push_back(std::move(each));
}

} // namespace emuvctl
