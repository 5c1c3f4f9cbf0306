/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Differences between the kernels that emuV builds for. The code itself is
 * written for the newest; only this file checks versions.
 */
#ifndef EMUV_COMPAT_H
#define EMUV_COMPAT_H

#include <linux/fs.h>
#include <linux/huge_mm.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/shrinker.h>
#include <linux/slab.h>
#include <linux/uio.h>
#include <linux/version.h>

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 1, 0)
#error "emuV needs Linux 6.1 or later"
#endif

/* its sizes are counted in bytes, some of them in a long */
#ifndef CONFIG_64BIT
#error "emuV needs a 64-bit kernel"
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

/* get a file that its last user may be letting go of; the kernel's from 6.7 on */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 7, 0)
static inline struct file *get_file_active(struct file **f)
{
	struct file *file;

	rcu_read_lock();
	file = READ_ONCE(*f);
	if (file && !get_file_rcu(file))
		file = NULL;
	rcu_read_unlock();
	return file;
}
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

/*
 * Large entries: one entry maps a 2 MiB folio, with a reference and in the
 * counters, as for a file's huge page. Only from 6.15 on do modules have what
 * that takes. That kernel marks the entry special, and get_user_pages() refuses
 * it. Kernels between the fix and 7.0 have not been tried.
 */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 0, 0) && \
	defined(CONFIG_TRANSPARENT_HUGEPAGE)
#define emuv_get_unmapped_area thp_get_unmapped_area

static inline bool emuv_has_large_entries(void)
{
	return has_transparent_hugepage();
}

/* Do the program's settings refuse large entries in this mapping? */
static inline bool emuv_vma_refuses_huge(struct vm_area_struct *vma)
{
	return vma_thp_disabled(vma, vma->vm_flags, false);
}

/*
 * Map a folio that the mapping has whole and aligned. Does nothing if something
 * is mapped there already. The entry is writable if the mapping's pages are.
 */
static inline vm_fault_t emuv_insert_folio(struct vm_fault *vmf,
					   struct folio *folio)
{
	return vmf_insert_folio_pmd(vmf, folio, false);
}

/*
 * Map a page at any address of a mapping without VM_MIXEDMAP, unless something
 * is mapped there already. The kernel's function looks at mapping and address
 * alone.
 */
static inline vm_fault_t emuv_insert_page(struct vm_area_struct *vma,
					  unsigned long addr, struct page *page)
{
	struct vm_fault at = { .vma = vma, .address = addr };

	return vmf_insert_page_mkwrite(&at, page, false);
}

/* Is nothing mapped in the 2 MiB round a fault, not even a table? */
static inline bool emuv_is_unmapped(const struct vm_fault *vmf)
{
	return pmd_none(pmdp_get_lockless(vmf->pmd));
}

/* Does a large entry map these 2 MiB? */
static inline bool emuv_is_mapped_large(const struct vm_fault *vmf)
{
	return pmd_trans_huge(pmdp_get_lockless(vmf->pmd));
}

/*
 * Tell the kernel that a folio is no file's huge page. Code that splits huge
 * pages asks a folio for its file, and this one has none.
 */
static inline void emuv_folio_disown(struct folio *folio)
{
	folio_clear_large_rmappable(folio);
}
#else
#define emuv_get_unmapped_area NULL

static inline bool emuv_has_large_entries(void)
{
	return false;
}

static inline bool emuv_vma_refuses_huge(struct vm_area_struct *vma)
{
	return true;
}

static inline vm_fault_t emuv_insert_folio(struct vm_fault *vmf,
					   struct folio *folio)
{
	return VM_FAULT_SIGBUS;
}

static inline vm_fault_t emuv_insert_page(struct vm_area_struct *vma,
					  unsigned long addr, struct page *page)
{
	return VM_FAULT_SIGBUS;
}

static inline bool emuv_is_unmapped(const struct vm_fault *vmf)
{
	return false;
}

static inline bool emuv_is_mapped_large(const struct vm_fault *vmf)
{
	return false;
}

static inline void emuv_folio_disown(struct folio *folio)
{
}
#endif

/*
 * The device-memory cgroup. Kernels from 6.14 on have it as well. They lack what
 * it takes to return a charge in parts.
 */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 3, 0)
#include <linux/cgroup_dmem.h>

static inline struct dmem_cgroup_region *emuv_dmem_register(u64 size, int id)
{
	const struct dmem_cgroup_init init = { .size = size };

	return dmem_cgroup_register_region(&init, "emuv/emuv%d", id);
}
#else
struct dmem_cgroup_region;
struct dmem_cgroup_pool_state;

static inline struct dmem_cgroup_region *emuv_dmem_register(u64 size, int id)
{
	return NULL;
}

static inline void
dmem_cgroup_unregister_region(struct dmem_cgroup_region *region)
{
}

static inline int
dmem_cgroup_try_charge(struct dmem_cgroup_region *region, u64 size,
		       struct dmem_cgroup_pool_state **pool,
		       struct dmem_cgroup_pool_state **full)
{
	*pool = NULL;
	return 0;
}

static inline void dmem_cgroup_uncharge(struct dmem_cgroup_pool_state *pool,
					u64 size)
{
}

static inline struct dmem_cgroup_pool_state *
dmem_cgroup_get_common_ancestor(struct dmem_cgroup_pool_state *a,
				struct dmem_cgroup_pool_state *b)
{
	return NULL;
}

static inline void
dmem_cgroup_pool_state_put(struct dmem_cgroup_pool_state *pool)
{
}
#endif

/* namespaces are strings from 6.13 on */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 13, 0)
#define EMUV_IMPORT_NS(ns) MODULE_IMPORT_NS(ns)
#else
#define EMUV_IMPORT_NS(ns) MODULE_IMPORT_NS(#ns)
#endif

#endif /* EMUV_COMPAT_H */
