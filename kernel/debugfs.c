// SPDX-License-Identifier: GPL-2.0-only
/*
 * /sys/kernel/debug/emuv/emuvN/regions: the regions of an instance, one a line,
 * for people who look for what holds memory. The format is no ABI.
 */
#include <linux/debugfs.h>
#include <linux/seq_file.h>

#include "emuv.h"

static struct dentry *emuv_debugfs_root;

static const char *emuv_debugfs_state(const struct emuv_region *region)
{
	if (!list_empty(&region->lingering))
		return "lingering";
	return region->owner ? "owned" : "unowned";
}

/*
 * struct emuv_debugfs_reader - an open file
 * @next: Chunk of the instance at which the next region is looked for
 */
struct emuv_debugfs_reader {
	struct emuv_instance *inst;
	unsigned long next;
};

/*
 * Count the pinned bytes of a region slice by slice: the instance's lock is let
 * go in between. False if the region has gone meanwhile.
 */
static bool emuv_debugfs_pinned_bytes(struct emuv_instance *inst,
				      struct emuv_region *region, u64 *bytes)
{
	unsigned long first = region->range.first, index = 0;

	lockdep_assert_held(&inst->lock);
	*bytes = 0;
	while (emuv_backing_pinned_bytes(region, &index, bytes)) {
		mutex_unlock(&inst->lock);
		cond_resched();
		mutex_lock(&inst->lock);
		/* one that took its place, number and address does as well */
		if (emuv_range_find(&inst->ranges, first) != &region->range)
			return false;
	}
	return true;
}

/* Positions: 0 is the heading, others are a region's first chunk + 1. */
static void *emuv_debugfs_start(struct seq_file *seq, loff_t *pos)
{
	struct emuv_debugfs_reader *reader = seq->private;
	struct emuv_instance *inst = reader->inst;
	struct emuv_range *range;

	if (!*pos)
		return SEQ_START_TOKEN;
	mutex_lock(&inst->lock);
	range = emuv_range_next(&inst->ranges, *pos - 1);
	if (range)
		*pos = (loff_t)range->first + 1;
	mutex_unlock(&inst->lock);
	return range ? pos : NULL;
}

static void *emuv_debugfs_next(struct seq_file *seq, void *at, loff_t *pos)
{
	struct emuv_debugfs_reader *reader = seq->private;

	*pos = at == SEQ_START_TOKEN ? 1 : (loff_t)reader->next + 1;
	return emuv_debugfs_start(seq, pos);
}

static void emuv_debugfs_stop(struct seq_file *seq, void *at)
{
}

static int emuv_debugfs_show(struct seq_file *seq, void *at)
{
	struct emuv_debugfs_reader *reader = seq->private;
	struct emuv_instance *inst = reader->inst;
	struct emuv_region *region;
	struct emuv_range *range;
	u64 pinned;

	if (at == SEQ_START_TOKEN) {
		seq_puts(seq, "offset bytes resident pinned devices holders client state\n");
		return 0;
	}
	reader->next = *(loff_t *)at;
	mutex_lock(&inst->lock);
	range = emuv_range_find(&inst->ranges, *(loff_t *)at - 1);
	if (!range)
		goto out_skip;
	region = container_of(range, struct emuv_region, range);
	reader->next = range->first + range->count;
	if (!emuv_debugfs_pinned_bytes(inst, region, &pinned))
		goto out_skip;
	seq_printf(seq, "%llu %llu %llu %llu %d %u %llu %s\n",
		   emuv_region_offset(region), emuv_region_bytes(region),
		   emuv_region_resident_bytes(region), pinned,
		   atomic_read(&region->devices), kref_read(&region->kref),
		   region->owner ? region->owner->number : 0,
		   emuv_debugfs_state(region));
	mutex_unlock(&inst->lock);
	return 0;

out_skip:
	mutex_unlock(&inst->lock);
	return SEQ_SKIP;
}

static const struct seq_operations emuv_debugfs_ops = {
	.start = emuv_debugfs_start,
	.next = emuv_debugfs_next,
	.stop = emuv_debugfs_stop,
	.show = emuv_debugfs_show,
};

static int emuv_debugfs_open(struct inode *inode, struct file *file)
{
	struct emuv_debugfs_reader *reader;

	reader = __seq_open_private(file, &emuv_debugfs_ops, sizeof(*reader));
	if (!reader)
		return -ENOMEM;
	reader->inst = inode->i_private;
	return 0;
}

static const struct file_operations emuv_debugfs_regions_fops = {
	.owner = THIS_MODULE,
	.open = emuv_debugfs_open,
	.read = seq_read,
	.llseek = seq_lseek,
	.release = seq_release_private,
};

void emuv_debugfs_add(struct emuv_instance *inst)
{
	inst->debugfs = debugfs_create_dir(dev_name(&inst->dev),
					   emuv_debugfs_root);
	debugfs_create_file("regions", 0400, inst->debugfs, inst,
			    &emuv_debugfs_regions_fops);
}

/* Waits for readers, who may write to user memory: not under a lock. */
void emuv_debugfs_remove(struct emuv_instance *inst)
{
	debugfs_remove_recursive(inst->debugfs);
}

/* No failure of debugfs matters to anything else. */
void emuv_debugfs_init(void)
{
	emuv_debugfs_root = debugfs_create_dir("emuv", NULL);
}

void emuv_debugfs_exit(void)
{
	debugfs_remove_recursive(emuv_debugfs_root);
}
