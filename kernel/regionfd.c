// SPDX-License-Identifier: GPL-2.0-only
/*
 * Descriptors of regions, which one process hands to another.
 *
 * They are regular files, so that fallocate() reaches them. Their file system
 * is the driver's own, and is never mounted where anybody sees it.
 *
 * That file system's code is in the module, and files are not its only holders.
 * An O_PATH descriptor holds mount and inode, but no file. So the file system
 * has an .owner, and is mounted only while there are files. Any holder of a
 * part of the file system thus holds the module.
 */
#include <linux/anon_inodes.h>
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

/* A file of the kernel's file system that has the inodes of instances. */
static struct file *emuv_anon_file;

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

/* Mounted from the first region descriptor until the last one is released. */
static struct vfsmount *emuv_mount;
static int emuv_mount_users;

/* The kernel's operations: fput() calls them when the module is gone. */
int emuv_regionfd_init(void)
{
	emuv_anon_file = anon_inode_getfile("[emuv]", &generic_ro_fops, NULL,
					    O_RDONLY);
	return PTR_ERR_OR_ZERO(emuv_anon_file);
}

void emuv_regionfd_exit(void)
{
	fput(emuv_anon_file);
}

/*
 * Create the inode whose mapping has all VMAs of an instance. Instances do not
 * hold the module, so the inode is not of the driver's file system.
 */
struct inode *emuv_inode_create(void)
{
	return alloc_anon_inode(file_inode(emuv_anon_file)->i_sb);
}

static int emuv_regionfd_setattr(EMUV_IDMAP *idmap, struct dentry *dentry,
				 struct iattr *attr)
{
	/* the size of a region is fixed */
	if (attr->ia_valid & ATTR_SIZE)
		return -EPERM;
	return simple_setattr(idmap, dentry, attr);
}

static const struct inode_operations emuv_regionfd_inode_ops = {
	.setattr = emuv_regionfd_setattr,
};

static int emuv_regionfd_release(struct inode *inode, struct file *file)
{
	emuv_region_put(file->private_data);
	simple_release_fs(&emuv_mount, &emuv_mount_users);
	return 0;
}

static int emuv_regionfd_mapped_release(struct inode *inode, struct file *file)
{
	emuv_region_put(file->private_data);
	return 0;
}

static ssize_t emuv_regionfd_read(struct kiocb *iocb, struct iov_iter *to)
{
	struct emuv_region *region = iocb->ki_filp->private_data;
	ssize_t done;

	if (iocb->ki_pos >= emuv_region_bytes(region))
		return 0;
	done = emuv_io_read(region->inst,
			    emuv_region_offset(region) + iocb->ki_pos,
			    emuv_region_end(region), to);
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
	if (iocb->ki_pos >= emuv_region_bytes(region))
		return -ENOSPC;
	done = emuv_io_write(region->inst, region,
			     emuv_region_offset(region) + iocb->ki_pos,
			     emuv_region_end(region), from);
	if (done > 0)
		iocb->ki_pos += done;
	return done;
}

static loff_t emuv_regionfd_llseek(struct file *file, loff_t offset, int whence)
{
	return fixed_size_llseek(file, offset, whence,
				 emuv_region_bytes(file->private_data));
}

static struct file *emuv_region_file(struct emuv_region *region,
				     struct vfsmount *mount, fmode_t mode,
				     const struct file_operations *fops);

/* For the file that a region's mapping holds instead of the descriptor's. */
static const struct file_operations emuv_regionfd_mapped_fops = {
	.owner = THIS_MODULE,
	.release = emuv_regionfd_mapped_release,
	.fsync = noop_fsync,	/* for msync() */
};

/*
 * The VMA gets a file without fallocate(). From here on its offsets are those
 * of the instance's offset space. madvise(MADV_REMOVE) would pass them to
 * fallocate(), which takes offsets in a region.
 */
static int emuv_regionfd_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct emuv_region *region = file->private_data;
	pgoff_t pages = region->range.count << EMUV_CHUNK_ORDER;
	struct file *mapped;
	int err;

	if (vma->vm_pgoff >= pages || vma_pages(vma) > pages - vma->vm_pgoff)
		return -EINVAL;
	emuv_region_get(region);
	mapped = emuv_region_file(region, file->f_path.mnt, file->f_mode,
				  &emuv_regionfd_mapped_fops);
	if (IS_ERR(mapped)) {
		emuv_region_put(region);
		return PTR_ERR(mapped);
	}
	vma->vm_pgoff += region->range.first << EMUV_CHUNK_ORDER;
	err = emuv_vm_mmap(region->inst, region, vma);
	if (!err)
		vma_set_file(vma, mapped);
	fput(mapped);
	return err;
}

static long emuv_regionfd_fallocate(struct file *file, int mode, loff_t offset,
				    loff_t len)
{
	struct emuv_region *region = file->private_data;
	u64 bytes = emuv_region_bytes(region);

	if (mode != (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE))
		return -EOPNOTSUPP;
	/* as in other files, a hole beyond the end is not an error */
	if (offset >= bytes)
		return 0;
	return emuv_region_discard(region, emuv_region_offset(region) + offset,
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
	.fsync = noop_fsync,
	.fallocate = emuv_regionfd_fallocate,
};

/* Create a file, which takes over the caller's reference unless this fails. */
static struct file *emuv_region_file(struct emuv_region *region,
				     struct vfsmount *mount, fmode_t mode,
				     const struct file_operations *fops)
{
	int flags = mode & FMODE_WRITE ? O_RDWR : O_RDONLY;
	struct inode *inode = alloc_anon_inode(mount->mnt_sb);
	struct file *file;

	if (IS_ERR(inode))
		return ERR_CAST(inode);
	/* reopened through /proc, the file has no operations: ENXIO */
	inode->i_mode |= S_IFREG;
	inode->i_op = &emuv_regionfd_inode_ops;
	i_size_write(inode, emuv_region_bytes(region));
	/* fput() drops this; the caller's own file holds the module */
	__module_get(THIS_MODULE);
	file = alloc_file_pseudo(inode, mount, "emuv-region",
				 flags | O_LARGEFILE, fops);
	if (IS_ERR(file)) {
		module_put(THIS_MODULE);
		iput(inode);
		return file;
	}
	file->f_mode |= FMODE_LSEEK | FMODE_PREAD | FMODE_PWRITE;
	file->f_mapping = region->inst->inode->i_mapping;
	file->private_data = region;
	return file;
}

struct file *emuv_regionfd_create(struct emuv_region *region, fmode_t mode)
{
	struct file *file;
	int err;

	err = simple_pin_fs(&emuv_fs, &emuv_mount, &emuv_mount_users);
	if (err)
		return ERR_PTR(err);
	file = emuv_region_file(region, emuv_mount, mode, &emuv_regionfd_fops);
	/* otherwise its release does; all files share one mount */
	if (IS_ERR(file))
		simple_release_fs(&emuv_mount, &emuv_mount_users);
	return file;
}

/* Get the region of a descriptor, valid as long as the file lives, or NULL. */
struct emuv_region *emuv_regionfd_region(const struct file *file)
{
	return file->f_op == &emuv_regionfd_fops ? file->private_data : NULL;
}
