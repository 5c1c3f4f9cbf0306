// SPDX-License-Identifier: GPL-2.0-only
/*
 * Reads and writes of a region through descriptors. A read of memory
 * that was never touched gives zeros and backs nothing.
 */
#include <linux/sched/signal.h>
#include <linux/uio.h>

#include "emuv.h"

static size_t emuv_io_span(const struct emuv_region *region, u64 pos,
			   size_t count)
{
	u64 in_chunk = EMUV_CHUNK_BYTES - (pos & (EMUV_CHUNK_BYTES - 1));

	return min3((u64)count, emuv_region_bytes(region) - pos, in_chunk);
}

/* Tell why a copy to the reader ended early. */
static int emuv_io_read_error(const struct iov_iter *to)
{
	/* a pipe may lack memory for a page of its own */
	if (EMUV_ITER_IS_PIPE(to))
		return -EFAULT;
	/* if the reader's memory takes a byte, ours has failed */
	return fault_in_iov_iter_writeable(to, 1) ? -EFAULT : -EIO;
}

/* Read from @pos in the region on. No lock is held during a copy. */
ssize_t emuv_io_read(struct emuv_region *region, u64 pos, struct iov_iter *to)
{
	ssize_t done = 0;

	while (pos < emuv_region_bytes(region) && iov_iter_count(to)) {
		size_t span = emuv_io_span(region, pos, iov_iter_count(to));
		size_t at = pos & (EMUV_CHUNK_BYTES - 1);
		size_t sound = span;
		struct emuv_chunk *chunk;
		size_t copied;

		if (fatal_signal_pending(current))
			return done ?: -EINTR;
		if (emuv_region_is_revoked(region))
			return done ?: -ENODEV;
		chunk = emuv_chunk_look(region, pos >> EMUV_CHUNK_SHIFT);
		if (IS_ERR(chunk))
			return done ?: PTR_ERR(chunk);
		/* taken away meanwhile: zeros would be wrong */
		if (!chunk && emuv_region_is_revoked(region))
			return done ?: -ENODEV;
		if (chunk) {
			sound = emuv_chunk_sound(chunk, at, span);
			/* memory may fail during the copy: do not panic */
			copied = _copy_mc_to_iter(chunk->vaddr + at, sound, to);
			emuv_chunk_let_go(region, pos >> EMUV_CHUNK_SHIFT,
					  chunk);
		} else {
			copied = iov_iter_zero(span, to);
		}
		done += copied;
		pos += copied;
		if (copied < sound)
			return done ?: emuv_io_read_error(to);
		if (sound < span) {
			emuv_backing_fail(region, pos);
			return done ?: -EIO;
		}
		cond_resched();
	}
	return done;
}

/* Write from @pos in the region on. */
ssize_t emuv_io_write(struct emuv_region *region, u64 pos,
		      struct iov_iter *from)
{
	ssize_t done = 0;

	while (pos < emuv_region_bytes(region) && iov_iter_count(from)) {
		size_t span = emuv_io_span(region, pos, iov_iter_count(from));
		size_t at = pos & (EMUV_CHUNK_BYTES - 1);
		struct emuv_chunk *chunk;
		size_t copied, sound;

		if (fatal_signal_pending(current))
			return done ?: -EINTR;
		chunk = emuv_chunk_back(region, pos >> EMUV_CHUNK_SHIFT);
		if (IS_ERR(chunk))
			return done ?: PTR_ERR(chunk);
		sound = emuv_chunk_sound(chunk, at, span);
		copied = copy_from_iter(chunk->vaddr + at, sound, from);
		emuv_chunk_let_go(region, pos >> EMUV_CHUNK_SHIFT, chunk);
		done += copied;
		pos += copied;
		if (copied < sound)
			return done ?: -EFAULT;
		if (sound < span) {
			emuv_backing_fail(region, pos);
			return done ?: -EIO;
		}
		cond_resched();
	}
	return done;
}
