// SPDX-License-Identifier: LGPL-2.1-or-later
// The kernel module as a file, through libkmod.
#include <emuv/error.hpp>
#include <emuv/module.hpp>

#include <cerrno>
#include <cstdarg>
#include <memory>
#include <string_view>

#include <libkmod.h>
#include <unistd.h>

namespace emuv {

namespace {

struct unref
{
    void operator()(kmod_ctx *context) const { kmod_unref(context); }
    void operator()(kmod_module *module) const { kmod_module_unref(module); }
    void operator()(kmod_list *list) const { kmod_module_unref_list(list); }
};
struct free_info
{
    void operator()(kmod_list *list) const { kmod_module_info_free_list(list); }
};
using context_ptr = std::unique_ptr<kmod_ctx, unref>;
using module_ptr = std::unique_ptr<kmod_module, unref>;
using module_list = std::unique_ptr<kmod_list, unref>;

void check(int result, const std::string &module, const char *call)
{
    if (result < 0)
        throw error(-result, module, call);
}

// libkmod writes to stderr on its own account; errors come back as numbers,
// and the caller words them.
void stay_quiet(void * /*data*/, int /*priority*/, const char * /*file*/,
                int /*line*/, const char * /*function*/,
                const char * /*format*/, va_list /*arguments*/)
{}

context_ptr open_context()
{
    context_ptr context(kmod_new(nullptr, nullptr));
    check(context ? 0 : -ENOMEM, "libkmod", "lookup");
    kmod_set_log_fn(context.get(), stay_quiet, nullptr);
    return context;
}

bool is_path(std::string_view module)
{
    return module.find('/') != std::string_view::npos;
}

// The module at a path, or of that name below /lib/modules; null if there is
// no such file.
module_ptr find(kmod_ctx *context, const std::string &module)
{
    kmod_module *found = nullptr;
    if (is_path(module)) {
        if (::access(module.c_str(), F_OK) != 0)
            return nullptr;
        check(kmod_module_new_from_path(context, module.c_str(), &found),
              module, "lookup");
        return module_ptr(found);
    }
    kmod_list *list = nullptr;
    check(kmod_module_new_from_lookup(context, module.c_str(), &list), module,
          "lookup");
    const module_list owned(list);
    if (!owned)
        return nullptr;
    module_ptr first(kmod_module_get_module(list));
    // A lookup also finds a loaded module that has no file.
    if (kmod_module_get_path(first.get()) == nullptr)
        return nullptr;
    return first;
}

class running_kernel final : public module_api
{
public:
    void load(const std::string &module, const std::string &parameters) override
    {
        const auto context = open_context();
        const auto target = find(context.get(), module);
        check(target ? 0 : -ENOENT, module, "lookup");
        const int result =
            is_path(module)
                ? kmod_module_insert_module(target.get(), 0, parameters.c_str())
                : kmod_module_probe_insert_module(
                      target.get(), KMOD_PROBE_FAIL_ON_LOADED,
                      parameters.c_str(), nullptr, nullptr, nullptr);
        // A positive number says that the administrator's blacklist stopped it.
        check(result > 0 ? -EPERM : result, module, "init_module");
    }

    void unload(const std::string &name) override
    {
        const auto context = open_context();
        kmod_module *found = nullptr;
        check(kmod_module_new_from_name(context.get(), name.c_str(), &found),
              name, "lookup");
        const module_ptr target(found);
        check(kmod_module_remove_module(found, KMOD_REMOVE_NOLOG), name,
              "delete_module");
    }

    std::optional<module_file> info(const std::string &module) override
    {
        const auto context = open_context();
        const auto target = find(context.get(), module);
        if (!target)
            return std::nullopt;
        kmod_list *list = nullptr;
        check(kmod_module_get_info(target.get(), &list), module, "lookup");
        const std::unique_ptr<kmod_list, free_info> owned(list);
        module_file file;
        file.path = kmod_module_get_path(target.get());
        kmod_list *item = nullptr;
        kmod_list_foreach(item, list)
        {
            const std::string_view key = kmod_module_info_get_key(item);
            const std::string_view value = kmod_module_info_get_value(item);
            if (key == "version")
                file.version = value;
            else if (key == "vermagic")
                file.vermagic = value;
            else if (key == "signer")
                file.signer = value;
            else if (key == "parm")
                add_parameter(file, value);
        }
        return file;
    }

private:
    // "NAME:DESCRIPTION"
    static void add_parameter(module_file &file, std::string_view value)
    {
        const auto colon = value.find(':');
        const std::string name(value.substr(0, colon));
        const std::string description(
            colon == std::string_view::npos ? "" : value.substr(colon + 1));
        file.parameters.emplace_back(name, description);
    }
};

} // namespace

module_api::~module_api() = default;

module_api &module_api::system()
{
    static running_kernel kernel;
    return kernel;
}

} // namespace emuv
