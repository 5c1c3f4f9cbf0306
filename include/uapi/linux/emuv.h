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
 * An *instance* is a contract about two numbers of bytes: of physical VRAM, and
 * of virtual VRAM (system RAM). It has the name of a GPU model.
 * /dev/emuv-control creates, destroys and describes instances; /dev/emuvN is
 * one of them. An open file of /dev/emuvN is a *client*. A client owns its
 * allocations and charges until its last descriptor is closed and its last
 * mapping is gone. A mapping keeps its file open, as for any file.
 *
 * Every ioctl takes a pointer to a structure that begins with:
 *
 * @size:  Size of the structure that the caller was built with, in bytes.
 * @flags: Bits that the structure's own description names; 0 if it names none.
 *
 * Structures only ever grow at the end. A caller may pass a shorter structure
 * than the driver's, down to the first version: the driver reads zeros behind
 * it. If a structure has grown, its description names the last member of the
 * first version. A caller may pass a longer structure if every byte behind
 * the driver's is zero. On success the driver writes back as much of the
 * structure as the caller has; on failure nothing is written back.
 *
 * Errors that any ioctl may give:
 *
 * - ENOTTY: this node has no such ioctl.
 * - EINVAL: @size is below the first version's, a bit of @flags is unknown, a
 *   reserved field is nonzero, or an argument is out of range.
 * - E2BIG: @size is larger than the driver's structure, and a byte behind
 *   the driver's structure is not zero; or @size is above 4096.
 * - EFAULT: the structure cannot be read or written.
 * - ENOMEM: the kernel has no memory for its own book-keeping.
 *
 * All sizes and offsets are in bytes. The structures have the same layout in
 * 32-bit and 64-bit programs.
 */

/** EMUV_ABI_VERSION: raised when a call changes its meaning. */
#define EMUV_ABI_VERSION	1

/** EMUV_CHUNK_BYTES: virtual VRAM is backed in chunks of 2 MiB. */
#define EMUV_CHUNK_BYTES	(2ULL << 20)

/** EMUV_MAX_BYTES: the most physical plus virtual bytes of an instance, 1 PiB. */
#define EMUV_MAX_BYTES		(1ULL << 50)

/** EMUV_MAX_INSTANCES: most instances that can exist; ids lie below it. */
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
#define EMUV_IOC_RESIZE		_IO(EMUV_IOC_TYPE, 0x12)

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
 * @flags: Must be 0
 * @abi: Out: EMUV_ABI_VERSION of the driver
 * @reserved: Must be 0
 * @chunk_bytes: Out: EMUV_CHUNK_BYTES of the driver
 * @module_version: Out: the driver's version, "MAJOR.MINOR.PATCH", with a NUL
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
 * EMUV_QUERY_NEXT: describe the instance with the smallest id that is at least
 * @id. A caller that starts at 0, and goes on at the returned id plus one, sees
 * all instances.
 */
#define EMUV_QUERY_NEXT		(1U << 0)

/** EMUV_STATE_ROOM: physical bytes are free, and belong to no waiting charge. */
#define EMUV_STATE_ROOM		(1U << 0)

/**
 * EMUV_STATE_NEAR_LIMIT: less than a sixteenth of the physical bytes is free.
 * Once set, it stays until an eighth is free.
 */
#define EMUV_STATE_NEAR_LIMIT	(1U << 1)

/** EMUV_STATE_WAITERS: another client's charge waits. */
#define EMUV_STATE_WAITERS	(1U << 2)

/**
 * EMUV_STATE_NEAR_FLOOR: the host has less memory above its floor than a quarter
 * of the floor, or than 64 MiB.
 */
#define EMUV_STATE_NEAR_FLOOR	(1U << 3)

/**
 * struct emuv_query_instance - ioctl(EMUV_IOC_QUERY_INSTANCE)
 * @size: sizeof(struct emuv_query_instance)
 * @flags: EMUV_QUERY_NEXT, on the control node only
 * @id: In, on the control node: the instance. Out: the instance described
 * @clients: Out: the number of its clients
 * @physical_bytes: Out: its limit of physical VRAM
 * @virtual_bytes: Out: its limit of virtual VRAM, and the size of its node
 * @physical_used_bytes: Out: the bytes that its clients have charged
 * @virtual_used_bytes: Out: the bytes that its regions hold
 * @unowned_bytes: Out: the part of @virtual_used_bytes that mappings,
 *	descriptors or imports keep alive after its owner freed it
 * @resident_bytes: Out: the system RAM that backs it now
 * @fetched_bytes: Out: the sum of its clients' reports, as all counters here
 * @evicted_bytes: Out: see struct emuv_report
 * @spills: Out: see struct emuv_report
 * @faults: Out: see struct emuv_report
 * @numa_node: Out: the NUMA node of its memory, or EMUV_ANY
 * @pci_device_id: Out: the PCI device id of its card, or 0
 * @uuid: Out: its UUID
 * @gpu_model: Out: its GPU model as it was given, with a NUL
 * @hit_bytes: Out: see struct emuv_report
 * @miss_bytes: Out: see struct emuv_report
 * @stalled_ns: Out: see struct emuv_report
 *
 * @state: Out: EMUV_STATE_*
 * @waiters: Out: the number of charges that wait (EMUV_CHARGE_WAIT)
 * @reserve_bytes: Out: RAM that is reserved for it and backs nothing yet
 * @created: Out: the flags that it was created with, EMUV_CREATE_*
 * @reserved: Out: 0
 * @client_virtual_bytes: Out: the virtual VRAM that one client may allocate
 * @swapped_bytes: Out: the bytes in its swap file (EMUV_CREATE_SWAP)
 *
 * The first version ends with @gpu_model.
 *
 * Describe an instance. On /dev/emuvN it is always the node's own; @id is not
 * read there.
 *
 * An open /dev/emuvN, shared by all its descriptors, remembers the @state that
 * this call last returned, and at first the state when it was opened. poll()
 * reports EPOLLPRI while the state is another one. Memory can always be read
 * and written, so poll() always reports EPOLLIN and EPOLLOUT.
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
	__u32 state;
	__u32 waiters;
	__aligned_u64 reserve_bytes;
	__u32 created;
	__u32 reserved;
	__aligned_u64 client_virtual_bytes;
	__aligned_u64 swapped_bytes;
};

/**
 * EMUV_QUERY_MEMORY: look at the memory behind the client's regions, too. This
 * takes as long as it has chunks.
 */
#define EMUV_QUERY_MEMORY	(1U << 0)

/**
 * struct emuv_query_client - ioctl(EMUV_IOC_QUERY_CLIENT)
 * @size: sizeof(struct emuv_query_client)
 * @flags: EMUV_QUERY_MEMORY
 * @id: In, on the control node: the instance
 * @pid: Out: the process that opened the node, by its number in the caller's
 *	PID namespace; 0 if it is not visible there
 * @client: In: describe the client with the smallest number that is at least
 *	this. Out: its number; numbers start at 1 and are never used again
 * @physical_bytes: Out: the bytes it has charged
 * @virtual_bytes: Out: the bytes it has allocated and not freed
 * @imported_bytes: Out: the bytes it holds of other clients' regions
 * @fetched_bytes: Out: see struct emuv_report
 * @evicted_bytes: Out: see struct emuv_report
 * @spills: Out: see struct emuv_report
 * @faults: Out: see struct emuv_report
 * @comm: Out: the process's name when it opened the node, with a NUL
 * @hit_bytes: Out: see struct emuv_report
 * @miss_bytes: Out: see struct emuv_report
 * @stalled_ns: Out: see struct emuv_report
 * @waiting_bytes: Out: the sum of its charges that wait (EMUV_CHARGE_WAIT)
 * @resident_bytes: Out: with EMUV_QUERY_MEMORY: the system RAM behind
 *	@virtual_bytes now; without: 0, as for the next two
 * @pinned_bytes: Out: the part of @resident_bytes in chunks that a device, or
 *	something like io_uring, has pinned
 * @lingering_bytes: Out: the bytes that it allocated and that nobody holds any
 *	more. Something still pins them, or a write to the swap file lasts. The
 *	instance counts them as unowned
 *
 * The first version ends with @comm.
 *
 * List the clients of an instance, one per call. On /dev/emuvN the caller's own
 * open file is one of the clients. Sums of EMUV_QUERY_MEMORY are of no one moment
 * if memory changes meanwhile.
 *
 * - ENODEV: there is no such instance.
 * - ENOENT: there is no further client.
 * - EINTR: with EMUV_QUERY_MEMORY: a fatal signal came.
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
	__aligned_u64 waiting_bytes;
	__aligned_u64 resident_bytes;
	__aligned_u64 pinned_bytes;
	__aligned_u64 lingering_bytes;
};

/**
 * EMUV_CREATE_OVERCOMMIT: promise the instance's virtual VRAM even if the host
 * could never back all promised virtual VRAM.
 */
#define EMUV_CREATE_OVERCOMMIT	(1U << 0)

/**
 * EMUV_CREATE_GUARANTEED: reserve the RAM behind the instance's virtual VRAM
 * now. Later no call and no touch fails for lack of RAM. Excludes
 * EMUV_CREATE_OVERCOMMIT. Instances of ivshmem devices have it, too: their reserve
 * is the device's memory, which is as certain as the host's instance.
 */
#define EMUV_CREATE_GUARANTEED	(1U << 1)

/**
 * EMUV_CREATE_SWAP: chunks of the instance may leave RAM for @swap_fd when RAM is
 * short, and come back on a touch. If there is no RAM for them then, the touch
 * fails as a first touch does, and can be tried again. Chunks that are pinned, or mapped by a
 * device, stay. Excludes EMUV_CREATE_GUARANTEED.
 */
#define EMUV_CREATE_SWAP	(1U << 2)

/**
 * EMUV_CREATE_BIND: take memory from @numa_node only. Without it other nodes help
 * out when that one is short.
 */
#define EMUV_CREATE_BIND	(1U << 3)

/**
 * struct emuv_create - ioctl(EMUV_IOC_CREATE), control node
 * @size: sizeof(struct emuv_create)
 * @flags: EMUV_CREATE_OVERCOMMIT, EMUV_CREATE_GUARANTEED, EMUV_CREATE_SWAP,
 *	EMUV_CREATE_BIND
 * @id: In: the instance's id, 0 to EMUV_MAX_INSTANCES - 1, or EMUV_ANY for
 *	the lowest free id. Out: the assigned id
 * @numa_node: The NUMA node of its memory, or EMUV_ANY for the node of the
 *	process that touches the memory first; with EMUV_CREATE_GUARANTEED, of
 *	the caller
 * @physical_bytes: Its share of VRAM, 0 to EMUV_MAX_BYTES
 * @virtual_bytes: Its share of system RAM, 0 to EMUV_MAX_BYTES; a multiple of
 *	EMUV_CHUNK_BYTES. At least one of the two sizes must be above 0. Their
 *	sum must not pass EMUV_MAX_BYTES
 * @pci_device_id: The PCI device id of its card, 1 to 0xffff, or 0 for none. It
 *	is a label: no PCI device is created
 * @reserved: Must be 0
 * @gpu_model: Printable ASCII with a NUL, not empty
 * @client_virtual_bytes: The part of @virtual_bytes that one client may allocate
 *	and not free; a multiple of EMUV_CHUNK_BYTES. 0 stands for all of it.
 *	It keeps one program from taking all by mistake. It is no barrier: a
 *	process may open the node again
 * @swap_fd: With EMUV_CREATE_SWAP: its swap file, a block device or a regular
 *	file of @virtual_bytes at least, open for reading and writing with
 *	O_DIRECT. The instance keeps it open. While work of an instance that
 *	has gone is left on it, the call waits. Without: must be 0
 * @reserved2: Must be 0
 *
 * The first version ends with @gpu_model.
 *
 * Create an instance. Its node and its attributes exist when the call returns.
 *
 * - EPERM: the caller lacks CAP_SYS_ADMIN.
 * - EEXIST: @id is in use.
 * - ENOSPC: no id is free.
 * - ENOMEM: the virtual VRAM of all instances together would pass the host's
 *   RAM less the floor (module parameter host_floor_mb). This never happens if
 *   @virtual_bytes is 0 or EMUV_CREATE_OVERCOMMIT is set. With
 *   EMUV_CREATE_GUARANTEED also: the host has less memory above its floor now,
 *   or the caller's memory cgroup has no room.
 * - EINTR: with EMUV_CREATE_GUARANTEED: a fatal signal came.
 * - EBADF: @swap_fd is not open.
 * - EBUSY: @swap_fd is another instance's swap file.
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
	__aligned_u64 client_virtual_bytes;
	__s32 swap_fd;
	__u32 reserved2;
};

/**
 * EMUV_DESTROY_FORCE: take the instance from its holders. Their calls fail with
 * ENODEV from then on, those that wait included, and touches of their mappings
 * raise SIGBUS. poll() reports EPOLLERR and EPOLLHUP. Pages that something else
 * has pinned stay with it until they are unpinned, and so do pages that a device
 * has mapped.
 */
#define EMUV_DESTROY_FORCE	(1U << 0)

/**
 * struct emuv_destroy - ioctl(EMUV_IOC_DESTROY), control node
 * @size: sizeof(struct emuv_destroy)
 * @flags: EMUV_DESTROY_FORCE
 * @id: The instance
 * @reserved: Must be 0
 *
 * Remove an instance and its node.
 *
 * - EPERM: the caller lacks CAP_SYS_ADMIN.
 * - ENODEV: there is no such instance.
 * - EBUSY: without EMUV_DESTROY_FORCE: the instance has clients, or a region of
 *   it is still mapped, exported or pinned. A client that may only read counts.
 */
struct emuv_destroy {
	__u32 size;
	__u32 flags;
	__s32 id;
	__u32 reserved;
};

/** EMUV_RESIZE_PHYSICAL: change the share of VRAM. */
#define EMUV_RESIZE_PHYSICAL	(1U << 0)

/** EMUV_RESIZE_VIRTUAL: change the share of system RAM. */
#define EMUV_RESIZE_VIRTUAL	(1U << 1)

/**
 * struct emuv_resize - ioctl(EMUV_IOC_RESIZE), control node
 * @size: sizeof(struct emuv_resize)
 * @flags: EMUV_RESIZE_PHYSICAL, EMUV_RESIZE_VIRTUAL; at least one
 * @id: The instance
 * @reserved: Must be 0
 * @physical_bytes: With EMUV_RESIZE_PHYSICAL: its new share of VRAM; without:
 *	must be 0
 * @virtual_bytes: With EMUV_RESIZE_VIRTUAL: its new share of system RAM, a
 *	multiple of EMUV_CHUNK_BYTES; without: must be 0
 *
 * Change an instance's sizes, whether it is in use or not; all that is asked for or
 * nothing. The sizes have the bounds of EMUV_IOC_CREATE. A part that one client
 * may take stays as it was created, up to the whole.
 *
 * Growing serves charges that wait. After shrinking, charges that wait for more
 * than there is fail with ENOSPC. A guaranteed instance takes the RAM that it
 * grows by from the host now, at its creator's expense, and gives back what it
 * shrinks by.
 *
 * - EPERM: the caller lacks CAP_SYS_ADMIN.
 * - ENODEV: there is no such instance.
 * - EBUSY: its clients have charged more, its regions hold more, or a region lies
 *   beyond the new end of the offset space.
 * - ENOMEM: as for EMUV_IOC_CREATE, by what it grows by.
 * - EINVAL: its swap file is smaller than @virtual_bytes; or its virtual VRAM is a
 *	device's memory (ivshmem), and @virtual_bytes is another size.
 * - EINTR: a fatal signal came.
 */
struct emuv_resize {
	__u32 size;
	__u32 flags;
	__s32 id;
	__u32 reserved;
	__aligned_u64 physical_bytes;
	__aligned_u64 virtual_bytes;
};

/**
 * EMUV_ALLOC_POPULATE: back the whole region now. If the host cannot, the call
 * fails with ENOMEM now, instead of a touch with SIGBUS later. In an instance
 * with a swap file, cold memory leaves RAM for it. The region's own memory stays
 * until the call ends.
 */
#define EMUV_ALLOC_POPULATE	(1U << 0)

/**
 * struct emuv_alloc - ioctl(EMUV_IOC_ALLOC)
 * @size: sizeof(struct emuv_alloc)
 * @flags: EMUV_ALLOC_POPULATE
 * @bytes: In: the size, above 0. Out: the size rounded up to whole chunks
 * @offset: Out: the region's place in the node's offset space. It is for
 *	mmap(), pread() and pwrite(), and names the region in the other calls
 *
 * Allocate a region of virtual VRAM. It reads as zeros. Only holders of the
 * descriptor may map, read and write it, until EMUV_IOC_FREE or until the
 * client ends. The caller's memory cgroup pays for its memory, whichever
 * process touches it.
 *
 * - ENOSPC: the instance has too few virtual bytes left, or no gap that is
 *   large enough.
 * - ENOMEM: with EMUV_ALLOC_POPULATE: the host cannot back it, or the caller's
 *   memory cgroup has no room.
 * - EINTR: a fatal signal came while the region was being populated.
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
 * @flags: Must be 0
 * @offset: The region, as EMUV_IOC_ALLOC or EMUV_IOC_IMPORT named it
 *
 * Free a region. Its memory returns to the instance when nothing else holds it:
 * no mapping, no exported descriptor, no client that imported it.
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
 * @offset: The region, as EMUV_IOC_ALLOC or EMUV_IOC_IMPORT named it
 * @fd: Out: the descriptor, close-on-exec
 * @reserved: Must be 0
 *
 * Make a descriptor that can be passed to another process. A region
 * descriptor takes mmap(), read(), write(), lseek(), splice(), fsync() and
 * fallocate(FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE) at offsets from the
 * region's start, and EMUV_IOC_IMPORT. It is open for reading and, if the node
 * is, for writing.
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
 * @flags: Must be 0
 * @fd: A region descriptor, open for reading and writing
 * @reserved: Must be 0
 * @offset: Out: the region's name in this client
 * @bytes: Out: its size
 *
 * Hold a region of another client. The region stays charged once, to the
 * client that allocated it.
 *
 * - EBADF: @fd is not open, or not for reading and writing.
 * - EINVAL: @fd is not a region descriptor.
 * - EXDEV: the region belongs to another instance.
 * - EEXIST: the client holds the region already.
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
 * @flags: Must be 0
 * @offset: The range's start in the node's offset space
 * @bytes: The range's size, above 0. The range must lie in a region of the
 *	client
 *
 * Give a range's memory back and keep the region. The range then reads as
 * zeros, through every mapping and for every holder of pinned pages. Whole
 * chunks return to the host. Chunks with pinned pages, and parts of chunks at
 * either end, are zeroed in place. Other clients, and other parts of the
 * region, can be touched meanwhile. A character device cannot take fallocate();
 * region descriptors can.
 *
 * - EINTR: the process is being killed; a part of the range is done.
 * - EINVAL: the range ends beyond the node.
 * - EACCES: part of the range is not the caller's, or the node is not open for
 *   writing.
 * - EBUSY: a device has the range mapped through a dma-buf.
 * - EIO: a chunk at either end is in the swap file, which cannot be read. A part
 *   of the range may be done.
 * - ENOMEM: there is no RAM for such a chunk. A part of the range may be done.
 */
struct emuv_discard {
	__u32 size;
	__u32 flags;
	__aligned_u64 offset;
	__aligned_u64 bytes;
};

/**
 * EMUV_CHARGE_WAIT: wait until there is room. Charges that wait are served in
 * the order of their arrival.
 */
#define EMUV_CHARGE_WAIT	(1U << 0)

/**
 * EMUV_NO_DEADLINE: wait until there is room, or a signal comes. Closing the
 * descriptor in another thread does not end the wait.
 */
#define EMUV_NO_DEADLINE	(~0ULL)

/**
 * EMUV_UNCHARGE_CANCEL: also end the client's charges that wait, whichever
 * thread they are of; they give ECANCELED. A client that waits thus can react
 * to what happens meanwhile.
 */
#define EMUV_UNCHARGE_CANCEL	(1U << 0)

/**
 * struct emuv_charge - ioctl(EMUV_IOC_CHARGE), ioctl(EMUV_IOC_UNCHARGE)
 * @size: sizeof(struct emuv_charge)
 * @flags: EMUV_CHARGE_WAIT, for EMUV_IOC_CHARGE; EMUV_UNCHARGE_CANCEL, for
 *	EMUV_IOC_UNCHARGE
 * @bytes: Bytes of physical VRAM, not rounded
 * @free_bytes: Out: the bytes that the instance has left after the call, before
 *	charges that wait are served
 * @deadline_ns: With EMUV_CHARGE_WAIT: the time at which the wait ends, in
 *	nanoseconds of CLOCK_MONOTONIC, or EMUV_NO_DEADLINE. Otherwise must be 0
 *
 * The first version ends with @free_bytes.
 *
 * Charge physical VRAM in the ledger, or uncharge it. Both happen whole or not
 * at all. Free bytes belong to the charges that wait: meanwhile other charges
 * of more than 0 bytes fail, or wait behind them. A charge holds nobody up while
 * it exceeds the limit less what its own client has charged: then that client
 * has to uncharge first. Nor does it after 10 seconds as the first in line. A
 * client that has been the first in vain then rests nine times as long: its
 * charges wait as before, but hold nobody up.
 *
 * A wait that a signal ends has charged nothing. The kernel restarts the call
 * after a stop, and after a handler with SA_RESTART. It then waits behind all
 * others, until the same deadline.
 *
 * A charge is the calling process's device-memory cgroup's, too, if the kernel has
 * that controller (dmem, from Linux 7.3 on). It counts there while it waits, too.
 * The instance is the region "emuv/emuvN" there.
 *
 * - ENOSPC: EMUV_IOC_CHARGE: the instance has less left, or other charges wait.
 *   With EMUV_CHARGE_WAIT: the instance is smaller than @bytes. In either case:
 *   the process's device-memory cgroup has no room.
 * - ETIMEDOUT: with EMUV_CHARGE_WAIT: there was no room in time.
 * - EINTR: with EMUV_CHARGE_WAIT: a signal came whose handler has no
 *   SA_RESTART.
 * - ECANCELED: with EMUV_CHARGE_WAIT: EMUV_UNCHARGE_CANCEL ended the wait.
 * - EAGAIN: with EMUV_CHARGE_WAIT: 1024 charges of the client wait already.
 * - ENOMEM: the kernel has no memory to count the charge in the process's
 *   device-memory cgroup. Nothing is charged; a later call may succeed.
 * - EINVAL: EMUV_IOC_UNCHARGE: the client has charged less.
 */
struct emuv_charge {
	__u32 size;
	__u32 flags;
	__aligned_u64 bytes;
	__aligned_u64 free_bytes;
	__aligned_u64 deadline_ns;
};

/**
 * struct emuv_report - ioctl(EMUV_IOC_REPORT)
 * @size: sizeof(struct emuv_report)
 * @flags: Must be 0
 * @fetched_bytes: Bytes moved from system RAM to VRAM since the last report
 * @evicted_bytes: Bytes moved from VRAM to system RAM since then
 * @spills: Allocations placed in system RAM since then
 * @faults: Work since then that ran on memory in system RAM, which should have
 *	been prefetched for it
 * @hit_bytes: Bytes of memory given to work and found in VRAM since then
 * @miss_bytes: Bytes of memory given to work and found in system RAM since then
 * @stalled_ns: Nanoseconds that work waited for memory to arrive, since then
 *
 * The first version ends with @faults.
 *
 * Add to the client's and the instance's counters, which only grow. Nobody
 * checks the client's numbers, and no limit depends on them. A counter of the
 * instance stops at 2^64 - 1.
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
