// SPDX-License-Identifier: GPL-2.0-only
/*
 * Mapping an offset space: shared mappings of ordinary pages, a whole chunk a
 * fault.
 *
 * A fault inserts all pages of the chunk that lie in the mapping (VM_MIXEDMAP).
 * A 2 MiB folio in one large entry would map faster, but only in mappings of
 * whole, aligned chunks. Other mappings, and chunks of single pages, would get
 * one page a fault.
 */
#include <linux/sched/signal.h>

#include "emuv.h"
#include "trace.h"

/* Pages inserted at once; their array is on the stack. */
#define EMUV_VM_BATCH	32

/*
 * A mapping keeps its region alive (vm_private_data); NULL there means the raw
 * offset space. Its vm_pgoff is always a place in the offset space, through
 * whichever descriptor the mapping came.
 */
static struct emuv_instance *emuv_vm_instance(struct vm_area_struct *vma)
{
	struct emuv_region *region = vma->vm_private_data;
	struct emuv_client *client;

	if (region)
		return region->inst;
	client = vma->vm_file->private_data;
	return client->inst;
}

static void emuv_vm_open(struct vm_area_struct *vma)
{
	struct emuv_region *region = vma->vm_private_data;

	if (region)
		emuv_region_get(region);
}

static void emuv_vm_close(struct vm_area_struct *vma)
{
	struct emuv_region *region = vma->vm_private_data;

	if (region)
		emuv_region_put(region);
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
		err = vm_insert_pages(vma, addr, pages, &left);
		start += count - left;
		if (err == -EBUSY)
			start++;
		else if (err)
			return err;
	}
	return 0;
}

static vm_fault_t emuv_vm_fault(struct vm_fault *vmf)
{
	struct vm_area_struct *vma = vmf->vma;
	struct emuv_instance *inst = emuv_vm_instance(vma);
	struct emuv_region *region = vma->vm_private_data;
	unsigned long index = vmf->pgoff >> EMUV_CHUNK_ORDER;
	struct emuv_chunk *chunk;
	vm_fault_t ret;
	int err;

	if (region ? index - region->range.first >= region->range.count :
		     index >= inst->ranges.size)
		return VM_FAULT_SIGBUS;

	for (;;) {
		chunk = emuv_chunk_back(inst, index,
					region ? region->memcg : NULL);
		if (IS_ERR(chunk))
			return VM_FAULT_SIGBUS;
		down_read(&inst->map_sem);
		if (emuv_chunk_is_current(inst, index, chunk))
			break;
		/* discarded meanwhile */
		up_read(&inst->map_sem);
		emuv_chunk_put(chunk);
		if (fatal_signal_pending(current))
			return VM_FAULT_SIGBUS;
		cond_resched();
	}
	err = emuv_vm_map_chunk(vma, index, chunk);
	ret = err ? vmf_error(err) : VM_FAULT_NOPAGE;
	up_read(&inst->map_sem);
	if (PageHWPoison(emuv_chunk_page(chunk, vmf->pgoff &
						(EMUV_CHUNK_PAGES - 1)))) {
		emuv_backing_fail(inst, (u64)vmf->pgoff << PAGE_SHIFT);
		ret = VM_FAULT_HWPOISON;
	}
	emuv_chunk_put(chunk);
	trace_emuv_fault(inst->config.id, index,
			 (__force unsigned int)ret);
	return ret;
}

static const struct vm_operations_struct emuv_vm_ops = {
	.open = emuv_vm_open,
	.close = emuv_vm_close,
	.fault = emuv_vm_fault,
};

/*
 * Set up a mapping of a region, which the mapping then holds. With NULL it maps
 * the raw offset space. vm_pgoff is a place in the offset space.
 */
int emuv_vm_mmap(struct emuv_instance *inst, struct emuv_region *region,
		 struct vm_area_struct *vma)
{
	pgoff_t first = 0, last = (pgoff_t)inst->ranges.size << EMUV_CHUNK_ORDER;

	/* no private mappings: they would promise copy-on-write */
	if (!(vma->vm_flags & VM_MAYSHARE))
		return -EINVAL;
	if (region) {
		first = region->range.first << EMUV_CHUNK_ORDER;
		last = first + (region->range.count << EMUV_CHUNK_ORDER);
	}
	if (vma->vm_pgoff < first || vma->vm_pgoff > last ||
	    vma_pages(vma) > last - vma->vm_pgoff)
		return -EINVAL;

	/* VM_MIXEDMAP: ordinary pages, inserted chunk by chunk under map_sem */
	vm_flags_set(vma, VM_MIXEDMAP | VM_DONTEXPAND | VM_DONTDUMP);
	vma->vm_private_data = region;
	vma->vm_ops = &emuv_vm_ops;
	emuv_vm_open(vma);
	return 0;
}
