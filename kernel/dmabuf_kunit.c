// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests of dmabuf.c, with a device that counts what it is asked for, and
 * with the kernel's own mapping, which few importers make.
 */
#include <kunit/test.h>
#include <linux/device.h>
#include <linux/dma-mapping.h>

#include "emuv.h"

int emuv_vm_mmap(struct emuv_region *region, struct vm_area_struct *vma,
		 struct file *keeper)
{
	return -EINVAL;
}

static size_t dmabuf_max_mapping_size(struct device *dev);
static int dmabuf_map_table(struct device *dev, struct sg_table *table);
static void dmabuf_unmap_table(struct device *dev, struct sg_table *table);
static void dmabuf_sync_for_cpu(struct device *dev);
static void dmabuf_sync_for_device(struct device *dev);

#define dma_max_mapping_size(dev)	dmabuf_max_mapping_size(dev)
#define dma_map_sgtable(dev, table, dir, attrs) \
	dmabuf_map_table(dev, table)
#define dma_unmap_sgtable(dev, table, dir, attrs) \
	dmabuf_unmap_table(dev, table)
#define dma_sync_sgtable_for_cpu(dev, table, dir) \
	dmabuf_sync_for_cpu(dev)
#define dma_sync_sgtable_for_device(dev, table, dir) \
	dmabuf_sync_for_device(dev)
/* backing_kunit.c has the other functions that it needs */
#include "dmabuf.c"

#define CHUNKS		3
#define MAX_PIECE	(64 * PAGE_SIZE + PAGE_SIZE / 2)

/*
 * struct dmabuf_model - a region that is exported, and a device
 * @attach: The device's attachment to @dmabuf
 * @max_piece: Most bytes that the device maps in one piece
 * @mapped: Tables that the device has mapped
 * @synced: Tables that were synchronised for the CPU, and for the device
 */
struct dmabuf_model {
	struct emuv_instance inst;
	struct emuv_payer payer;
	struct emuv_region region;
	struct inode inode;
	struct emuv_dmabuf buf;
	struct dma_buf dmabuf;
	struct dma_buf_attachment attach;
	struct device dev;
	size_t max_piece;
	unsigned int mapped;
	unsigned int synced_for_cpu;
	unsigned int synced_for_device;
};

static struct dmabuf_model *dmabuf_model_of(struct device *dev)
{
	return container_of(dev, struct dmabuf_model, dev);
}

static size_t dmabuf_max_mapping_size(struct device *dev)
{
	return dmabuf_model_of(dev)->max_piece;
}

static int dmabuf_map_table(struct device *dev, struct sg_table *table)
{
	struct scatterlist *piece;
	int i;

	for_each_sgtable_sg(table, piece, i)
		if (piece->length > dmabuf_model_of(dev)->max_piece)
			return -EIO;
	dmabuf_model_of(dev)->mapped++;
	return 0;
}

static void dmabuf_unmap_table(struct device *dev, struct sg_table *table)
{
	dmabuf_model_of(dev)->mapped--;
}

static void dmabuf_sync_for_cpu(struct device *dev)
{
	dmabuf_model_of(dev)->synced_for_cpu++;
}

static void dmabuf_sync_for_device(struct device *dev)
{
	dmabuf_model_of(dev)->synced_for_device++;
}

static int dmabuf_kunit_init(struct kunit *test)
{
	struct dmabuf_model *model;

	model = kunit_kzalloc(test, sizeof(*model), GFP_KERNEL);
	if (!model)
		return -ENOMEM;
	inode_init_once(&model->inode);
	model->inode.i_mapping = &model->inode.i_data;
	model->inst.config.numa_node = EMUV_ANY;
	init_rwsem(&model->payer.tight);
	model->region.inst = &model->inst;
	model->region.payer = &model->payer;
	model->region.inode = &model->inode;
	model->region.range.count = CHUNKS;
	init_rwsem(&model->region.map_sem);
	init_rwsem(&model->region.discard_sem);
	xa_init_flags(&model->region.chunks, XA_FLAGS_ACCOUNT);

	model->buf.region = &model->region;
	mutex_init(&model->buf.lock);
	INIT_LIST_HEAD(&model->buf.mappings);
	model->dmabuf.priv = &model->buf;

	model->max_piece = SIZE_MAX;
	model->attach.dmabuf = &model->dmabuf;
	model->attach.dev = &model->dev;
	test->priv = model;
	return 0;
}

static void dmabuf_kunit_exit(struct kunit *test)
{
	struct dmabuf_model *model = test->priv;

	if (!model)
		return;
	KUNIT_EXPECT_EQ(test, model->mapped, 0);
	KUNIT_EXPECT_EQ(test, atomic_read(&model->region.devices), 0);
	emuv_backing_abandon(&model->region);
	KUNIT_EXPECT_EQ(test, atomic_long_read(&model->inst.resident), 0);
	xa_destroy(&model->region.chunks);
}

static struct sg_table *dmabuf_map_or_fail(struct kunit *test)
{
	struct dmabuf_model *model = test->priv;
	struct sg_table *table = emuv_dmabuf_map(&model->attach,
						 DMA_BIDIRECTIONAL);

	KUNIT_ASSERT_FALSE(test, IS_ERR(table));
	return table;
}

static void dmabuf_unmap(struct kunit *test, struct sg_table *table)
{
	struct dmabuf_model *model = test->priv;

	emuv_dmabuf_unmap(&model->attach, table, DMA_BIDIRECTIONAL);
}

/* Synchronise, and expect that so many tables were. */
static void dmabuf_expect_synced(struct kunit *test, unsigned int tables)
{
	struct dmabuf_model *model = test->priv;

	model->synced_for_cpu = 0;
	model->synced_for_device = 0;
	emuv_dmabuf_begin_cpu_access(&model->dmabuf, DMA_BIDIRECTIONAL);
	emuv_dmabuf_end_cpu_access(&model->dmabuf, DMA_BIDIRECTIONAL);
	KUNIT_EXPECT_EQ(test, model->synced_for_cpu, tables);
	KUNIT_EXPECT_EQ(test, model->synced_for_device, tables);
}

static void dmabuf_pieces_are_no_longer_than_the_device_maps(struct kunit *test)
{
	static const size_t sizes[] = { MAX_PIECE, PAGE_SIZE, SIZE_MAX };
	struct dmabuf_model *model = test->priv;
	int i;

	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		struct scatterlist *piece;
		struct sg_table *table;
		u64 bytes = 0;
		int at;

		model->max_piece = sizes[i];
		table = dmabuf_map_or_fail(test);
		for_each_sgtable_sg(table, piece, at) {
			KUNIT_ASSERT_LE(test, piece->length, sizes[i]);
			KUNIT_ASSERT_TRUE(test, PAGE_ALIGNED(piece->length));
			bytes += piece->length;
		}
		KUNIT_EXPECT_EQ(test, bytes, CHUNKS * EMUV_CHUNK_BYTES);
		dmabuf_unmap(test, table);
	}
	model->max_piece = 0;	/* it does not tell */
	KUNIT_EXPECT_EQ(test, emuv_dmabuf_max_piece(&model->dev),
			round_down(UINT_MAX, PAGE_SIZE));
}

static void dmabuf_all_mappings_of_an_attachment_are_synced(struct kunit *test)
{
	struct sg_table *one, *two;

	dmabuf_expect_synced(test, 0);
	one = dmabuf_map_or_fail(test);
	dmabuf_expect_synced(test, 1);
	two = dmabuf_map_or_fail(test);
	dmabuf_expect_synced(test, 2);
	dmabuf_unmap(test, one);
	dmabuf_expect_synced(test, 1);
	dmabuf_unmap(test, two);
	dmabuf_expect_synced(test, 0);
}

static void dmabuf_that_cannot_be_mapped_leaves_nothing(struct kunit *test)
{
	struct dmabuf_model *model = test->priv;

	model->max_piece = PAGE_SIZE - 1;
	KUNIT_EXPECT_TRUE(test, IS_ERR(emuv_dmabuf_map(&model->attach,
						       DMA_BIDIRECTIONAL)));
	KUNIT_EXPECT_TRUE(test, list_empty(&model->buf.mappings));
	KUNIT_EXPECT_EQ(test, atomic_read(&model->region.devices), 0);
}

static void dmabuf_is_mapped_once_for_the_kernel(struct kunit *test)
{
	struct dmabuf_model *model = test->priv;
	struct iosys_map one, two;
	unsigned long i;

	KUNIT_ASSERT_EQ(test, emuv_dmabuf_vmap(&model->dmabuf, &one), 0);
	KUNIT_ASSERT_EQ(test, emuv_dmabuf_vmap(&model->dmabuf, &two), 0);
	KUNIT_EXPECT_PTR_EQ(test, one.vaddr, two.vaddr);
	KUNIT_EXPECT_EQ(test, atomic_read(&model->region.devices), 1);
	for (i = 0; i < CHUNKS; i++) {
		struct emuv_chunk *chunk = emuv_chunk_get(&model->region, i);
		u8 *at = one.vaddr + i * EMUV_CHUNK_BYTES;

		KUNIT_ASSERT_NOT_NULL(test, chunk);
		at[EMUV_CHUNK_BYTES - 1] = i + 1;
		KUNIT_EXPECT_EQ(test,
				((u8 *)chunk->vaddr)[EMUV_CHUNK_BYTES - 1],
				i + 1);
		emuv_chunk_put(chunk);
	}
	dmabuf_expect_synced(test, 0);
	emuv_dmabuf_vunmap(&model->dmabuf, &one);
	KUNIT_EXPECT_TRUE(test, iosys_map_is_null(&one));
	KUNIT_EXPECT_EQ(test, atomic_read(&model->region.devices), 1);
	((u8 *)two.vaddr)[0] = 1;
	emuv_dmabuf_vunmap(&model->dmabuf, &two);
	KUNIT_EXPECT_EQ(test, atomic_read(&model->region.devices), 0);
	KUNIT_EXPECT_NULL(test, model->buf.vaddr);
}

static struct kunit_case dmabuf_kunit_cases[] = {
	KUNIT_CASE(dmabuf_pieces_are_no_longer_than_the_device_maps),
	KUNIT_CASE(dmabuf_all_mappings_of_an_attachment_are_synced),
	KUNIT_CASE(dmabuf_that_cannot_be_mapped_leaves_nothing),
	KUNIT_CASE(dmabuf_is_mapped_once_for_the_kernel),
	{}
};

static struct kunit_suite dmabuf_kunit_suite = {
	.name = "emuv_dmabuf",
	.init = dmabuf_kunit_init,
	.exit = dmabuf_kunit_exit,
	.test_cases = dmabuf_kunit_cases,
};

kunit_test_suites(&dmabuf_kunit_suite);
