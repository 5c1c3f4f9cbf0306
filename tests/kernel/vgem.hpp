// SPDX-License-Identifier: GPL-2.0-or-later
// A device that imports dma-bufs: vgem, a DRM device without hardware. It maps
// an imported dma-buf for as long as it holds the buffer.
#pragma once

#include "support.hpp"

#include <cerrno>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

#include <linux/types.h>
#include <sys/ioctl.h>
#include <sys/utsname.h>

namespace guest {

// From the kernel's drm.h, which is not on every machine.
struct drm_prime_handle
{
    __u32 handle;
    __u32 flags;
    __s32 fd;
};
struct drm_gem_close
{
    __u32 handle;
    __u32 pad;
};
constexpr unsigned long prime_fd_to_handle = _IOWR('d', 0x2e, drm_prime_handle);
constexpr unsigned long prime_handle_to_fd = _IOWR('d', 0x2d, drm_prime_handle);
constexpr unsigned long gem_close = _IOW('d', 0x09, drm_gem_close);

/// Opens the device; empty on a kernel without it.
inline descriptor open_vgem()
{
    if (!load_stock_module("vgem"))
        return descriptor();
    const char *const path = "/dev/dri/card0";
    wait_until([=] { return exists(path); });
    return descriptor(
        static_cast<int>(checked(open(path, O_RDWR | O_CLOEXEC), path)));
}

/// The running kernel's major and minor version.
inline std::pair<int, int> kernel_version()
{
    utsname names{};
    checked(uname(&names), "uname");
    std::pair<int, int> version;
    if (std::sscanf(names.release, "%d.%d", &version.first, &version.second) !=
        2)
        throw std::runtime_error(std::string("strange release ") +
                                 names.release);
    return version;
}

/// True if it maps what it imports. Since 6.17 it only attaches.
inline bool vgem_maps()
{
    return kernel_version() < std::pair{6, 17};
}

/// Attaches and maps a dma-buf; 0 or the errno, and the device's handle.
inline int vgem_import(const descriptor &device, const descriptor &buffer,
                       __u32 &handle)
{
    drm_prime_handle argument{0, 0, buffer.get()};
    const int error =
        error_of(ioctl(device.get(), prime_fd_to_handle, &argument));
    handle = argument.handle;
    return error;
}

/// Unmaps and detaches the buffer; 0 or the errno.
inline int vgem_drop(const descriptor &device, __u32 handle)
{
    drm_gem_close argument{handle, 0};
    return error_of(ioctl(device.get(), gem_close, &argument));
}

} // namespace guest
