// SPDX-License-Identifier: GPL-2.0-only
/*
 * Mapping a region: shared mappings of ordinary pages, a whole chunk a fault.
 *
 * A fault inserts all pages of the chunk that lie in the mapping. Mappings of
 * whole, aligned chunks get a folio in one large entry instead, where the kernel
 * lets modules make such entries. These mappings are like those of a file: the
 * kernel loses count of a large entry that it splits if VM_MIXEDMAP is set. All
 * others have VM_MIXEDMAP, which many pages at once need.
 */
#include <linux/file.h>

#include "emuv.h"
#include "trace.h"

/* Pages inserted at once; their array is on the stack. */
#define EMUV_VM_BATCH	32

/*
 * A mapping's file is a descriptor of the region, or a dma-buf, and keeps the
 * region alive. The file's mapping is that of the region's inode.
 */
static struct emuv_region *emuv_vm_region(struct vm_area_struct *vma)
{
	return vma->vm_file->f_mapping->host->i_private;
}

/* A mapping that came through a node keeps that file open (vm_private_data). */
static void emuv_vm_open(struct vm_area_struct *vma)
{
	struct file *keeper = vma->vm_private_data;

	if (keeper)
		get_file(keeper);
}

static void emuv_vm_close(struct vm_area_struct *vma)
{
	struct file *keeper = vma->vm_private_data;

	if (keeper)
		fput(keeper);
}

/* Collect at most @count pages of a chunk, up to the first failed page. */
static unsigned long emuv_vm_pages(const struct emuv_chunk *chunk,
				   unsigned long first, unsigned long count,
				   struct page **pages)
{
	unsigned long i;

	for (i = 0; i < count; i++) {
		pages[i] = emuv_chunk_page(chunk, first + i);
		if (PageHWPoison(pages[i]))
			break;
	}
	return i;
}

/* Can large entries map the whole mapping, a chunk each? */
static bool emuv_vm_is_of_chunks(const struct vm_area_struct *vma)
{
	return emuv_has_large_entries() && PMD_SHIFT == EMUV_CHUNK_SHIFT &&
	       IS_ALIGNED(vma->vm_start | vma->vm_end, EMUV_CHUNK_BYTES) &&
	       IS_ALIGNED(vma->vm_pgoff, EMUV_CHUNK_PAGES);
}

/*
 * Can one large entry map the faulting chunk, as far as nothing about that changes
 * during faults? Not if the kernel wants to see each write, since it would split
 * the entry then, for ever.
 */
static bool emuv_vm_fits_large(const struct vm_fault *vmf,
			       const struct emuv_chunk *chunk)
{
	struct vm_area_struct *vma = vmf->vma;
	unsigned long start = round_down(vmf->address, EMUV_CHUNK_BYTES);
	unsigned long before = PFN_DOWN(vmf->address - start);

	return chunk->folio && !(vma->vm_flags & VM_MIXEDMAP) &&
	       !emuv_vma_refuses_huge(vma) && start >= vma->vm_start &&
	       start + EMUV_CHUNK_BYTES <= vma->vm_end &&
	       IS_ALIGNED(vmf->pgoff - before, EMUV_CHUNK_PAGES) &&
	       (!(vma->vm_flags & VM_WRITE) ||
		pte_write(pfn_pte(0, vma->vm_page_prot)));
}

/* Insert pages; @count becomes the number of those that are left. */
static int emuv_vm_insert(struct vm_area_struct *vma, unsigned long addr,
			  struct page **pages, unsigned long *count)
{
	vm_fault_t ret;

	if (vma->vm_flags & VM_MIXEDMAP)
		return vm_insert_pages(vma, addr, pages, count);
	while (*count) {
		ret = emuv_insert_page(vma, addr, *pages);
		if (ret != VM_FAULT_NOPAGE)
			return ret & VM_FAULT_OOM ? -ENOMEM : -EFAULT;
		addr += PAGE_SIZE;
		pages++;
		--*count;
	}
	return 0;
}

/*
 * Map the part of a chunk that lies in the mapping. A concurrent fault may have
 * inserted a page already; that page is the same one.
 */
static int emuv_vm_map_chunk(struct vm_area_struct *vma, unsigned long index,
			     const struct emuv_chunk *chunk)
{
	pgoff_t chunk_start = index << EMUV_CHUNK_ORDER;
	pgoff_t start = max(chunk_start, vma->vm_pgoff);
	pgoff_t end = min(chunk_start + EMUV_CHUNK_PAGES,
			  vma->vm_pgoff + vma_pages(vma));

	while (start < end) {
		unsigned long addr = vma->vm_start +
				     ((start - vma->vm_pgoff) << PAGE_SHIFT);
		struct page *pages[EMUV_VM_BATCH];
		unsigned long count, left;
		int err;

		count = emuv_vm_pages(chunk, start - chunk_start,
				      min_t(unsigned long, end - start,
					    EMUV_VM_BATCH), pages);
		if (!count) {
			start++;
			continue;
		}
		left = count;
		err = emuv_vm_insert(vma, addr, pages, &left);
		start += count - left;
		if (err == -EBUSY)
			start++;
		else if (err)
			return err;
	}
	return 0;
}

/*
 * Map a chunk that fits a large entry: by one, unless a page of it has failed or
 * the page table has entries for pages. These are only put in by a fault that is
 * @alone: nobody may put in a large entry meanwhile. VM_FAULT_FALLBACK if the
 * fault has to be.
 *
 * The first fault that finds a failed page takes the chunk out of all mappings:
 * a large entry in any of them maps that page. The chunk is never mapped by one
 * again. So later faults take nothing from other mappings.
 */
static vm_fault_t emuv_vm_map_large(struct vm_fault *vmf,
				    struct emuv_region *region,
				    unsigned long index,
				    struct emuv_chunk *chunk, bool alone)
{
	bool sound = emuv_chunk_sound(chunk, 0, EMUV_CHUNK_BYTES) ==
		     EMUV_CHUNK_BYTES;
	int err;

	if (sound && emuv_is_unmapped(vmf))
		return emuv_insert_folio(vmf, chunk->folio);
	/* another fault was faster */
	if (sound && emuv_is_mapped_large(vmf))
		return VM_FAULT_NOPAGE;
	if (!alone)
		return VM_FAULT_FALLBACK;
	if (!sound) {
		emuv_backing_unmap(region, index, index);
		chunk->by_pages = true;
	}
	err = emuv_vm_map_chunk(vmf->vma, index, chunk);
	return err ? vmf_error(err) : VM_FAULT_NOPAGE;
}

static vm_fault_t emuv_vm_map(struct vm_fault *vmf, struct emuv_region *region,
			      unsigned long index, struct emuv_chunk *chunk,
			      bool alone)
{
	int err;

	if (!chunk->by_pages && emuv_vm_fits_large(vmf, chunk))
		return emuv_vm_map_large(vmf, region, index, chunk, alone);
	err = emuv_vm_map_chunk(vmf->vma, index, chunk);
	return err ? vmf_error(err) : VM_FAULT_NOPAGE;
}

/*
 * Map a chunk that the caller holds. A held chunk stays in its place, whatever is
 * discarded, reclaimed or revoked. But of a revoked region nothing is mapped.
 * @alone: no other fault maps meanwhile.
 */
static vm_fault_t emuv_vm_map_held(struct vm_fault *vmf,
				   struct emuv_region *region,
				   unsigned long index,
				   struct emuv_chunk *chunk, bool alone)
{
	vm_fault_t ret = VM_FAULT_SIGBUS;

	if (alone)
		down_write(&region->map_sem);
	else
		down_read(&region->map_sem);
	if (!emuv_region_is_revoked(region))
		ret = emuv_vm_map(vmf, region, index, chunk, alone);
	if (alone)
		up_write(&region->map_sem);
	else
		up_read(&region->map_sem);
	return ret;
}

/*
 * Get a chunk into RAM without mmap_lock, if it is not there and the fault can be
 * tried again. So whoever waits for a swap file, or for RAM, holds up no other
 * thread of the process. VM_FAULT_RETRY then, whatever came of it; the mapping
 * may have gone. Otherwise 0, with the lock held: there is nothing to wait for,
 * or the second try waits with it, so that a fault ends.
 */
static vm_fault_t emuv_vm_fetch(struct vm_fault *vmf,
				struct emuv_region *region, unsigned long index)
{
	struct emuv_chunk *chunk;
	struct file *keeper;

	if (!emuv_instance_swaps(region->inst) ||
	    emuv_chunk_is_in_ram(region, index) ||
	    !fault_flag_allow_retry_first(vmf->flags))
		return 0;
	/* such a caller waits for nothing, and keeps the lock */
	if (vmf->flags & FAULT_FLAG_RETRY_NOWAIT)
		return VM_FAULT_RETRY;
	/* keeps region and module, when others take the mapping away */
	keeper = get_file(vmf->vma->vm_file);
	release_fault_lock(vmf);
	chunk = emuv_chunk_back(region, index);
	/* after an error the second try gives the answer */
	if (!IS_ERR(chunk))
		emuv_chunk_let_go(region, index, chunk);
	fput(keeper);
	return VM_FAULT_RETRY;
}

static vm_fault_t emuv_vm_fault(struct vm_fault *vmf)
{
	struct emuv_region *region = emuv_vm_region(vmf->vma);
	unsigned long index = vmf->pgoff >> EMUV_CHUNK_ORDER;
	struct emuv_chunk *chunk;
	vm_fault_t ret;

	if (index >= region->range.count)
		return VM_FAULT_SIGBUS;
	ret = emuv_vm_fetch(vmf, region, index);
	if (ret)
		return ret;

	chunk = emuv_chunk_back(region, index);
	if (IS_ERR(chunk))
		return VM_FAULT_SIGBUS;
	ret = emuv_vm_map_held(vmf, region, index, chunk, false);
	if (ret == VM_FAULT_FALLBACK)
		ret = emuv_vm_map_held(vmf, region, index, chunk, true);
	if (ret == VM_FAULT_NOPAGE &&
	    PageHWPoison(emuv_chunk_page(chunk, vmf->pgoff &
						(EMUV_CHUNK_PAGES - 1)))) {
		emuv_backing_fail(region, (u64)vmf->pgoff << PAGE_SHIFT);
		ret = VM_FAULT_HWPOISON;
	}
	emuv_chunk_let_go(region, index, chunk);
	trace_emuv_fault(region->inst->config.id, region->range.first + index,
			 (__force unsigned int)ret);
	return ret;
}

static const struct vm_operations_struct emuv_vm_ops = {
	.open = emuv_vm_open,
	.close = emuv_vm_close,
	.fault = emuv_vm_fault,
};

/*
 * Set up a mapping of a region; vm_pgoff is a place in the region. The mapping
 * keeps @keeper open, too, unless it is NULL.
 */
int emuv_vm_mmap(struct emuv_region *region, struct vm_area_struct *vma,
		 struct file *keeper)
{
	pgoff_t pages = (pgoff_t)region->range.count << EMUV_CHUNK_ORDER;

	if (emuv_region_is_revoked(region))
		return -ENODEV;
	/* no private mappings: they would promise copy-on-write */
	if (!(vma->vm_flags & VM_MAYSHARE))
		return -EINVAL;
	if (vma->vm_pgoff >= pages || vma_pages(vma) > pages - vma->vm_pgoff)
		return -EINVAL;

	vm_flags_set(vma, VM_DONTEXPAND | VM_DONTDUMP);
	if (!emuv_vm_is_of_chunks(vma))
		vm_flags_set(vma, VM_MIXEDMAP);
	vma->vm_private_data = keeper;
	vma->vm_ops = &emuv_vm_ops;
	emuv_vm_open(vma);
	return 0;
}
