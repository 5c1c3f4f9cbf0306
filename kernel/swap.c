// SPDX-License-Identifier: GPL-2.0-only
/*
 * Swap files: where the cold chunks of an instance go when RAM is short.
 *
 * A swap file is a block device, or a file that takes direct I/O. A chunk's
 * place in it is its place in the offset space. Chunks are written as they are,
 * 2 MiB at once: no other RAM is needed first, and the chunk's RAM is free
 * afterwards.
 *
 * The file system's locks must not nest in mmap_lock, which a fault may hold. So
 * workers do all I/O, and whoever needs it waits. No lock of the driver is held
 * meanwhile. A fault waits for reads only, never for something that a frozen
 * file system would hold up: writing is tried, and fails there.
 *
 * A thread that waits for a read can be killed. It may hold the very lock that
 * the read needs, if it writes to the file from memory that is in it. Only the
 * reclaimer waits for a write, and nobody waits long for the reclaimer.
 *
 * Writes and the giving back of places are done one after the other, in the
 * order in which they came. So nobody has to wait until a place is given back,
 * but a new instance with the same file. Each file has queues of its own, so
 * that a slow one keeps no other waiting.
 */
#include <linux/backing-dev.h>
#include <linux/bvec.h>
#include <linux/completion.h>
#include <linux/falloc.h>
#include <linux/file.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/uio.h>

#include "emuv.h"

/* All swap files in use; no two instances may share one. */
static LIST_HEAD(emuv_swaps);
static DEFINE_SPINLOCK(emuv_swaps_lock);

/* Most time that the end of an instance waits for work on its file. */
#define EMUV_SWAP_PATIENCE	HZ

/* Woken when all work on a file has ended, and when its instance lets it go. */
static DECLARE_WAIT_QUEUE_HEAD(emuv_swap_closed);

static struct workqueue_struct *emuv_swap_close_wq;

/*
 * struct emuv_swap_io - a chunk to write or to read
 * @place: Place in the file, in chunks
 */
struct emuv_swap_io {
	struct file *file;
	struct emuv_chunk *chunk;
	u64 place;
	bool write;
};

/* struct emuv_swap_job - a write in progress, on the stack of whoever waits */
struct emuv_swap_job {
	struct work_struct work;
	struct completion done;
	struct emuv_swap_io io;
	int err;
};

/*
 * struct emuv_swap_hole - places to give back
 * @first, @count: The places, in chunks
 */
struct emuv_swap_hole {
	struct work_struct work;
	struct file *file;
	u64 first;
	u64 count;
};

/* Has the file a place for each chunk of @bytes? */
bool emuv_swap_holds(const struct emuv_swap *swap, u64 bytes)
{
	return i_size_read(swap->file->f_mapping->host) >= bytes;
}

static bool emuv_swap_is_usable(struct file *file)
{
	const fmode_t mode = FMODE_READ | FMODE_WRITE | FMODE_CAN_ODIRECT;
	struct inode *inode = file->f_mapping->host;

	/* a file in RAM, as of tmpfs, frees none */
	if (!S_ISBLK(inode->i_mode) &&
	    !(S_ISREG(inode->i_mode) &&
	      inode->i_sb->s_bdi->capabilities & BDI_CAP_WRITEBACK))
		return false;
	return (file->f_mode & mode) == mode &&
	       (file->f_flags & (O_DIRECT | O_APPEND)) == O_DIRECT &&
	       file->f_op->read_iter && file->f_op->write_iter;
}

/*
 * Take the file into use. -EBUSY if another instance has it; -EAGAIN if one had
 * it, and work on it is left.
 */
static int emuv_swap_enlist(struct emuv_swap *swap)
{
	struct emuv_swap *other;
	int err = 0;

	spin_lock(&emuv_swaps_lock);
	list_for_each_entry(other, &emuv_swaps, node)
		if (other->file->f_mapping == swap->file->f_mapping)
			err = other->state == EMUV_SWAP_OPEN ? -EBUSY :
							     -EAGAIN;
	if (!err)
		list_add(&swap->node, &emuv_swaps);
	spin_unlock(&emuv_swaps_lock);
	return err;
}

/* The same, but wait for the end of that work. -EINTR on a fatal signal. */
static int emuv_swap_claim(struct emuv_swap *swap)
{
	int err, interrupted;

	interrupted = wait_event_killable(emuv_swap_closed,
					  (err = emuv_swap_enlist(swap)) !=
						  -EAGAIN);
	return interrupted ? -EINTR : err;
}

static void emuv_swap_free(struct emuv_swap *swap)
{
	spin_lock(&emuv_swaps_lock);
	list_del(&swap->node);
	spin_unlock(&emuv_swaps_lock);
	wake_up_all(&emuv_swap_closed);
	if (swap->file)
		fput(swap->file);
	kfree(swap);
}

/* End all work on the file. This lasts as long as its device hangs. */
static void emuv_swap_drain(struct emuv_swap *swap)
{
	/* first the reclaimer, who asks for writes */
	if (swap->wq)
		destroy_workqueue(swap->wq);
	if (swap->write_wq)
		destroy_workqueue(swap->write_wq);
}

static void emuv_swap_close_work(struct work_struct *work)
{
	struct emuv_swap *swap = container_of(work, struct emuv_swap,
					      close_work);
	bool abandoned;

	emuv_kcov_start();
	emuv_swap_drain(swap);
	spin_lock(&emuv_swaps_lock);
	abandoned = swap->state == EMUV_SWAP_ABANDONED;
	if (!abandoned)
		WRITE_ONCE(swap->state, EMUV_SWAP_DRAINED);
	spin_unlock(&emuv_swaps_lock);
	if (abandoned)
		emuv_swap_free(swap);
	else
		wake_up_all(&emuv_swap_closed);
	emuv_kcov_stop();
}

static int emuv_swap_prepare(struct emuv_swap *swap,
			     const struct emuv_config *config)
{
	/* frozen after all who touch memory, and before a snapshot of the host */
	const unsigned int flags = WQ_MEM_RECLAIM | WQ_FREEZABLE;

	swap->file = fget(config->swap_fd);
	if (!swap->file)
		return -EBADF;
	if (!emuv_swap_is_usable(swap->file) ||
	    !emuv_swap_holds(swap, config->virtual_bytes))
		return -EINVAL;
	swap->wq = alloc_workqueue("emuv_swap%d", WQ_UNBOUND | flags, 0,
				   config->id);
	if (!swap->wq)
		return -ENOMEM;
	swap->write_wq = alloc_ordered_workqueue("emuv_swap%d_write", flags,
						 config->id);
	return swap->write_wq ? 0 : -ENOMEM;
}

/*
 * Open the swap file of an instance. Waits until all work on it for an earlier
 * instance has ended. -EBADF if the descriptor is not open; -EINVAL if the file
 * cannot serve; -EBUSY if another instance has it; -EINTR on a fatal signal.
 */
struct emuv_swap *emuv_swap_open(const struct emuv_config *config)
{
	struct emuv_swap *swap = kzalloc(sizeof(*swap), GFP_KERNEL);
	int err;

	if (!swap)
		return ERR_PTR(-ENOMEM);
	INIT_LIST_HEAD(&swap->node);
	init_waitqueue_head(&swap->moved);
	INIT_WORK(&swap->close_work, emuv_swap_close_work);
	err = emuv_swap_prepare(swap, config);
	if (!err)
		err = emuv_swap_claim(swap);
	if (err) {
		emuv_swap_drain(swap);
		emuv_swap_free(swap);
		return ERR_PTR(err);
	}
	emuv_reclaimer_start(&swap->reclaimer, swap->wq);
	return swap;
}

/*
 * Close the file of an instance that has no regions left. If work on it lasts,
 * it is closed later, and nobody else gets it before.
 */
void emuv_swap_close(struct emuv_swap *swap)
{
	bool drained;

	emuv_reclaimer_stop(&swap->reclaimer);
	spin_lock(&emuv_swaps_lock);
	swap->state = EMUV_SWAP_CLOSING;
	spin_unlock(&emuv_swaps_lock);
	queue_work(emuv_swap_close_wq, &swap->close_work);
	wait_event_timeout(emuv_swap_closed,
			   READ_ONCE(swap->state) == EMUV_SWAP_DRAINED,
			   EMUV_SWAP_PATIENCE);
	spin_lock(&emuv_swaps_lock);
	drained = swap->state == EMUV_SWAP_DRAINED;
	if (!drained)
		swap->state = EMUV_SWAP_ABANDONED;
	spin_unlock(&emuv_swaps_lock);
	if (drained)
		emuv_swap_free(swap);
}

/* Describe a chunk's pages; returns the number of pieces. */
static unsigned int emuv_swap_pieces(const struct emuv_chunk *chunk,
				     struct bio_vec *pieces)
{
	unsigned int count = chunk->folio ? 1 : EMUV_CHUNK_PAGES, i;

	for (i = 0; i < count; i++) {
		pieces[i].bv_page = emuv_chunk_page(chunk, i);
		pieces[i].bv_len = EMUV_CHUNK_BYTES / count;
		pieces[i].bv_offset = 0;
	}
	return count;
}

static int emuv_swap_transfer(const struct emuv_swap_io *io,
			      struct bio_vec *pieces)
{
	loff_t pos = io->place << EMUV_CHUNK_SHIFT;
	struct iov_iter iter;
	struct kiocb iocb;
	ssize_t done;

	iov_iter_bvec(&iter, io->write ? ITER_SOURCE : ITER_DEST, pieces,
		      emuv_swap_pieces(io->chunk, pieces), EMUV_CHUNK_BYTES);
	init_sync_kiocb(&iocb, io->file);
	iocb.ki_pos = pos;
	/* whatever has become of the descriptor's flags */
	iocb.ki_flags = (iocb.ki_flags & ~IOCB_APPEND) | IOCB_DIRECT;
	while (iov_iter_count(&iter)) {
		done = io->write ? io->file->f_op->write_iter(&iocb, &iter) :
				   io->file->f_op->read_iter(&iocb, &iter);
		if (done <= 0)
			return done ?: -EIO;
	}
	return iocb.ki_pos == pos + (loff_t)EMUV_CHUNK_BYTES ? 0 : -EIO;
}

/*
 * Write or read a whole chunk, in a worker. -EIO if the file gives less; -EAGAIN
 * if it cannot be written now, because its file system is frozen.
 */
static int emuv_swap_move(const struct emuv_swap_io *io)
{
	/* others may be waiting for this to free memory */
	unsigned int noio = memalloc_noio_save();
	struct bio_vec *pieces;
	int err;

	pieces = kmalloc_array(io->chunk->folio ? 1 : EMUV_CHUNK_PAGES,
			       sizeof(*pieces), GFP_KERNEL);
	if (!pieces) {
		err = -ENOMEM;
	} else if (!io->write) {
		err = emuv_swap_transfer(io, pieces);
	} else if (file_start_write_trylock(io->file)) {
		err = emuv_swap_transfer(io, pieces);
		file_end_write(io->file);
	} else {
		err = -EAGAIN;
	}
	kfree(pieces);
	memalloc_noio_restore(noio);
	return err;
}

static void emuv_swap_write_work(struct work_struct *work)
{
	struct emuv_swap_job *job = container_of(work, struct emuv_swap_job,
						 work);

	emuv_kcov_start();
	job->err = emuv_swap_move(&job->io);
	emuv_kcov_stop();
	complete(&job->done);
}

/* Write a chunk that nobody else can change to @place. 0 or an error. */
int emuv_swap_write(struct emuv_swap *swap, u64 place, struct emuv_chunk *chunk)
{
	struct emuv_swap_job job = {
		.io = {
			.file = swap->file,
			.chunk = chunk,
			.place = place,
			.write = true,
		},
	};

	INIT_WORK_ONSTACK(&job.work, emuv_swap_write_work);
	init_completion(&job.done);
	queue_work(swap->write_wq, &job.work);
	wait_for_completion(&job.done);
	destroy_work_on_stack(&job.work);
	return job.err;
}

/* Have a worker call @work, which reads. */
void emuv_swap_queue_read(struct emuv_swap *swap, struct work_struct *work)
{
	queue_work(swap->wq, work);
}

/* Have a worker call @work, which may end an instance and its file's queues. */
void emuv_swap_queue_end(struct work_struct *work)
{
	queue_work(emuv_swap_close_wq, work);
}

/*
 * Read what was written to @place, in a work of emuv_swap_queue_read(). 0 or an
 * error; it can be tried again.
 */
int emuv_swap_read(struct emuv_swap *swap, u64 place, struct emuv_chunk *chunk)
{
	const struct emuv_swap_io io = {
		.file = swap->file,
		.chunk = chunk,
		.place = place,
	};

	return emuv_swap_move(&io);
}

static void emuv_swap_hole_work(struct work_struct *work)
{
	struct emuv_swap_hole *hole = container_of(work, struct emuv_swap_hole,
						   work);
	unsigned int noio = memalloc_noio_save();
	struct file *file = hole->file;

	emuv_kcov_start();
	if (file->f_op->fallocate && file_start_write_trylock(file)) {
		file->f_op->fallocate(file, FALLOC_FL_PUNCH_HOLE |
					    FALLOC_FL_KEEP_SIZE,
				      hole->first << EMUV_CHUNK_SHIFT,
				      hole->count << EMUV_CHUNK_SHIFT);
		file_end_write(file);
	}
	emuv_kcov_stop();
	memalloc_noio_restore(noio);
	kfree(hole);
}

/*
 * Give back what the file holds of a range, some time before the next write.
 * Not every file can, nor at every time: then old bytes stay in it until others
 * are written there. No client ever reads them.
 */
void emuv_swap_trim(struct emuv_swap *swap, u64 first, u64 count)
{
	struct emuv_swap_hole *hole = kmalloc(sizeof(*hole), GFP_KERNEL);

	if (!hole)
		return;
	INIT_WORK(&hole->work, emuv_swap_hole_work);
	hole->file = swap->file;
	hole->first = first;
	hole->count = count;
	queue_work(swap->write_wq, &hole->work);
}

int emuv_swap_init(void)
{
	/* each of its works may last as long as a file's device hangs */
	emuv_swap_close_wq = alloc_workqueue("emuv_swap_close", WQ_UNBOUND, 0);
	return emuv_swap_close_wq ? 0 : -ENOMEM;
}

/* Ends what is left to give back, too. */
void emuv_swap_exit(void)
{
	destroy_workqueue(emuv_swap_close_wq);
}
