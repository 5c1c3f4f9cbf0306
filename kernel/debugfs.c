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

static int emuv_debugfs_regions_show(struct seq_file *seq, void *unused)
{
	struct emuv_instance *inst = seq->private;
	struct rb_node *node;

	seq_puts(seq, "offset bytes resident pinned devices holders client state\n");
	mutex_lock(&inst->lock);
	for (node = rb_first(&inst->ranges.root); node; node = rb_next(node)) {
		struct emuv_region *region = container_of(node,
							  struct emuv_region,
							  range.rb);

		seq_printf(seq, "%llu %llu %llu %llu %d %u %llu %s\n",
			   emuv_region_offset(region),
			   emuv_region_bytes(region),
			   emuv_region_resident_bytes(region),
			   emuv_backing_pinned_bytes(region),
			   atomic_read(&region->devices),
			   kref_read(&region->kref),
			   region->owner ? region->owner->number : 0,
			   emuv_debugfs_state(region));
	}
	mutex_unlock(&inst->lock);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(emuv_debugfs_regions);

void emuv_debugfs_add(struct emuv_instance *inst)
{
	inst->debugfs = debugfs_create_dir(dev_name(&inst->dev),
					   emuv_debugfs_root);
	debugfs_create_file("regions", 0400, inst->debugfs, inst,
			    &emuv_debugfs_regions_fops);
}

/* Waits for readers. */
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
