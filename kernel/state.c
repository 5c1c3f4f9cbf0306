// SPDX-License-Identifier: GPL-2.0-only
/*
 * The state of an instance, which clients and managers can poll. A client that
 * keeps memory for later thus learns in time that others need it.
 */
#include <linux/sizes.h>

#include "emuv.h"

/* The host's memory notifies nobody: pollers look at it this often. */
#define EMUV_FLOOR_INTERVAL	HZ

static bool emuv_state_near_floor(const struct emuv_instance *inst)
{
	const int node = inst->config.numa_node;
	u64 margin = max_t(u64, emuv_param_floor() / 4, SZ_64M);

	return emuv_floor_bytes(node == EMUV_ANY ? numa_mem_id() : node) <
	       margin;
}

/* Get the state as a client sees it; NULL stands for no client. */
u32 emuv_state(struct emuv_instance *inst, const struct emuv_account *account)
{
	u32 state = emuv_ledger_state(&inst->ledger, account);

	/* an instance of VRAM alone takes no host memory */
	if (inst->config.virtual_bytes && emuv_state_near_floor(inst))
		state |= EMUV_STATE_NEAR_FLOOR;
	return state;
}

/* Make all pollers look again; their cpusets may have different nodes. */
void emuv_state_floor_work(struct work_struct *work)
{
	struct emuv_instance *inst = container_of(to_delayed_work(work),
						  struct emuv_instance,
						  floor_work);

	mutex_lock(&inst->lock);
	/* a poller schedules this work after it has entered the queue */
	if (waitqueue_active(&inst->ledger.changed) && !inst->dead) {
		wake_up_poll(&inst->ledger.changed, EPOLLPRI);
		schedule_delayed_work(&inst->floor_work, EMUV_FLOOR_INTERVAL);
	}
	mutex_unlock(&inst->lock);
}

/*
 * poll() of a client: EPOLLPRI if it does not know the state yet, EPOLLERR and
 * EPOLLHUP once the instance is taken from it.
 */
__poll_t emuv_state_poll(struct emuv_instance *inst,
			 const struct emuv_account *account, struct file *file,
			 poll_table *wait)
{
	/* reads and writes never wait, and io_uring polls before them */
	__poll_t mask = EPOLLIN | EPOLLRDNORM | EPOLLOUT | EPOLLWRNORM;

	poll_wait(file, &inst->ledger.changed, wait);
	if (emuv_instance_is_revoked(inst))
		return mask | EPOLLERR | EPOLLHUP;
	if (!poll_does_not_wait(wait) && inst->config.virtual_bytes) {
		mutex_lock(&inst->lock);
		if (!inst->dead)
			schedule_delayed_work(&inst->floor_work,
					      EMUV_FLOOR_INTERVAL);
		mutex_unlock(&inst->lock);
	}
	if (emuv_ledger_is_news(&inst->ledger, account,
				emuv_state(inst, account)))
		mask |= EPOLLPRI;
	return mask;
}
