// SPDX-License-Identifier: GPL-2.0-only
/*
 * The raw offset space: what an administrator reads and writes of an instance
 * to debug it, whosever memory it is. It cannot be mapped or discarded.
 */
#include <linux/capability.h>
#include <linux/fs.h>
#include <linux/sched/signal.h>
#include <linux/uio.h>

#include "emuv.h"

/*
 * May this file reach the raw offset space? Both its opener and its user need
 * the capability. So whoever hands a descriptor on hands on no power over other
 * clients' memory, in either direction.
 */
bool emuv_raw_is_allowed(const struct file *file)
{
	return file_ns_capable(file, &init_user_ns, CAP_SYS_RAWIO) &&
	       capable(CAP_SYS_RAWIO);
}

/* Move bytes at @pos in a region, or at @pos of the instance in a hole. */
typedef ssize_t (*emuv_raw_region_op)(struct emuv_region *region, u64 pos,
				      struct iov_iter *iter);
typedef ssize_t (*emuv_raw_hole_op)(u64 pos, struct iov_iter *iter);

/* Go through regions and holes until the bytes or the instance end. */
static ssize_t emuv_raw_move(struct emuv_instance *inst, u64 pos,
			     struct iov_iter *iter,
			     emuv_raw_region_op in_region,
			     emuv_raw_hole_op in_hole)
{
	ssize_t done = 0;

	while (pos < emuv_instance_virtual_bytes(inst) && iov_iter_count(iter)) {
		struct emuv_region *region = emuv_region_at(inst, pos);
		ssize_t some;

		if (region) {
			some = in_region(region,
					 pos - emuv_region_offset(region),
					 iter);
			emuv_region_put(region);
		} else {
			some = in_hole(pos, iter);
		}
		if (some < 0)
			return done ?: some;
		done += some;
		pos += some;
		if (fatal_signal_pending(current))
			return done ?: -EINTR;
		cond_resched();
	}
	return done;
}

/* Read zeros up to the next chunk. */
static ssize_t emuv_raw_read_hole(u64 pos, struct iov_iter *to)
{
	size_t span = EMUV_CHUNK_BYTES - (pos & (EMUV_CHUNK_BYTES - 1));

	return iov_iter_zero(min(span, iov_iter_count(to)), to) ?: -EFAULT;
}

static ssize_t emuv_raw_write_hole(u64 pos, struct iov_iter *from)
{
	return -ENXIO;
}

ssize_t emuv_raw_read(struct emuv_instance *inst, u64 pos, struct iov_iter *to)
{
	return emuv_raw_move(inst, pos, to, emuv_io_read, emuv_raw_read_hole);
}

/* -ENXIO where no region lies. */
ssize_t emuv_raw_write(struct emuv_instance *inst, u64 pos,
		       struct iov_iter *from)
{
	return emuv_raw_move(inst, pos, from, emuv_io_write,
			     emuv_raw_write_hole);
}
