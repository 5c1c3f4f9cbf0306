/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The driver's nouns, and the functions that its files offer each other.
 *
 * Lock order, outermost first:
 *
 *  1. a PCI device's lock: the kernel's; held as an ivshmem device comes or goes.
 *     Then instance->resize_lock, then emuv_instances_lock: the set of instances
 *     (instance.c)
 *  2. mmap_lock: the kernel's; held in faults and VMA closes
 *  3. a dma-buf's reservation: the kernel's; held while a device maps or unmaps
 *  4. emuv_dmabuf->lock: devices' mappings, and the kernel's (dmabuf.c)
 *  5. instance->reap_lock, then instance->lock: clients and regions of an
 *     instance. Inside none of these: dmem->lock, then client->dmem_lock
 *  6. region->discard_sem: discards, or one more device
 *  7. region->map_sem: which chunks may be mapped. A fault holds it for reading,
 *     or for writing if no other fault may put in a large entry
 *  8. the region's i_mmap_rwsem and page tables: the kernel's; taken to map and
 *     to unmap
 *  9. xa_lock(region->chunks), ledger->lock, reserve->lock, the lock of
 *     reclaim requests, the lock of all swap files (swap.c)
 *
 * A payer's tight semaphore guards the room left in a memory cgroup. It is taken
 * under resize_lock, mmap_lock or a dma-buf's locks, and never together with
 * map_sem. The table of payers has a mutex, taken last, also under
 * instance->lock.
 *
 * An mmap() that fails may drop the last reference to a region, with mmap_lock
 * held. The file system stays mounted then: the client holds it.
 *
 * The driver touches no user memory under its own locks. The memory may be a
 * mapping of the same instance, and a fault on it takes these locks.
 */
#ifndef EMUV_EMUV_H
#define EMUV_EMUV_H

#include <linux/cdev.h>
#include <linux/completion.h>
#include <linux/device.h>
#include <linux/fs.h>
#include <linux/kcov.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/poll.h>
#include <linux/rbtree.h>
#include <linux/refcount.h>
#include <linux/rwsem.h>
#include <linux/spinlock.h>
#include <linux/uuid.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>
#include <linux/emuv.h>

#include "compat.h"

/*
 * The fuzzer's name for the driver's work in the kernel's threads. The kernel
 * tells it what lies between these two; without CONFIG_KCOV they are nothing.
 */
#define EMUV_KCOV_ID	0x656d7576

static inline void emuv_kcov_start(void)
{
	kcov_remote_start(kcov_remote_handle(KCOV_SUBSYSTEM_COMMON,
					     EMUV_KCOV_ID));
}

static inline void emuv_kcov_stop(void)
{
	kcov_remote_stop();
}

#define EMUV_CHUNK_SHIFT	21
#define EMUV_CHUNK_ORDER	(EMUV_CHUNK_SHIFT - PAGE_SHIFT)
#define EMUV_CHUNK_PAGES	BIT(EMUV_CHUNK_ORDER)

struct emuv_bar;
struct emuv_call;
struct emuv_client;
struct emuv_region;
struct emuv_payer;
struct kernfs_node;
struct mem_cgroup;

/* ledger.c: limits, sums and accounts */

struct emuv_counters {
	u64 fetched_bytes;
	u64 evicted_bytes;
	u64 spills;
	u64 faults;
	u64 hit_bytes;
	u64 miss_bytes;
	u64 stalled_ns;
};

/*
 * struct emuv_account - one client's entries in its instance's ledger
 * @physical: Bytes of VRAM charged to the client
 * @virtual: Bytes of the regions that it allocated and still holds
 * @imported: Bytes of other clients' regions that it holds
 * @counters: Sums of its reports
 * @waiters, @waiting: Number and bytes of its charges that wait
 * @rests_until: Until then its charges that wait hold nobody up; by jiffies_64
 * @seen: State of the instance that the client was last told
 */
struct emuv_account {
	u64 physical;
	u64 virtual;
	u64 imported;
	struct emuv_counters counters;
	unsigned int waiters;
	u64 waiting;
	u64 rests_until;
	u32 seen;
};

/*
 * struct emuv_waiter - a charge that waits, on its thread's stack
 * @node: Place in the ledger's queue; empty once it has left
 * @held: Jiffies for which it has held others up, but for the current turn
 * @result: 0 once the charge is served, or why it never will be
 * @served: Completed when @result is set
 */
struct emuv_waiter {
	struct list_head node;
	struct emuv_account *account;
	u64 bytes;
	u64 held;
	int result;
	struct completion served;
};

/*
 * struct emuv_ledger - an instance's limits, and the sums of its accounts
 * @client_limit: Virtual bytes that one account may have
 * @unowned: Part of @virtual_used that is in no account, because the allocating
 *	client dropped the region before other holders did
 * @physical_peak: The most that @physical_used has been
 * @virtual_peak: The most that @virtual_used has been
 * @waiters: Charges that wait for room, in the order of their arrival
 * @head: The first waiter that holds others up, or NULL; and since when, by
 *	jiffies_64
 * @rest_ends: With no @head: when the first of the waiters' clients has rested,
 *	by jiffies_64
 * @state: EMUV_STATE_*, without the host's floor
 * @changed: Woken when @state or the number of @waiters changes
 * @ended: The instance was revoked: nothing is charged and nobody is told
 * @told: The sysfs attribute of @state, or NULL
 */
struct emuv_ledger {
	spinlock_t lock;	/* guards the ledger and every account */
	u64 physical_limit;
	u64 virtual_limit;
	u64 client_limit;
	u64 physical_used;
	u64 virtual_used;
	u64 unowned;
	u64 physical_peak;
	u64 virtual_peak;
	struct emuv_counters counters;
	struct list_head waiters;
	unsigned int waiter_count;
	struct emuv_waiter *head;
	u64 head_since;
	u64 rest_ends;
	u32 state;
	bool ended;
	wait_queue_head_t changed;
	struct kernfs_node *told;
};

void emuv_ledger_init(struct emuv_ledger *ledger, u64 physical, u64 virtual,
		      u64 client);
int emuv_ledger_resize(struct emuv_ledger *ledger, u64 physical, u64 virtual,
		       u64 client);
int emuv_ledger_charge(struct emuv_ledger *ledger, struct emuv_account *account,
		       u64 bytes, u64 *free_bytes);
int emuv_ledger_charge_wait(struct emuv_ledger *ledger,
			    struct emuv_account *account, u64 bytes,
			    u64 deadline_ns, u64 *free_bytes);
int emuv_ledger_uncharge_prepare(struct emuv_ledger *ledger,
				 struct emuv_account *account, u64 bytes,
				 u64 *free_bytes);
void emuv_ledger_uncharge_finish(struct emuv_ledger *ledger,
				 struct emuv_account *account, u64 bytes,
				 bool done);
int emuv_ledger_take(struct emuv_ledger *ledger, struct emuv_account *account,
		     u64 bytes);
void emuv_ledger_disown(struct emuv_ledger *ledger, struct emuv_account *account,
			u64 bytes);
void emuv_ledger_return(struct emuv_ledger *ledger, u64 bytes);
void emuv_ledger_import(struct emuv_ledger *ledger, struct emuv_account *account,
			s64 bytes);
int emuv_ledger_report(struct emuv_ledger *ledger, struct emuv_account *account,
		       const struct emuv_counters *delta);
void emuv_ledger_cancel(struct emuv_ledger *ledger,
			struct emuv_account *account);
void emuv_ledger_end(struct emuv_ledger *ledger);
void emuv_ledger_close(struct emuv_ledger *ledger, struct emuv_account *account);
void emuv_ledger_read(struct emuv_ledger *ledger, struct emuv_ledger *copy);
void emuv_ledger_read_account(struct emuv_ledger *ledger,
			      const struct emuv_account *account,
			      struct emuv_account *copy);
u32 emuv_ledger_state(struct emuv_ledger *ledger,
		      const struct emuv_account *account);
void emuv_ledger_saw(struct emuv_ledger *ledger, struct emuv_account *account,
		     u32 state);
bool emuv_ledger_is_news(struct emuv_ledger *ledger,
			 const struct emuv_account *account, u32 state);
void emuv_ledger_remind(struct emuv_ledger *ledger);
bool emuv_ledger_is_watched(struct emuv_ledger *ledger);
void emuv_ledger_tell(struct emuv_ledger *ledger, struct kernfs_node *node);

int emuv_ledger_ioctl_charge(struct emuv_call *call);
void emuv_ledger_ioctl_charge_finish(struct emuv_call *call, int err);
int emuv_ledger_ioctl_uncharge(struct emuv_call *call);
void emuv_ledger_ioctl_uncharge_finish(struct emuv_call *call, int err);
int emuv_ledger_ioctl_report(struct emuv_call *call);

/* range.c: allocated ranges of an offset space, in chunks */

struct emuv_range {
	struct rb_node rb;
	unsigned long first;
	unsigned long count;
	unsigned long gap;		/* free chunks just before it */
	unsigned long widest_gap;	/* the largest @gap in its subtree */
};

struct emuv_range_tree {
	struct rb_root root;
	unsigned long size;
};

static inline void emuv_range_tree_init(struct emuv_range_tree *tree,
					unsigned long size)
{
	tree->root = RB_ROOT;
	tree->size = size;
}

int emuv_range_insert(struct emuv_range_tree *tree, struct emuv_range *range,
		      unsigned long count);
void emuv_range_erase(struct emuv_range_tree *tree, struct emuv_range *range);
int emuv_range_resize(struct emuv_range_tree *tree, unsigned long size);
struct emuv_range *emuv_range_find(struct emuv_range_tree *tree,
				   unsigned long index);
struct emuv_range *emuv_range_next(struct emuv_range_tree *tree,
				   unsigned long index);

/* instance.c: instances */

/*
 * struct emuv_config - parameters of a new instance
 * @client_virtual_bytes: Part of @virtual_bytes that a client may take; 0: all
 * @bar: The device's memory that is all of its reserve, or NULL; valid as long as
 *	it has chunks of it
 * @bind: Memory comes from @numa_node only, not from other nodes when it is short
 * @returning: In a copy: the memory is for bytes that come back from a swap file
 * @swap_fd: Descriptor of its swap file in the calling process, or -1
 * @physical_name, @virtual_name, @client_name: The caller's names of the sizes,
 *	for error messages
 */
struct emuv_config {
	int id;
	int numa_node;
	u64 physical_bytes;
	u64 virtual_bytes;
	u64 client_virtual_bytes;
	u32 pci_device_id;
	bool overcommit;
	bool guaranteed;
	bool bind;
	bool returning;
	int swap_fd;
	struct emuv_bar *bar;
	char gpu_model[EMUV_MODEL_LEN];
	const char *physical_name;
	const char *virtual_name;
	const char *client_name;
};

/*
 * struct emuv_reserve - chunks of a guaranteed instance that back nothing
 * @chunks: Zeroed chunks
 * @count: Number of @chunks
 * @lost: Number of chunks that are missing because their memory has failed
 * @surplus: Number of chunks to free as they come back, since the instance has
 *	become smaller
 * @closed: The instance goes: chunks are freed instead of returned
 * @returned: Woken when a chunk is returned, backs a place or is lost
 * @payer: Memory cgroup of the creator, which pays for the chunks; NULL if the
 *	instance is not guaranteed, or if they are a device's
 */
struct emuv_reserve {
	spinlock_t lock;	/* guards all down to @closed */
	struct list_head chunks;
	unsigned long count;
	unsigned long lost;
	unsigned long surplus;
	bool closed;
	wait_queue_head_t returned;
	struct emuv_payer *payer;
};

/*
 * struct emuv_reclaimer - the worker that makes an instance's chunks leave RAM
 * @wq, @work: Its queue and its work
 * @node: Entry in the list of all workers
 * @regions: The instance's regions, the next one to visit first
 * @round: Number of the last round through @regions
 * @visited: Region in hand, or NULL
 * @begun, @looked: Last request for which it has begun, and ended, to look
 * @step: Last time at which it went on looking, in jiffies
 */
struct emuv_reclaimer {
	struct workqueue_struct *wq;
	struct work_struct work;
	struct list_head node;		/* all from here on: reclaim's lock */
	struct list_head regions;
	unsigned long round;
	struct emuv_region *visited;
	u64 begun;
	u64 looked;
	unsigned long step;
};

/*
 * struct emuv_swap - where an instance's cold chunks go
 * @node: Entry in the list of all swap files
 * @state: In use; or its instance has gone and work on it is left, or is not,
 *	or is and frees it at its end
 * @close_work: Ends all work on it
 * @file: Swap file
 * @wq: Reads, and the reclaimer
 * @write_wq: Writes, and places to give back: one at a time
 * @away: Number of chunks in it
 * @moved: Woken when a chunk has come or gone
 * @reclaimer: The worker that makes chunks leave
 */
struct emuv_swap {
	struct list_head node;
	enum {
		EMUV_SWAP_OPEN,
		EMUV_SWAP_CLOSING,
		EMUV_SWAP_DRAINED,
		EMUV_SWAP_ABANDONED,
	} state;
	struct work_struct close_work;
	struct file *file;
	struct workqueue_struct *wq;
	struct workqueue_struct *write_wq;
	atomic_long_t away;
	wait_queue_head_t moved;
	struct emuv_reclaimer reclaimer;
};

/*
 * struct emuv_dmem - an instance's physical bytes in device-memory cgroups
 * @lock: Read while @region is used, written as it goes
 * @region: The instance as these know it; NULL if they do not, or not any more
 */
struct emuv_dmem {
	struct rw_semaphore lock;
	struct dmem_cgroup_region *region;
};

/*
 * struct emuv_instance - one contract, one node, one offset space
 * @dev: Device; its reference count keeps the instance alive
 * @config: Parameters as it was created, constant; the id is the assigned one
 * @resize_lock: Held while its sizes change; taken before emuv_instances_lock
 * @virtual_bytes: Virtual VRAM now; changed under emuv_instances_lock and @lock,
 *	read without
 * @uuid: Permanent name
 * @dead: No client may open the instance or allocate any more
 * @revoked: Taken from its clients; their calls fail. Read without the lock, too
 * @clients: Open files, in the order of their numbers
 * @ranges: Regions in the offset space
 * @lingering: Regions without holders, whose pages are still pinned by
 *	something outside the driver
 * @lingering_bytes: Their bytes, those in a reaper's hands included, and those
 *	of regions in a worker's hands; also read without the lock
 * @reap_lock: Held while regions of @lingering are tried; outside @lock
 * @reap_work: Frees regions of @lingering while there are any
 * @floor_work: Makes pollers look at the host's floor
 * @near_floor: The sysfs attribute says that the floor is near
 * @resident: Number of chunks that back its regions
 * @reserve: Chunks for later, if the instance is guaranteed
 * @swap: Its swap file, or NULL if it has none
 * @debugfs: Folder for debugging
 * @dmem: Cgroups that share the physical bytes
 * @ledger: Limits, sums and accounts
 */
struct emuv_instance {
	struct device dev;
	struct emuv_config config;
	struct mutex resize_lock;	/* serializes those who change its sizes */
	u64 virtual_bytes;
	uuid_t uuid;

	struct mutex lock;	/* guards all down to @lingering_bytes, regions' owners */
	bool dead;
	bool revoked;
	struct list_head clients;
	unsigned int client_count;
	u64 last_client;
	struct emuv_range_tree ranges;
	struct list_head lingering;
	u64 lingering_bytes;
	struct mutex reap_lock;		/* serializes those who free @lingering */
	struct delayed_work reap_work;
	struct delayed_work floor_work;
	bool near_floor;

	atomic_long_t resident;
	struct emuv_reserve reserve;
	struct emuv_swap *swap;
	struct dentry *debugfs;
	struct emuv_dmem dmem;
	struct emuv_ledger ledger;
};

int emuv_instance_init(void);
void emuv_instance_exit(void);
int emuv_config_validate(const struct emuv_config *config);
int emuv_instance_create(const struct emuv_config *config,
			 struct emuv_instance **made);
int emuv_instance_remove(struct emuv_instance *inst, bool force);
int emuv_instance_destroy(int id, bool force);
int emuv_instance_resize(struct emuv_instance *inst,
			 const struct emuv_resize *arg);
struct emuv_instance *emuv_instance_get(int id);
struct emuv_instance *emuv_instance_get_next(int id);
void emuv_instance_query(struct emuv_instance *inst,
			 struct emuv_query_instance *arg);
int emuv_instance_ioctl_query(struct emuv_call *call);
void emuv_instance_ioctl_query_finish(struct emuv_call *call, int err);

static inline bool emuv_instance_is_revoked(const struct emuv_instance *inst)
{
	/* pairs with emuv_instance_kill(), which closes the reserve before */
	return smp_load_acquire(&inst->revoked);
}

static inline void emuv_instance_put(struct emuv_instance *inst)
{
	put_device(&inst->dev);
}

static inline u64 emuv_instance_resident_bytes(struct emuv_instance *inst)
{
	return (u64)atomic_long_read(&inst->resident) << EMUV_CHUNK_SHIFT;
}

/* Its virtual VRAM, and the size of its node. */
static inline u64 emuv_instance_virtual_bytes(const struct emuv_instance *inst)
{
	return READ_ONCE(inst->virtual_bytes);
}

/* Can chunks of the instance leave RAM? */
static inline bool emuv_instance_swaps(const struct emuv_instance *inst)
{
	return inst->swap;
}

static inline u64 emuv_instance_swapped_bytes(struct emuv_instance *inst)
{
	return inst->swap ? (u64)atomic_long_read(&inst->swap->away)
				    << EMUV_CHUNK_SHIFT : 0;
}

/* state.c: the state of an instance, and poll() */

u32 emuv_state(struct emuv_instance *inst, const struct emuv_account *account);
__poll_t emuv_state_poll(struct emuv_instance *inst,
			 const struct emuv_account *account, struct file *file,
			 poll_table *wait);
u32 emuv_state_shown(struct emuv_instance *inst);
void emuv_state_floor_work(struct work_struct *work);

/* client.c: open files of /dev/emuvN */

/*
 * struct emuv_client - an open file
 * @node: Entry in the instance's list
 * @number: Number that is unique in the instance for good
 * @pid, @comm: Process that opened the file
 * @account: Charges and counters; under the ledger's lock
 * @dmem_shares: Its charges to device-memory cgroups
 * @regions: Regions that the client holds, by first chunk
 */
struct emuv_client {
	struct emuv_instance *inst;
	struct list_head node;
	u64 number;
	struct pid *pid;
	char comm[TASK_COMM_LEN];
	struct emuv_account account;
	struct mutex dmem_lock;		/* guards @dmem_shares */
	struct list_head dmem_shares;
	struct xarray regions;
};

extern const struct file_operations emuv_client_fops;
int emuv_client_query(struct emuv_instance *inst, struct emuv_query_client *arg);
int emuv_client_ioctl_query(struct emuv_call *call);
struct emuv_region *emuv_client_region(struct emuv_client *client, u64 offset);
struct emuv_region *emuv_client_region_at(struct emuv_client *client, u64 offset);

/* control.c: /dev/emuv-control */

int emuv_control_init(void);
void emuv_control_exit(void);

/* ioctl.c: the common part of all ioctls */

union emuv_ioctl_arg {
	struct {
		__u32 size;
		__u32 flags;
	};
	struct emuv_version version;
	struct emuv_query_instance query_instance;
	struct emuv_query_client query_client;
	struct emuv_create create;
	struct emuv_destroy destroy;
	struct emuv_resize resize;
	struct emuv_alloc alloc;
	struct emuv_free free;
	struct emuv_export export;
	struct emuv_import import;
	struct emuv_discard discard;
	struct emuv_charge charge;
	struct emuv_report report;
};

/*
 * struct emuv_call - an ioctl in progress
 * @file: File of the node
 * @made: File that the ioctl created and that has no descriptor yet
 * @pool: Pool of a device-memory cgroup that the ioctl charged, only to be compared
 * @created: Instance that the ioctl created, with a reference
 */
struct emuv_call {
	struct file *file;
	union emuv_ioctl_arg arg;
	struct file *made;
	const struct dmem_cgroup_pool_state *pool;
	struct emuv_instance *created;
};

/*
 * struct emuv_ioctl - an ioctl that a node takes
 * @size: Size of its structure
 * @min_size: Size of the structure's first version, the shortest valid one
 * @flags: Valid bits of the structure's flags
 * @out: Copy the structure back to the caller
 * @run: Carry out the ioctl
 * @finish: Commit or undo a successful @run; @err is 0, or -EFAULT if the copy
 *	to the caller failed. May be NULL
 */
struct emuv_ioctl {
	unsigned int cmd;
	u32 size;
	u32 min_size;
	u32 flags;
	bool out;
	int (*run)(struct emuv_call *call);
	void (*finish)(struct emuv_call *call, int err);
};

/*
 * The part of an ioctl that is the same on each node that takes it; @_last is
 * the last member of the structure's first version.
 */
#define EMUV_IOCTL(_cmd, _type, _last)					\
	.cmd = (_cmd), .size = sizeof(_type),				\
	.min_size = offsetofend(_type, _last)

#define EMUV_IOCTL_VERSION						\
	EMUV_IOCTL(EMUV_IOC_VERSION, struct emuv_version, module_version), \
	.out = true, .run = emuv_ioctl_version
#define EMUV_IOCTL_QUERY_INSTANCE					\
	EMUV_IOCTL(EMUV_IOC_QUERY_INSTANCE, struct emuv_query_instance,	\
		   gpu_model),						\
	.out = true
#define EMUV_IOCTL_QUERY_CLIENT						\
	EMUV_IOCTL(EMUV_IOC_QUERY_CLIENT, struct emuv_query_client, comm), \
	.flags = EMUV_QUERY_MEMORY, .out = true

long emuv_ioctl_dispatch(const struct emuv_ioctl *table, size_t count,
			 struct file *file, unsigned int cmd, unsigned long arg);
int emuv_ioctl_version(struct emuv_call *call);
long emuv_ioctl_client(struct file *file, unsigned int cmd, unsigned long arg);

/* region.c: allocated parts of an offset space */

/*
 * struct emuv_region - a range of an instance's offset space
 * @kref: Holders: clients, and files: descriptors and @mapped
 * @owner: Client whose account has the region, or NULL; under the instance's
 *	lock
 * @client: Number of the client that allocated it, which may have gone
 * @payer: Memory cgroup of the allocating process, which pays for the memory
 * @inode: Inode of all its files. Its mapping has all VMAs of the region,
 *	through whichever node or descriptor they came
 * @mapped: File of its mappings through nodes, which hold it; NULL if there are
 *	none
 * @map_sem: Read while pages are mapped, written while pages are unmapped
 * @chunks: Backing, by chunk of the region. In a guaranteed instance no index
 *	is empty: zero entries stand for the chunks that are not backed. In an
 *	instance with a swap file, values stand for chunks that are not in RAM
 * @resident: Number of chunks in @chunks
 * @lingering: Entry in the instance's list
 * @discard_sem: Read during a discard, written while a new device is counted
 * @devices: Mappings by devices and by the kernel; raised under @discard_sem
 * @reclaim: Entry in the list of regions whose chunks can leave RAM
 * @round, @hand: Last round of reclaim, and the chunk where the next one begins
 * @swapped: Chunks of it have been written to the swap file
 * @handed_over: Nobody holds it, and the worker ends it; under reclaim's lock
 * @end_work: Ends it then
 */
struct emuv_region {
	struct kref kref;
	struct emuv_instance *inst;
	struct emuv_range range;
	struct emuv_client *owner;
	u64 client;
	struct emuv_payer *payer;
	struct inode *inode;
	struct file *mapped;
	struct rw_semaphore map_sem;
	struct xarray chunks;
	atomic_long_t resident;
	struct list_head lingering;
	struct rw_semaphore discard_sem;
	atomic_t devices;
	struct list_head reclaim;
	unsigned long round;
	unsigned long hand;
	bool swapped;
	bool handed_over;
	struct work_struct end_work;
};

/*
 * struct emuv_memory - sums of the regions that a client has allocated
 * @resident: Bytes in RAM of those that it holds
 * @pinned: The part of @resident that devices have pinned
 * @lingering: Bytes of those that nobody holds, and that have not come back
 */
struct emuv_memory {
	u64 resident;
	u64 pinned;
	u64 lingering;
};

int emuv_region_sum(struct emuv_instance *inst, u64 client,
		    struct emuv_memory *sum);
bool emuv_region_pinned_bytes(struct emuv_region *region, u64 *bytes);
int emuv_region_create(struct emuv_client *client, u64 bytes, bool populate,
		       u64 *offset);
int emuv_region_import(struct emuv_client *client, struct emuv_region *region);
int emuv_region_drop(struct emuv_client *client, u64 offset);
int emuv_region_discard(struct emuv_region *region, u64 offset, u64 bytes);
struct emuv_region *emuv_region_at(struct emuv_instance *inst, u64 offset);
void emuv_region_put(struct emuv_region *region);
void emuv_region_reap(struct emuv_instance *inst);
void emuv_region_abandon(struct emuv_instance *inst);
void emuv_region_revoke_all(struct emuv_instance *inst);
void emuv_region_reap_work(struct work_struct *work);
int emuv_region_ioctl_alloc(struct emuv_call *call);
void emuv_region_ioctl_alloc_finish(struct emuv_call *call, int err);
int emuv_region_ioctl_free(struct emuv_call *call);
int emuv_region_ioctl_export(struct emuv_call *call);
void emuv_region_ioctl_export_finish(struct emuv_call *call, int err);
int emuv_region_ioctl_import(struct emuv_call *call);
void emuv_region_ioctl_import_finish(struct emuv_call *call, int err);
int emuv_region_ioctl_discard(struct emuv_call *call);

static inline u64 emuv_region_resident_bytes(const struct emuv_region *region)
{
	return (u64)atomic_long_read(&region->resident) << EMUV_CHUNK_SHIFT;
}

/* Its holders have lost it: nothing is backed or mapped any more. */
static inline bool emuv_region_is_revoked(const struct emuv_region *region)
{
	return emuv_instance_is_revoked(region->inst);
}

static inline void emuv_region_get(struct emuv_region *region)
{
	kref_get(&region->kref);
}

static inline u64 emuv_region_offset(const struct emuv_region *region)
{
	return (u64)region->range.first << EMUV_CHUNK_SHIFT;
}

static inline u64 emuv_region_bytes(const struct emuv_region *region)
{
	return (u64)region->range.count << EMUV_CHUNK_SHIFT;
}

static inline u64 emuv_region_end(const struct emuv_region *region)
{
	return emuv_region_offset(region) + emuv_region_bytes(region);
}

/* backing.c: the RAM behind a region */

/*
 * struct emuv_chunk - the pages behind one chunk
 * @kref: References of the region and of every current user
 * @node: Entry in a list of chunks to free, or in a reserve
 * @reserve: Reserve that it returns to when unused; NULL: the host
 * @folio: All pages in one piece, or NULL
 * @pages: Single pages if there is no @folio, or NULL. The vmalloc area at @vaddr
 *	owns the pages and this array
 * @bar: The device's memory that it is a part of, if both are NULL
 * @first_pfn: Page frame of its first page in @bar
 * @vaddr: Kernel address
 * @by_pages: A page of it failed once: no large entry maps it any more; changed
 *	with the region's map_sem held for writing
 * @stale: Its bytes are not zeros yet; only while it has been in a reserve since
 *	it was made
 * @young: Used since reclaim last looked at it
 * @cold_since: If not @young: when reclaim took it out of mappings, in jiffies
 */
struct emuv_chunk {
	struct kref kref;
	struct list_head node;
	struct emuv_reserve *reserve;
	struct folio *folio;
	struct page **pages;
	struct emuv_bar *bar;
	unsigned long first_pfn;
	void *vaddr;
	bool by_pages;
	bool stale;
	bool young;
	unsigned long cold_since;
};

static inline struct page *emuv_chunk_page(const struct emuv_chunk *chunk,
					   unsigned long i)
{
	if (chunk->folio)
		return folio_page(chunk->folio, i);
	if (chunk->pages)
		return chunk->pages[i];
	return pfn_to_page(chunk->first_pfn + i);
}

struct emuv_chunk *emuv_chunk_alloc(const struct emuv_config *config);
struct emuv_chunk *emuv_chunk_charge(const struct emuv_config *config,
				     struct emuv_payer *payer);
struct emuv_chunk *emuv_chunk_make(struct emuv_region *region, bool returning);
void emuv_chunk_free(struct emuv_chunk *chunk);
struct emuv_chunk *emuv_chunk_get(struct emuv_region *region,
				  unsigned long index);
struct emuv_chunk *emuv_chunk_back(struct emuv_region *region,
				   unsigned long index);
struct emuv_chunk *emuv_chunk_look(struct emuv_region *region,
				   unsigned long index);
size_t emuv_chunk_sound(const struct emuv_chunk *chunk, size_t at,
			size_t count);
bool emuv_chunk_is_in_ram(struct emuv_region *region, unsigned long index);
bool emuv_chunk_is_pinned(const struct emuv_chunk *chunk);
void emuv_chunk_count(struct emuv_region *region, long chunks);
void emuv_chunk_put(struct emuv_chunk *chunk);
void emuv_chunk_let_go(struct emuv_region *region, unsigned long index,
		       struct emuv_chunk *chunk);
void emuv_backing_unmap(struct emuv_region *region, unsigned long first,
			unsigned long last);
int emuv_backing_index(struct emuv_region *region, unsigned long count);
int emuv_backing_hold(struct emuv_region *region, unsigned long first,
		      unsigned long count);
void emuv_backing_unhold(struct emuv_region *region, unsigned long first,
			 unsigned long count);
bool emuv_backing_has_room(const struct emuv_instance *inst,
			   const struct emuv_payer *payer, unsigned long count);
int emuv_backing_populate(struct emuv_region *region, unsigned long first,
			  unsigned long count);
void emuv_backing_fail(struct emuv_region *region, u64 pos);
int emuv_backing_discard(struct emuv_region *region, u64 offset, u64 bytes);
bool emuv_backing_pinned_bytes(struct emuv_region *region, unsigned long *first,
			       u64 *bytes);
void emuv_backing_empty(struct emuv_region *region);
void emuv_backing_revoke(struct emuv_region *region);
bool emuv_backing_release(struct emuv_region *region);
void emuv_backing_abandon(struct emuv_region *region);

/* reserve.c: chunks of guaranteed instances that back nothing */

void emuv_reserve_init(struct emuv_reserve *reserve);
int emuv_reserve_fill(struct emuv_reserve *reserve, struct emuv_bar *bar);
int emuv_reserve_grow(struct emuv_instance *inst, unsigned long count);
void emuv_reserve_shrink(struct emuv_reserve *reserve, unsigned long count);
void emuv_reserve_end(struct emuv_reserve *reserve);
void emuv_reserve_close(struct emuv_reserve *reserve);
u64 emuv_reserve_bytes(struct emuv_reserve *reserve);
bool emuv_reserve_return(struct emuv_chunk *chunk);
struct emuv_chunk *emuv_reserve_get(struct emuv_region *region,
				    unsigned long index);

/*
 * struct emuv_bar - memory of a device, as chunks of one instance
 * @dev: The device
 * @vaddr: Kernel address
 * @first_pfn: Page frame of its first page
 * @count: Number of its chunks
 * @users: Chunks that are not freed, and the device's driver
 * @unused: Completed when the last of them has gone
 */
struct emuv_bar {
	struct device *dev;
	void *vaddr;
	unsigned long first_pfn;
	unsigned long count;
	refcount_t users;
	struct completion unused;
};

static inline void emuv_bar_init(struct emuv_bar *bar)
{
	refcount_set(&bar->users, 1);
	init_completion(&bar->unused);
}

static inline void emuv_bar_put(struct emuv_bar *bar)
{
	if (refcount_dec_and_test(&bar->users))
		complete_all(&bar->unused);
}

/* ivshmem.c: instances of a host's memory, in a guest */

#if defined(CONFIG_PCI) && defined(CONFIG_ZONE_DEVICE)
#define EMUV_HAS_IVSHMEM	1
int emuv_ivshmem_init(void);
void emuv_ivshmem_exit(void);
#else
#define EMUV_HAS_IVSHMEM	0
static inline int emuv_ivshmem_init(void)
{
	return 0;
}

static inline void emuv_ivshmem_exit(void)
{
}
#endif

/* swap.c: swap files */

struct emuv_swap *emuv_swap_open(const struct emuv_config *config);
void emuv_swap_close(struct emuv_swap *swap);
bool emuv_swap_holds(const struct emuv_swap *swap, u64 bytes);
int emuv_swap_write(struct emuv_swap *swap, u64 place, struct emuv_chunk *chunk);
void emuv_swap_queue_read(struct emuv_swap *swap, struct work_struct *work);
void emuv_swap_queue_end(struct work_struct *work);
int emuv_swap_read(struct emuv_swap *swap, u64 place, struct emuv_chunk *chunk);
void emuv_swap_trim(struct emuv_swap *swap, u64 first, u64 count);
int emuv_swap_init(void);
void emuv_swap_exit(void);

/* reclaim.c: cold chunks that leave RAM */

bool emuv_reclaim_is_gone(const void *entry);
int emuv_reclaim_wait(struct emuv_region *region, unsigned long index);
struct emuv_chunk *emuv_reclaim_return(struct emuv_region *region,
				       unsigned long index);
bool emuv_reclaim_discard(struct emuv_region *region, unsigned long index);
void emuv_reclaim_release(struct emuv_region *region);
bool emuv_reclaim_ask(const struct emuv_region *region, bool strict,
		      struct emuv_chunk **chunk);
void emuv_reclaim_count(const struct emuv_instance *inst, long chunks);
void emuv_reclaim_add(struct emuv_region *region);
bool emuv_reclaim_forget(struct emuv_region *region);
void emuv_reclaim_hand_over(struct emuv_region *region);
void emuv_reclaimer_start(struct emuv_reclaimer *worker,
			  struct workqueue_struct *wq);
void emuv_reclaimer_stop(struct emuv_reclaimer *worker);
int emuv_reclaim_init(void);
void emuv_reclaim_exit(void);

/* floor.c: the host memory that may be taken */

/* Flags for a chunk's pages; GFP_USER excludes movable memory. */
#define EMUV_CHUNK_GFP	(GFP_USER | __GFP_ACCOUNT | __GFP_ZERO | __GFP_NOWARN)

u64 emuv_floor_node_bytes(int node, bool returning);
u64 emuv_floor_bytes(const struct emuv_config *config);
u64 emuv_floor_backable_bytes(void);
int emuv_floor_next_node(const struct emuv_config *config, int after);

/* memcg.c: memory cgroups, and the room left in one */

/*
 * struct emuv_payer - a memory cgroup that pays for regions
 * @node: Entry in the table of payers
 * @regions: Regions that it pays for; under the table's lock
 * @memcg: Cgroup, or NULL where there are no memory cgroups
 * @takers: Threads that are taking a chunk
 * @tight: Read while there is room for a chunk of each of them, written while
 *	one takes some of the last room
 */
struct emuv_payer {
	struct hlist_node node;
	unsigned long regions;
	struct mem_cgroup *memcg;
	atomic_t takers;
	struct rw_semaphore tight;	/* guards the room left in @memcg */
};

struct emuv_payer *emuv_payer_get(void);
void emuv_payer_put(struct emuv_payer *payer);
bool emuv_payer_has_room(const struct emuv_payer *payer, unsigned long pages);

/* dmem.c: physical bytes in device-memory cgroups */

void emuv_dmem_init(struct emuv_dmem *dmem);
void emuv_dmem_init_client(struct emuv_client *client);
int emuv_dmem_open(struct emuv_instance *inst);
void emuv_dmem_close(struct emuv_instance *inst);
int emuv_dmem_charge(struct emuv_client *client, u64 bytes,
		     const struct dmem_cgroup_pool_state **pool);
void emuv_dmem_uncharge(struct emuv_client *client, u64 bytes,
			const struct dmem_cgroup_pool_state *pool);
void emuv_dmem_release(struct emuv_client *client);

/* io.c: reading and writing a region */

ssize_t emuv_io_read(struct emuv_region *region, u64 pos, struct iov_iter *to);
ssize_t emuv_io_write(struct emuv_region *region, u64 pos,
		      struct iov_iter *from);

/* raw.c: the raw offset space, for an administrator */

bool emuv_raw_is_allowed(const struct file *file);
ssize_t emuv_raw_read(struct emuv_instance *inst, u64 pos, struct iov_iter *to);
ssize_t emuv_raw_write(struct emuv_instance *inst, u64 pos,
		       struct iov_iter *from);

/* vm.c: mapping a region */

int emuv_vm_mmap(struct emuv_region *region, struct vm_area_struct *vma,
		 struct file *keeper);

/* regionfd.c: descriptors of regions, and their inodes */

int emuv_fs_pin(void);
void emuv_fs_unpin(void);
int emuv_inode_create(struct emuv_region *region, u64 bytes);
void emuv_inode_destroy(struct emuv_region *region);
struct file *emuv_regionfd_create(struct emuv_region *region, fmode_t mode);
struct file *emuv_regionfd_mapped(struct emuv_region *region);
struct emuv_region *emuv_regionfd_region(const struct file *file);

/* dmabuf.c */

struct file *emuv_dmabuf_create(struct emuv_region *region, fmode_t mode);

/* sysfs.c */

extern const struct attribute_group *emuv_sysfs_groups[];

/* debugfs.c */

void emuv_debugfs_init(void);
void emuv_debugfs_exit(void);
void emuv_debugfs_add(struct emuv_instance *inst);
void emuv_debugfs_remove(struct emuv_instance *inst);

/* param.c: module parameters */

int emuv_param_create_instances(void);
u64 emuv_param_floor(void);
bool emuv_param_has_ivshmem(void);
bool emuv_param_takes_ivshmem(const char *pci_name);

#endif /* EMUV_EMUV_H */
