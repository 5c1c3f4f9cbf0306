// SPDX-License-Identifier: GPL-2.0-only
/*
 * Descriptors of regions, which one process hands to another.
 *
 * They are regular files, so that fallocate() reaches them. A region has one
 * inode, and all its files and mappings share that inode's mapping. Their file
 * system is the driver's own, and is never mounted where anybody sees it.
 *
 * That file system's code is in the module, and files are not its only holders.
 * An O_PATH descriptor holds mount and inode, but no file. So the file system
 * has an .owner, and is mounted only while there are clients, or regions with
 * holders. Any holder of a part of the file system thus holds the module.
 */
#include <linux/compat.h>
#include <linux/falloc.h>
#include <linux/file.h>
#include <linux/module.h>
#include <linux/mount.h>
#include <linux/pseudo_fs.h>
#include <linux/splice.h>
#include <linux/uio.h>

#include "emuv.h"

#define EMUV_FS_MAGIC	0x656d7556	/* "emuV" */

static int emuv_fs_init_context(struct fs_context *fc)
{
	if (!init_pseudo(fc, EMUV_FS_MAGIC))
		return -ENOMEM;
	fc->s_iflags |= SB_I_NOEXEC | SB_I_NODEV;
	return 0;
}

static struct file_system_type emuv_fs = {
	.owner = THIS_MODULE,
	.name = "emuv",
	.init_fs_context = emuv_fs_init_context,
	.kill_sb = kill_anon_super,
};

/* Mounted for clients and for regions with holders. */
static struct vfsmount *emuv_mount;
static int emuv_mount_users;

int emuv_fs_pin(void)
{
	return simple_pin_fs(&emuv_fs, &emuv_mount, &emuv_mount_users);
}

void emuv_fs_unpin(void)
{
	simple_release_fs(&emuv_mount, &emuv_mount_users);
}

static int emuv_regionfd_setattr(EMUV_IDMAP *idmap, struct dentry *dentry,
				 struct iattr *attr)
{
	/* a region's size never changes */
	if (attr->ia_valid & ATTR_SIZE)
		return -EPERM;
	return simple_setattr(idmap, dentry, attr);
}

static const struct inode_operations emuv_regionfd_inode_ops = {
	.setattr = emuv_regionfd_setattr,
};

/* Make the inode of a new region of @bytes. */
int emuv_inode_create(struct emuv_region *region, u64 bytes)
{
	struct inode *inode;
	int err;

	err = emuv_fs_pin();
	if (err)
		return err;
	inode = alloc_anon_inode(emuv_mount->mnt_sb);
	if (IS_ERR(inode)) {
		emuv_fs_unpin();
		return PTR_ERR(inode);
	}
	/* an open by way of /proc finds no operations: ENXIO */
	inode->i_mode |= S_IFREG;
	inode->i_op = &emuv_regionfd_inode_ops;
	inode->i_private = region;
	i_size_write(inode, bytes);
	region->inode = inode;
	return 0;
}

/* An O_PATH descriptor may keep the inode, but has no way to the region. */
void emuv_inode_destroy(struct emuv_region *region)
{
	region->inode->i_private = NULL;
	iput(region->inode);
	region->inode = NULL;
	emuv_fs_unpin();
}

static int emuv_regionfd_release(struct inode *inode, struct file *file)
{
	struct emuv_region *region = file->private_data;

	/* of the region's files, one at most is this one */
	cmpxchg(&region->mapped, file, NULL);
	emuv_region_put(region);
	return 0;
}

static ssize_t emuv_regionfd_read(struct kiocb *iocb, struct iov_iter *to)
{
	struct emuv_region *region = iocb->ki_filp->private_data;
	ssize_t done;

	if (emuv_region_is_revoked(region))
		return -ENODEV;
	if (iocb->ki_pos >= emuv_region_bytes(region))
		return 0;
	done = emuv_io_read(region, iocb->ki_pos, to);
	if (done > 0)
		iocb->ki_pos += done;
	return done;
}

static ssize_t emuv_regionfd_write(struct kiocb *iocb, struct iov_iter *from)
{
	struct emuv_region *region = iocb->ki_filp->private_data;
	ssize_t done;

	if (!iov_iter_count(from))
		return 0;
	if (emuv_region_is_revoked(region))
		return -ENODEV;
	if (iocb->ki_pos >= emuv_region_bytes(region))
		return -ENOSPC;
	done = emuv_io_write(region, iocb->ki_pos, from);
	if (done > 0)
		iocb->ki_pos += done;
	return done;
}

static loff_t emuv_regionfd_llseek(struct file *file, loff_t offset, int whence)
{
	return fixed_size_llseek(file, offset, whence,
				 emuv_region_bytes(file->private_data));
}

static int emuv_regionfd_mmap(struct file *file, struct vm_area_struct *vma)
{
	return emuv_vm_mmap(file->private_data, vma, NULL);
}

static long emuv_regionfd_fallocate(struct file *file, int mode, loff_t offset,
				    loff_t len)
{
	struct emuv_region *region = file->private_data;
	u64 bytes = emuv_region_bytes(region);

	if (mode != (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE))
		return -EOPNOTSUPP;
	if (emuv_region_is_revoked(region))
		return -ENODEV;
	/* as for other files, a hole beyond the end is no error */
	if (offset >= bytes)
		return 0;
	return emuv_region_discard(region, offset,
				   min_t(u64, len, bytes - offset));
}

static const struct file_operations emuv_regionfd_fops = {
	.owner = THIS_MODULE,
	.release = emuv_regionfd_release,
	.llseek = emuv_regionfd_llseek,
	.read_iter = emuv_regionfd_read,
	.write_iter = emuv_regionfd_write,
	.splice_read = copy_splice_read,
	.splice_write = iter_file_splice_write,
	.mmap = emuv_regionfd_mmap,
	.get_unmapped_area = emuv_get_unmapped_area,
	.fsync = noop_fsync,
	.fallocate = emuv_regionfd_fallocate,
};

/* Make a file that takes over the caller's reference, unless that fails. */
struct file *emuv_regionfd_create(struct emuv_region *region, fmode_t mode)
{
	int flags = mode & FMODE_WRITE ? O_RDWR : O_RDONLY;
	struct file *file;

	/* fput() drops this reference; the calling file holds another one */
	__module_get(THIS_MODULE);
	ihold(region->inode);
	file = alloc_file_pseudo(region->inode, emuv_mount, "emuv-region",
				 flags | O_LARGEFILE, &emuv_regionfd_fops);
	if (IS_ERR(file)) {
		iput(region->inode);
		module_put(THIS_MODULE);
		return file;
	}
	file->f_mode |= FMODE_LSEEK | FMODE_PREAD | FMODE_PWRITE;
	file->private_data = region;
	return file;
}

/*
 * Get the file that all mappings through nodes have. The first of them makes it,
 * and it goes with the last. It is open for writing however the node is: the
 * kernel has taken a mapping's rights from the node's file by then.
 */
struct file *emuv_regionfd_mapped(struct emuv_region *region)
{
	struct file *file = get_file_active(&region->mapped);

	if (file)
		return file;
	/* the file takes over the reference */
	emuv_region_get(region);
	file = emuv_regionfd_create(region, FMODE_READ | FMODE_WRITE);
	if (IS_ERR(file))
		emuv_region_put(region);
	else
		/* if two are made at once, both serve */
		smp_store_release(&region->mapped, file);
	return file;
}

/* Get the region that a file is a descriptor of; valid as long as the file. */
struct emuv_region *emuv_regionfd_region(const struct file *file)
{
	return file->f_op == &emuv_regionfd_fops ? file->private_data : NULL;
}
