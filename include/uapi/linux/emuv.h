/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * The ABI of the emuV driver: the ioctls of /dev/emuv-control and /dev/emuvN.
 */
#ifndef _UAPI_LINUX_EMUV_H
#define _UAPI_LINUX_EMUV_H

#include <linux/ioctl.h>
#include <linux/types.h>

/**
 * DOC: general format
 *
 * An *instance* is a contract: so many bytes of physical VRAM and so many of
 * virtual VRAM (system RAM), under the name of a GPU model. /dev/emuv-control
 * creates, destroys and describes instances; /dev/emuvN is one of them. An
 * open file of /dev/emuvN is a *client*. It owns its allocations and charges
 * until its last descriptor is closed and its last mapping is gone: a mapping
 * keeps its file open, as for any file.
 *
 * Every ioctl takes a pointer to a structure that begins with:
 *
 * @size:  sizeof the structure as the caller was built, in bytes.
 * @flags: bits that the structure's own description names; 0 if it names none.
 *
 * Structures only ever grow at the end. A caller may pass a shorter one than
 * the driver's, down to the first published version: the driver reads zeros
 * behind it. A caller may pass a longer one if every byte behind the driver's
 * structure is zero. On success the driver writes back as much of the
 * structure as the caller has; on failure nothing is written back.
 *
 * Errors that any of them may give:
 *
 * - ENOTTY: this node has no such ioctl.
 * - EINVAL: @size is below the first version's, an unknown bit of @flags or a
 *   reserved field is not zero, or an argument is out of its range.
 * - E2BIG: @size is larger than the driver's structure, and a byte behind
 *   the driver's structure is not zero; or @size is above 4096.
 * - EFAULT: the structure cannot be read or written.
 * - ENOMEM: the kernel has no memory for its own book-keeping.
 *
 * All sizes and offsets are in bytes. The structures have the same layout in
 * 32-bit and 64-bit programs.
 */

/** EMUV_ABI_VERSION: raised when an existing call changes its meaning. */
#define EMUV_ABI_VERSION	1

/** EMUV_CHUNK_BYTES: the unit in which virtual VRAM is backed, 2 MiB. */
#define EMUV_CHUNK_BYTES	(2ULL << 20)

/** EMUV_MAX_BYTES: the most physical plus virtual bytes of an instance, 1 PiB. */
#define EMUV_MAX_BYTES		(1ULL << 50)

/** EMUV_MAX_INSTANCES: how many instances can exist; ids lie below it. */
#define EMUV_MAX_INSTANCES	1024

/** EMUV_MODEL_LEN: room for a GPU model's name, its final NUL included. */
#define EMUV_MODEL_LEN		64

/** EMUV_UUID_LEN: the bytes of an instance's UUID (RFC 4122, big endian). */
#define EMUV_UUID_LEN		16

/** EMUV_COMM_LEN: room for a process's name, its final NUL included. */
#define EMUV_COMM_LEN		16

/** EMUV_ANY: "the driver's choice" for an id or a NUMA node. */
#define EMUV_ANY		(-1)

#define EMUV_IOC_TYPE		0xEB

/* Both nodes. */
#define EMUV_IOC_VERSION	_IO(EMUV_IOC_TYPE, 0x00)
#define EMUV_IOC_QUERY_INSTANCE		_IO(EMUV_IOC_TYPE, 0x01)
#define EMUV_IOC_QUERY_CLIENT		_IO(EMUV_IOC_TYPE, 0x02)

/* /dev/emuv-control. */
#define EMUV_IOC_CREATE		_IO(EMUV_IOC_TYPE, 0x10)
#define EMUV_IOC_DESTROY	_IO(EMUV_IOC_TYPE, 0x11)

/* /dev/emuvN. */
#define EMUV_IOC_ALLOC		_IO(EMUV_IOC_TYPE, 0x20)
#define EMUV_IOC_FREE		_IO(EMUV_IOC_TYPE, 0x21)
#define EMUV_IOC_EXPORT		_IO(EMUV_IOC_TYPE, 0x22)
#define EMUV_IOC_IMPORT		_IO(EMUV_IOC_TYPE, 0x23)
#define EMUV_IOC_DISCARD	_IO(EMUV_IOC_TYPE, 0x24)
#define EMUV_IOC_CHARGE		_IO(EMUV_IOC_TYPE, 0x25)
#define EMUV_IOC_UNCHARGE	_IO(EMUV_IOC_TYPE, 0x26)
#define EMUV_IOC_REPORT		_IO(EMUV_IOC_TYPE, 0x27)

/**
 * struct emuv_version - ioctl(EMUV_IOC_VERSION)
 * @size: sizeof(struct emuv_version)
 * @flags: must be 0
 * @abi: out: EMUV_ABI_VERSION of the driver
 * @reserved: must be 0
 * @chunk_bytes: out: EMUV_CHUNK_BYTES of the driver
 * @module_version: out: the driver's version, "MAJOR.MINOR.PATCH", with a NUL
 *
 * Describe the driver that answers. No errors of its own.
 */
struct emuv_version {
	__u32 size;
	__u32 flags;
	__u32 abi;
	__u32 reserved;
	__aligned_u64 chunk_bytes;
	char module_version[32];
};

/**
 * EMUV_QUERY_NEXT: describe the instance with the smallest id that is not
 * below @id. A caller that starts at 0, and goes on at the returned id plus
 * one, sees them all.
 */
#define EMUV_QUERY_NEXT		(1U << 0)

/**
 * struct emuv_query_instance - ioctl(EMUV_IOC_QUERY_INSTANCE)
 * @size: sizeof(struct emuv_query_instance)
 * @flags: EMUV_QUERY_NEXT, on the control node only
 * @id: in, on the control node: the instance. out: the instance described
 * @clients: out: how many clients it has
 * @physical_bytes: out: its limit of physical VRAM
 * @virtual_bytes: out: its limit of virtual VRAM, and the size of its node
 * @physical_used_bytes: out: the bytes that its clients have charged
 * @virtual_used_bytes: out: the bytes that its regions hold
 * @unowned_bytes: out: the part of @virtual_used_bytes that is kept alive by
 *	mappings, descriptors or imports after its owner let go of it
 * @resident_bytes: out: how much system RAM backs it now
 * @fetched_bytes: out: the sum of its clients' reports, as all counters here
 * @evicted_bytes: out: see struct emuv_report
 * @spills: out: see struct emuv_report
 * @faults: out: see struct emuv_report
 * @numa_node: out: the node its memory comes from, or EMUV_ANY
 * @pci_device_id: out: the PCI device id of the card it belongs to, or 0
 * @uuid: out: its UUID
 * @gpu_model: out: its GPU model as it was given, with a NUL
 * @hit_bytes: out: see struct emuv_report
 * @miss_bytes: out: see struct emuv_report
 * @stalled_ns: out: see struct emuv_report
 *
 * Describe an instance. On /dev/emuvN it is the node's own, whatever @id says.
 *
 * - ENODEV: there is no such instance (with EMUV_QUERY_NEXT: no further one).
 */
struct emuv_query_instance {
	__u32 size;
	__u32 flags;
	__s32 id;
	__u32 clients;
	__aligned_u64 physical_bytes;
	__aligned_u64 virtual_bytes;
	__aligned_u64 physical_used_bytes;
	__aligned_u64 virtual_used_bytes;
	__aligned_u64 unowned_bytes;
	__aligned_u64 resident_bytes;
	__aligned_u64 fetched_bytes;
	__aligned_u64 evicted_bytes;
	__aligned_u64 spills;
	__aligned_u64 faults;
	__s32 numa_node;
	__u32 pci_device_id;
	__u8 uuid[EMUV_UUID_LEN];
	char gpu_model[EMUV_MODEL_LEN];
	__aligned_u64 hit_bytes;
	__aligned_u64 miss_bytes;
	__aligned_u64 stalled_ns;
};

/**
 * struct emuv_query_client - ioctl(EMUV_IOC_QUERY_CLIENT)
 * @size: sizeof(struct emuv_query_client)
 * @flags: must be 0
 * @id: in, on the control node: the instance
 * @pid: out: the process that opened the node, as the caller's PID namespace
 *	numbers it; 0 if it is not visible there
 * @client: in: describe the client with the smallest number that is not below
 *	this one. out: its number; numbers start at 1 and are never used again
 * @physical_bytes: out: the bytes it has charged
 * @virtual_bytes: out: the bytes it has allocated and not freed
 * @imported_bytes: out: the bytes it holds of other clients' regions
 * @fetched_bytes: out: see struct emuv_report
 * @evicted_bytes: out: see struct emuv_report
 * @spills: out: see struct emuv_report
 * @faults: out: see struct emuv_report
 * @comm: out: the name of that process when it opened the node, with a NUL
 * @hit_bytes: out: see struct emuv_report
 * @miss_bytes: out: see struct emuv_report
 * @stalled_ns: out: see struct emuv_report
 *
 * List the clients of an instance, one a call. The caller's own open file is
 * one of them on /dev/emuvN.
 *
 * - ENODEV: there is no such instance.
 * - ENOENT: there is no further client.
 */
struct emuv_query_client {
	__u32 size;
	__u32 flags;
	__s32 id;
	__s32 pid;
	__aligned_u64 client;
	__aligned_u64 physical_bytes;
	__aligned_u64 virtual_bytes;
	__aligned_u64 imported_bytes;
	__aligned_u64 fetched_bytes;
	__aligned_u64 evicted_bytes;
	__aligned_u64 spills;
	__aligned_u64 faults;
	char comm[EMUV_COMM_LEN];
	__aligned_u64 hit_bytes;
	__aligned_u64 miss_bytes;
	__aligned_u64 stalled_ns;
};

/**
 * EMUV_CREATE_OVERCOMMIT: promise the instance's virtual VRAM even if the host
 * could never back all that it has promised.
 */
#define EMUV_CREATE_OVERCOMMIT	(1U << 0)

/**
 * struct emuv_create - ioctl(EMUV_IOC_CREATE), control node
 * @size: sizeof(struct emuv_create)
 * @flags: EMUV_CREATE_OVERCOMMIT
 * @id: in: the number the instance is to have, 0 to EMUV_MAX_INSTANCES - 1, or
 *	EMUV_ANY for the lowest free one. out: the number it has
 * @numa_node: the node its memory should come from, or EMUV_ANY for the node
 *	of the process that touches it first
 * @physical_bytes: its share of VRAM, 0 to EMUV_MAX_BYTES
 * @virtual_bytes: its share of system RAM, 0 to EMUV_MAX_BYTES; a multiple of
 *	EMUV_CHUNK_BYTES. Not both sizes may be 0, and their sum must not pass
 *	EMUV_MAX_BYTES
 * @pci_device_id: the PCI device id of the card it belongs to, 1 to 0xffff, or
 *	0 for none. A label: no PCI device is made
 * @reserved: must be 0
 * @gpu_model: printable ASCII with a NUL, not empty
 *
 * Make an instance. Its node and its attributes exist when this returns.
 *
 * - EPERM: the caller lacks CAP_SYS_ADMIN.
 * - EEXIST: @id is in use.
 * - ENOSPC: no id is free.
 * - ENOMEM: the virtual VRAM of all instances together would pass the host's
 *   RAM less the floor (module parameter host_floor_mb). Never if @virtual_bytes
 *   is 0 or EMUV_CREATE_OVERCOMMIT is given.
 */
struct emuv_create {
	__u32 size;
	__u32 flags;
	__s32 id;
	__s32 numa_node;
	__aligned_u64 physical_bytes;
	__aligned_u64 virtual_bytes;
	__u32 pci_device_id;
	__u32 reserved;
	char gpu_model[EMUV_MODEL_LEN];
};

/**
 * struct emuv_destroy - ioctl(EMUV_IOC_DESTROY), control node
 * @size: sizeof(struct emuv_destroy)
 * @flags: must be 0
 * @id: the instance
 * @reserved: must be 0
 *
 * Remove an instance and its node.
 *
 * - EPERM: the caller lacks CAP_SYS_ADMIN.
 * - ENODEV: there is no such instance.
 * - EBUSY: it has clients, or a region of it is still mapped, exported or
 *   pinned.
 */
struct emuv_destroy {
	__u32 size;
	__u32 flags;
	__s32 id;
	__u32 reserved;
};

/**
 * EMUV_ALLOC_POPULATE: back the whole region now. If the host cannot, the call
 * fails with ENOMEM now, instead of a touch with SIGBUS later.
 */
#define EMUV_ALLOC_POPULATE	(1U << 0)

/**
 * struct emuv_alloc - ioctl(EMUV_IOC_ALLOC)
 * @size: sizeof(struct emuv_alloc)
 * @flags: EMUV_ALLOC_POPULATE
 * @bytes: in: how much, above 0. out: the same, rounded up to whole chunks
 * @offset: out: the region's place in the node's offset space, for mmap(),
 *	pread() and pwrite(), and the region's name in the other calls
 *
 * Allocate a region of virtual VRAM. It reads as zeros. The descriptor's
 * holders alone may map, read and write it, until EMUV_IOC_FREE or until the
 * client ends. What backs it is charged to the caller's memory cgroup, whoever
 * touches it.
 *
 * - ENOSPC: the instance has not so many virtual bytes left, or no gap that
 *   is large enough.
 * - ENOMEM: with EMUV_ALLOC_POPULATE: the host cannot back it, or the caller's
 *   memory cgroup has no room.
 * - EINTR: a fatal signal came while it was being populated.
 */
struct emuv_alloc {
	__u32 size;
	__u32 flags;
	__aligned_u64 bytes;
	__aligned_u64 offset;
};

/**
 * struct emuv_free - ioctl(EMUV_IOC_FREE)
 * @size: sizeof(struct emuv_free)
 * @flags: must be 0
 * @offset: the region, as EMUV_IOC_ALLOC or EMUV_IOC_IMPORT named it
 *
 * Let go of a region. Its memory returns to the instance when nothing else
 * holds it: no mapping, no exported descriptor, no client that imported it.
 *
 * - ENOENT: the client holds no region of that name.
 */
struct emuv_free {
	__u32 size;
	__u32 flags;
	__aligned_u64 offset;
};

/** EMUV_EXPORT_DMABUF: make a dma-buf instead of a region descriptor. */
#define EMUV_EXPORT_DMABUF	(1U << 0)

/**
 * struct emuv_export - ioctl(EMUV_IOC_EXPORT)
 * @size: sizeof(struct emuv_export)
 * @flags: EMUV_EXPORT_DMABUF
 * @offset: the region, as EMUV_IOC_ALLOC or EMUV_IOC_IMPORT named it
 * @fd: out: a descriptor of it, close-on-exec
 * @reserved: must be 0
 *
 * Make a descriptor that can be passed to another process. A region
 * descriptor takes mmap(), read(), write(), lseek(), splice(), fsync() and
 * fallocate(FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE) at offsets from the
 * region's start, and EMUV_IOC_IMPORT. It is open as the node is: for reading,
 * or for reading and writing.
 *
 * - ENOENT: the client holds no region of that name.
 * - EACCES: the node is not open for reading.
 * - EMFILE, ENFILE: no descriptor is free.
 */
struct emuv_export {
	__u32 size;
	__u32 flags;
	__aligned_u64 offset;
	__s32 fd;
	__u32 reserved;
};

/**
 * struct emuv_import - ioctl(EMUV_IOC_IMPORT)
 * @size: sizeof(struct emuv_import)
 * @flags: must be 0
 * @fd: a region descriptor, open for reading and writing
 * @reserved: must be 0
 * @offset: out: the region's name in this client
 * @bytes: out: its size
 *
 * Hold another client's region as one's own. It stays charged to the instance
 * once, under the client that allocated it.
 *
 * - EBADF: @fd is not open, or not for reading and writing.
 * - EINVAL: @fd is not a region descriptor.
 * - EXDEV: it belongs to another instance.
 * - EEXIST: the client holds it already.
 */
struct emuv_import {
	__u32 size;
	__u32 flags;
	__s32 fd;
	__u32 reserved;
	__aligned_u64 offset;
	__aligned_u64 bytes;
};

/**
 * struct emuv_discard - ioctl(EMUV_IOC_DISCARD)
 * @size: sizeof(struct emuv_discard)
 * @flags: must be 0
 * @offset: the range's start in the node's offset space
 * @bytes: how much, above 0; the range must lie in a region of the client, or
 *	anywhere for a holder of CAP_SYS_RAWIO
 *
 * Give a range's memory back and keep the region: afterwards it reads as
 * zeros, through every mapping and for every holder of pinned pages. Whole
 * chunks return to the host. Chunks with pinned pages, and parts of chunks at
 * either end, are zeroed in place instead. (A character device cannot take
 * fallocate(); region descriptors can.) Other clients, and other parts of the
 * region, go on being touched meanwhile.
 *
 * - EINTR: the process is being killed; a part of the range is done.
 * - EINVAL: the range ends beyond the node.
 * - EACCES: part of it is not the caller's, or the node is not open for
 *   writing.
 * - EBUSY: a device has it mapped through a dma-buf.
 */
struct emuv_discard {
	__u32 size;
	__u32 flags;
	__aligned_u64 offset;
	__aligned_u64 bytes;
};

/**
 * struct emuv_charge - ioctl(EMUV_IOC_CHARGE), ioctl(EMUV_IOC_UNCHARGE)
 * @size: sizeof(struct emuv_charge)
 * @flags: must be 0
 * @bytes: how much physical VRAM, in bytes; no rounding
 * @free_bytes: out: the bytes that the instance has left afterwards
 *
 * Enter physical VRAM into the ledger, or take it out again. Both happen
 * whole or not at all.
 *
 * - ENOSPC: EMUV_IOC_CHARGE: the instance has not so much left.
 * - EINVAL: EMUV_IOC_UNCHARGE: the client has not charged so much.
 */
struct emuv_charge {
	__u32 size;
	__u32 flags;
	__aligned_u64 bytes;
	__aligned_u64 free_bytes;
};

/**
 * struct emuv_report - ioctl(EMUV_IOC_REPORT)
 * @size: sizeof(struct emuv_report)
 * @flags: must be 0
 * @fetched_bytes: bytes moved from system RAM to VRAM since the last report
 * @evicted_bytes: bytes moved from VRAM to system RAM since then
 * @spills: allocations placed in system RAM since then
 * @faults: work that ran on memory in system RAM which should have been
 *	prefetched for it, since then
 * @hit_bytes: bytes that work was given and found in VRAM, since then
 * @miss_bytes: bytes that it was given and found in system RAM, since then
 * @stalled_ns: nanoseconds that work waited for memory to arrive, since then
 *
 * Add to the client's and the instance's counters, which only grow. They rest
 * on the client's word alone; no limit depends on them. A counter of the
 * instance stays at 2^64 - 1 once it has come so far.
 *
 * - EOVERFLOW: a counter of the client would pass 2^64 - 1; none has changed.
 */
struct emuv_report {
	__u32 size;
	__u32 flags;
	__aligned_u64 fetched_bytes;
	__aligned_u64 evicted_bytes;
	__aligned_u64 spills;
	__aligned_u64 faults;
	__aligned_u64 hit_bytes;
	__aligned_u64 miss_bytes;
	__aligned_u64 stalled_ns;
};

#endif /* _UAPI_LINUX_EMUV_H */
