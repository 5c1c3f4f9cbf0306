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
	u64 margin = max_t(u64, emuv_param_floor() / 4, SZ_64M);

	/* a device's memory is none of this kernel's */
	if (inst->config.bar)
		return false;
	return emuv_floor_bytes(&inst->config) < margin;
}

/* Get the state as a client sees it; NULL stands for no client. */
u32 emuv_state(struct emuv_instance *inst, const struct emuv_account *account)
{
	u32 state = emuv_ledger_state(&inst->ledger, account);

	/* an instance of VRAM alone takes no host memory */
	if (emuv_instance_virtual_bytes(inst) && emuv_state_near_floor(inst))
		state |= EMUV_STATE_NEAR_FLOOR;
	return state;
}

/*
 * Look at the host's memory for the sysfs attribute, and tell its pollers of
 * news. The attribute says what this found last.
 */
static void emuv_state_look_at_floor(struct emuv_instance *inst)
{
	bool near = emuv_state_near_floor(inst);

	lockdep_assert_held(&inst->lock);
	if (near == inst->near_floor)
		return;
	inst->near_floor = near;
	emuv_ledger_remind(&inst->ledger);
}

/* Have somebody look while there are pollers; false if somebody does already. */
static bool emuv_state_watch_floor(struct emuv_instance *inst)
{
	lockdep_assert_held(&inst->lock);
	return !inst->dead && schedule_delayed_work(&inst->floor_work,
						    EMUV_FLOOR_INTERVAL);
}

/* Make all pollers look again; their cpusets may have different nodes. */
void emuv_state_floor_work(struct work_struct *work)
{
	struct emuv_instance *inst = container_of(to_delayed_work(work),
						  struct emuv_instance,
						  floor_work);

	emuv_kcov_start();
	mutex_lock(&inst->lock);
	emuv_state_look_at_floor(inst);
	/* a poller schedules this work after it has entered the queue */
	if (emuv_ledger_is_watched(&inst->ledger)) {
		wake_up_poll(&inst->ledger.changed, EPOLLPRI);
		emuv_state_watch_floor(inst);
	}
	mutex_unlock(&inst->lock);
	emuv_kcov_stop();
}

/* Get the state for the sysfs attribute, which may be polled afterwards. */
u32 emuv_state_shown(struct emuv_instance *inst)
{
	u32 state = emuv_ledger_state(&inst->ledger, NULL);

	if (!emuv_instance_virtual_bytes(inst))
		return state;
	mutex_lock(&inst->lock);
	if (emuv_state_watch_floor(inst))
		emuv_state_look_at_floor(inst);
	if (inst->near_floor)
		state |= EMUV_STATE_NEAR_FLOOR;
	mutex_unlock(&inst->lock);
	return state;
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
	if ((poll_requested_events(wait) & EPOLLPRI) &&
	    emuv_instance_virtual_bytes(inst)) {
		mutex_lock(&inst->lock);
		emuv_state_watch_floor(inst);
		mutex_unlock(&inst->lock);
	}
	if (emuv_ledger_is_news(&inst->ledger, account,
				emuv_state(inst, account)))
		mask |= EPOLLPRI;
	return mask;
}
