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

/* Read zeros up to the next chunk, where no region lies. */
static ssize_t emuv_raw_read_hole(u64 pos, struct iov_iter *to)
{
	size_t span = EMUV_CHUNK_BYTES - (pos & (EMUV_CHUNK_BYTES - 1));

	return iov_iter_zero(min(span, iov_iter_count(to)), to) ?: -EFAULT;
}

ssize_t emuv_raw_read(struct emuv_instance *inst, u64 pos, struct iov_iter *to)
{
	ssize_t done = 0;

	while (pos < inst->config.virtual_bytes && iov_iter_count(to)) {
		struct emuv_region *region = emuv_region_at(inst, pos);
		ssize_t some;

		if (region) {
			some = emuv_io_read(region,
					    pos - emuv_region_offset(region),
					    to);
			emuv_region_put(region);
		} else {
			some = emuv_raw_read_hole(pos, to);
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

/* -ENXIO where no region lies. */
ssize_t emuv_raw_write(struct emuv_instance *inst, u64 pos,
		       struct iov_iter *from)
{
	ssize_t done = 0;

	while (pos < inst->config.virtual_bytes && iov_iter_count(from)) {
		struct emuv_region *region = emuv_region_at(inst, pos);
		ssize_t some = -ENXIO;

		if (region) {
			some = emuv_io_write(region,
					     pos - emuv_region_offset(region),
					     from);
			emuv_region_put(region);
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
