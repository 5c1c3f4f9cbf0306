// SPDX-License-Identifier: GPL-2.0-only
/*
 * Regions as dma-bufs, for access by devices.
 *
 * A dma-buf holds its region, and with it the pages. While a device has the
 * dma-buf mapped, no part of the region can be discarded.
 */
#include <linux/dma-buf.h>
#include <linux/dma-mapping.h>
#include <linux/highmem.h>
#include <linux/iosys-map.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "emuv.h"

EMUV_IMPORT_NS(DMA_BUF);

/*
 * struct emuv_dmabuf - an exported region
 * @mappings: Devices' mappings of it
 * @vaddr: Kernel mapping, shared by @vaddr_users
 */
struct emuv_dmabuf {
	struct emuv_region *region;
	struct mutex lock;	/* guards the rest */
	struct list_head mappings;
	void *vaddr;
	unsigned int vaddr_users;
};

/* struct emuv_dmabuf_mapping - one of perhaps several of an attachment */
struct emuv_dmabuf_mapping {
	struct list_head node;
	struct device *dev;
	struct sg_table table;
};

/* Back the whole region, and prevent discards of it. */
static int emuv_dmabuf_pin(struct emuv_region *region)
{
	int err;

	if (down_write_killable(&region->discard_sem))
		return -EINTR;
	atomic_inc(&region->devices);
	up_write(&region->discard_sem);
	err = emuv_backing_hold(region, 0, region->range.count);
	if (err)
		atomic_dec(&region->devices);
	return err;
}

static void emuv_dmabuf_unpin(struct emuv_region *region)
{
	emuv_backing_unhold(region, 0, region->range.count);
	atomic_dec(&region->devices);
}

/*
 * Collect all pages of a pinned region; the caller frees the array by kvfree().
 */
static struct page **emuv_dmabuf_pages(struct emuv_region *region,
				       unsigned long *count)
{
	unsigned long c, i, n = 0;
	struct page **pages;

	*count = region->range.count << EMUV_CHUNK_ORDER;
	pages = kvmalloc_array(*count, sizeof(*pages),
			       GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!pages)
		return NULL;
	for (c = 0; c < region->range.count; c++) {
		struct emuv_chunk *chunk = emuv_chunk_get(region, c);

		for (i = 0; i < EMUV_CHUNK_PAGES; i++)
			pages[n++] = emuv_chunk_page(chunk, i);
		emuv_chunk_put(chunk);
		cond_resched();
	}
	return pages;
}

/* The most bytes that a device can map in one piece, in whole pages. */
static unsigned int emuv_dmabuf_max_piece(struct device *dev)
{
	size_t bytes = dma_max_mapping_size(dev);

	if (!bytes || bytes > UINT_MAX)
		bytes = UINT_MAX;
	return max(round_down(bytes, PAGE_SIZE), PAGE_SIZE);
}

static int emuv_dmabuf_fill(struct emuv_dmabuf_mapping *map,
			    struct emuv_region *region)
{
	struct page **pages;
	unsigned long count;
	int err;

	pages = emuv_dmabuf_pages(region, &count);
	if (!pages)
		return -ENOMEM;
	/* merges adjacent pages into one entry */
	err = sg_alloc_table_from_pages_segment(&map->table, pages, count, 0,
						emuv_region_bytes(region),
						emuv_dmabuf_max_piece(map->dev),
						GFP_KERNEL);
	kvfree(pages);
	return err;
}

static struct sg_table *emuv_dmabuf_map(struct dma_buf_attachment *attach,
					enum dma_data_direction dir)
{
	struct emuv_dmabuf *buf = attach->dmabuf->priv;
	struct emuv_dmabuf_mapping *map;
	int err;

	map = kzalloc(sizeof(*map), GFP_KERNEL);
	if (!map)
		return ERR_PTR(-ENOMEM);
	map->dev = attach->dev;
	err = emuv_dmabuf_pin(buf->region);
	if (err)
		goto err_free;
	err = emuv_dmabuf_fill(map, buf->region);
	if (err)
		goto err_unpin;
	err = dma_map_sgtable(map->dev, &map->table, dir, 0);
	if (err)
		goto err_free_table;

	mutex_lock(&buf->lock);
	list_add(&map->node, &buf->mappings);
	mutex_unlock(&buf->lock);
	return &map->table;

err_free_table:
	sg_free_table(&map->table);
err_unpin:
	emuv_dmabuf_unpin(buf->region);
err_free:
	kfree(map);
	return ERR_PTR(err);
}

static void emuv_dmabuf_unmap(struct dma_buf_attachment *attach,
			      struct sg_table *table,
			      enum dma_data_direction dir)
{
	struct emuv_dmabuf *buf = attach->dmabuf->priv;
	struct emuv_dmabuf_mapping *map =
		container_of(table, struct emuv_dmabuf_mapping, table);

	mutex_lock(&buf->lock);
	list_del(&map->node);
	mutex_unlock(&buf->lock);
	dma_unmap_sgtable(map->dev, table, dir, 0);
	sg_free_table(table);
	kfree(map);
	emuv_dmabuf_unpin(buf->region);
}

static int emuv_dmabuf_begin_cpu_access(struct dma_buf *dmabuf,
					enum dma_data_direction dir)
{
	struct emuv_dmabuf *buf = dmabuf->priv;
	struct emuv_dmabuf_mapping *map;

	mutex_lock(&buf->lock);
	if (buf->vaddr)
		invalidate_kernel_vmap_range(buf->vaddr,
					     emuv_region_bytes(buf->region));
	list_for_each_entry(map, &buf->mappings, node)
		dma_sync_sgtable_for_cpu(map->dev, &map->table, dir);
	mutex_unlock(&buf->lock);
	return 0;
}

static int emuv_dmabuf_end_cpu_access(struct dma_buf *dmabuf,
				      enum dma_data_direction dir)
{
	struct emuv_dmabuf *buf = dmabuf->priv;
	struct emuv_dmabuf_mapping *map;

	mutex_lock(&buf->lock);
	if (buf->vaddr)
		flush_kernel_vmap_range(buf->vaddr,
					emuv_region_bytes(buf->region));
	list_for_each_entry(map, &buf->mappings, node)
		dma_sync_sgtable_for_device(map->dev, &map->table, dir);
	mutex_unlock(&buf->lock);
	return 0;
}

static int emuv_dmabuf_mmap(struct dma_buf *dmabuf, struct vm_area_struct *vma)
{
	struct emuv_dmabuf *buf = dmabuf->priv;

	return emuv_vm_mmap(buf->region, vma, NULL);
}

static int emuv_dmabuf_vmap(struct dma_buf *dmabuf, struct iosys_map *map)
{
	struct emuv_dmabuf *buf = dmabuf->priv;
	struct page **pages;
	unsigned long count;
	int err = 0;

	mutex_lock(&buf->lock);
	if (!buf->vaddr_users) {
		err = emuv_dmabuf_pin(buf->region);
		if (err)
			goto out;
		pages = emuv_dmabuf_pages(buf->region, &count);
		if (pages)
			buf->vaddr = vmap(pages, count, VM_MAP, PAGE_KERNEL);
		kvfree(pages);
		if (!buf->vaddr) {
			emuv_dmabuf_unpin(buf->region);
			err = -ENOMEM;
			goto out;
		}
	}
	buf->vaddr_users++;
	iosys_map_set_vaddr(map, buf->vaddr);
out:
	mutex_unlock(&buf->lock);
	return err;
}

static void emuv_dmabuf_vunmap(struct dma_buf *dmabuf, struct iosys_map *map)
{
	struct emuv_dmabuf *buf = dmabuf->priv;

	mutex_lock(&buf->lock);
	if (!--buf->vaddr_users) {
		vunmap(buf->vaddr);
		buf->vaddr = NULL;
		emuv_dmabuf_unpin(buf->region);
	}
	mutex_unlock(&buf->lock);
	iosys_map_clear(map);
}

static void emuv_dmabuf_release(struct dma_buf *dmabuf)
{
	struct emuv_dmabuf *buf = dmabuf->priv;

	emuv_region_put(buf->region);
	mutex_destroy(&buf->lock);
	kfree(buf);
}

static const struct dma_buf_ops emuv_dmabuf_ops = {
	.map_dma_buf = emuv_dmabuf_map,
	.unmap_dma_buf = emuv_dmabuf_unmap,
	.begin_cpu_access = emuv_dmabuf_begin_cpu_access,
	.end_cpu_access = emuv_dmabuf_end_cpu_access,
	.mmap = emuv_dmabuf_mmap,
	.vmap = emuv_dmabuf_vmap,
	.vunmap = emuv_dmabuf_vunmap,
	.release = emuv_dmabuf_release,
};

/*
 * Create a dma-buf, which takes over the caller's reference unless this fails.
 */
struct file *emuv_dmabuf_create(struct emuv_region *region, fmode_t mode)
{
	DEFINE_DMA_BUF_EXPORT_INFO(info);
	struct emuv_dmabuf *buf;
	struct dma_buf *dmabuf;

	buf = kzalloc(sizeof(*buf), GFP_KERNEL_ACCOUNT);
	if (!buf)
		return ERR_PTR(-ENOMEM);
	buf->region = region;
	mutex_init(&buf->lock);
	INIT_LIST_HEAD(&buf->mappings);

	info.ops = &emuv_dmabuf_ops;
	info.size = emuv_region_bytes(region);
	info.flags = mode & FMODE_WRITE ? O_RDWR : O_RDONLY;
	info.priv = buf;
	dmabuf = dma_buf_export(&info);
	if (IS_ERR(dmabuf)) {
		kfree(buf);
		return ERR_CAST(dmabuf);
	}
	dmabuf->file->f_mapping = region->inode->i_mapping;
	return dmabuf->file;
}
