/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Differences between the kernels that emuV builds for. The code itself is
 * written for the newest; only this file checks versions.
 */
#ifndef EMUV_COMPAT_H
#define EMUV_COMPAT_H

#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/shrinker.h>
#include <linux/slab.h>
#include <linux/uio.h>
#include <linux/version.h>

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 1, 0)
#error "emuV needs Linux 6.1 or later"
#endif

/* class.devnode takes a const device from 6.2 on */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 2, 0)
#define EMUV_DEVNODE_CONST
#else
#define EMUV_DEVNODE_CONST const
#endif

/* type of a mount's id mapping in inode operations */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 3, 0)
#define EMUV_IDMAP struct user_namespace
#else
#define EMUV_IDMAP struct mnt_idmap
#endif

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 3, 0)
static inline void vm_flags_set(struct vm_area_struct *vma, vm_flags_t flags)
{
	vma->vm_flags |= flags;
}
#endif

/* from 6.5 on, reads into pipes go to pages that are there already */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 5, 0)
#define copy_splice_read generic_file_splice_read
#define EMUV_ITER_IS_PIPE(iter) iov_iter_is_pipe(iter)
#else
#define EMUV_ITER_IS_PIPE(iter) false
#endif

/* the unbound queue's name until 6.18 */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 18, 0)
#define system_dfl_wq system_unbound_wq
#endif

/* shrinkers are allocated by the kernel from 6.7 on */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 7, 0)
static inline struct shrinker *emuv_shrinker_alloc(const char *name)
{
	return kzalloc(sizeof(struct shrinker), GFP_KERNEL);
}

static inline int emuv_shrinker_register(struct shrinker *shrinker,
					 const char *name)
{
	return register_shrinker(shrinker, "%s", name);
}

static inline void emuv_shrinker_free(struct shrinker *shrinker)
{
	unregister_shrinker(shrinker);
	kfree(shrinker);
}
#else
static inline struct shrinker *emuv_shrinker_alloc(const char *name)
{
	return shrinker_alloc(0, "%s", name);
}

static inline int emuv_shrinker_register(struct shrinker *shrinker,
					 const char *name)
{
	shrinker_register(shrinker);
	return 0;
}

static inline void emuv_shrinker_free(struct shrinker *shrinker)
{
	shrinker_free(shrinker);
}
#endif

/* until 6.6 such mappings' faults come with mmap_lock, never with less */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 6, 0)
static inline void release_fault_lock(struct vm_fault *vmf)
{
	mmap_read_unlock(vmf->vma->vm_mm);
}
#endif

/* namespaces are strings from 6.13 on */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 13, 0)
#define EMUV_IMPORT_NS(ns) MODULE_IMPORT_NS(ns)
#else
#define EMUV_IMPORT_NS(ns) MODULE_IMPORT_NS(#ns)
#endif

#endif /* EMUV_COMPAT_H */
