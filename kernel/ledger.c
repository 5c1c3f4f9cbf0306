// SPDX-License-Identifier: GPL-2.0-only
/*
 * The ledger of an instance: limits, sums, and the accounts behind the sums.
 *
 * Each sum changes together with its account, under one lock. A reader thus
 * never sees more in the accounts than in the sum.
 */
#include "emuv.h"

void emuv_ledger_init(struct emuv_ledger *ledger, u64 physical, u64 virtual)
{
	spin_lock_init(&ledger->lock);
	ledger->physical_limit = physical;
	ledger->virtual_limit = virtual;
}

/* Charge @bytes of VRAM to an account, or -ENOSPC. */
int emuv_ledger_charge(struct emuv_ledger *ledger, struct emuv_account *account,
		       u64 bytes, u64 *free_bytes)
{
	int err = 0;

	spin_lock(&ledger->lock);
	if (bytes <= ledger->physical_limit - ledger->physical_used) {
		ledger->physical_used += bytes;
		account->physical += bytes;
	} else {
		err = -ENOSPC;
	}
	*free_bytes = ledger->physical_limit - ledger->physical_used;
	spin_unlock(&ledger->lock);
	return err;
}

/*
 * Take @bytes of VRAM out of an account, or -EINVAL. The sum keeps the bytes
 * until emuv_ledger_uncharge_finish(), so that they can still be put back.
 * @free_bytes is the room that will be free then.
 */
int emuv_ledger_uncharge_prepare(struct emuv_ledger *ledger,
				 struct emuv_account *account, u64 bytes,
				 u64 *free_bytes)
{
	int err = 0;

	spin_lock(&ledger->lock);
	if (bytes <= account->physical)
		account->physical -= bytes;
	else
		err = -EINVAL;
	*free_bytes = ledger->physical_limit - ledger->physical_used + bytes;
	spin_unlock(&ledger->lock);
	return err;
}

void emuv_ledger_uncharge_finish(struct emuv_ledger *ledger,
				 struct emuv_account *account, u64 bytes,
				 bool done)
{
	spin_lock(&ledger->lock);
	if (done)
		ledger->physical_used -= bytes;
	else
		account->physical += bytes;
	spin_unlock(&ledger->lock);
}

/* Charge @bytes of virtual VRAM to an account, or -ENOSPC. */
int emuv_ledger_take(struct emuv_ledger *ledger, struct emuv_account *account,
		     u64 bytes)
{
	int err = 0;

	spin_lock(&ledger->lock);
	if (bytes <= ledger->virtual_limit - ledger->virtual_used) {
		ledger->virtual_used += bytes;
		account->virtual += bytes;
	} else {
		err = -ENOSPC;
	}
	spin_unlock(&ledger->lock);
	return err;
}

/* Move @bytes of virtual VRAM out of an account; the bytes stay used. */
void emuv_ledger_disown(struct emuv_ledger *ledger, struct emuv_account *account,
			u64 bytes)
{
	spin_lock(&ledger->lock);
	account->virtual -= bytes;
	ledger->unowned += bytes;
	spin_unlock(&ledger->lock);
}

/* Free @bytes of disowned virtual VRAM. */
void emuv_ledger_return(struct emuv_ledger *ledger, u64 bytes)
{
	spin_lock(&ledger->lock);
	ledger->unowned -= bytes;
	ledger->virtual_used -= bytes;
	spin_unlock(&ledger->lock);
}

/* Add @bytes of other clients' regions to an account; negative to subtract. */
void emuv_ledger_import(struct emuv_ledger *ledger, struct emuv_account *account,
			s64 bytes)
{
	spin_lock(&ledger->lock);
	account->imported += bytes;
	spin_unlock(&ledger->lock);
}

static bool emuv_counters_fit(const struct emuv_counters *in,
			      const struct emuv_counters *delta)
{
	return delta->fetched_bytes <= U64_MAX - in->fetched_bytes &&
	       delta->evicted_bytes <= U64_MAX - in->evicted_bytes &&
	       delta->spills <= U64_MAX - in->spills &&
	       delta->faults <= U64_MAX - in->faults &&
	       delta->hit_bytes <= U64_MAX - in->hit_bytes &&
	       delta->miss_bytes <= U64_MAX - in->miss_bytes &&
	       delta->stalled_ns <= U64_MAX - in->stalled_ns;
}

static void emuv_counter_add(u64 *to, u64 delta)
{
	*to += min(delta, U64_MAX - *to);
}

static void emuv_counters_add(struct emuv_counters *to,
			      const struct emuv_counters *delta)
{
	emuv_counter_add(&to->fetched_bytes, delta->fetched_bytes);
	emuv_counter_add(&to->evicted_bytes, delta->evicted_bytes);
	emuv_counter_add(&to->spills, delta->spills);
	emuv_counter_add(&to->faults, delta->faults);
	emuv_counter_add(&to->hit_bytes, delta->hit_bytes);
	emuv_counter_add(&to->miss_bytes, delta->miss_bytes);
	emuv_counter_add(&to->stalled_ns, delta->stalled_ns);
}

/*
 * Add to an account's counters; -EOVERFLOW if one does not fit, and then
 * nothing is added. Counters never go back. The ledger's own counters stop at
 * their largest value, so that one client's false reports do not block those of
 * others.
 */
int emuv_ledger_report(struct emuv_ledger *ledger, struct emuv_account *account,
		       const struct emuv_counters *delta)
{
	int err = 0;

	spin_lock(&ledger->lock);
	if (emuv_counters_fit(&account->counters, delta)) {
		emuv_counters_add(&ledger->counters, delta);
		emuv_counters_add(&account->counters, delta);
	} else {
		err = -EOVERFLOW;
	}
	spin_unlock(&ledger->lock);
	return err;
}

/* Uncharge all VRAM of an account that is about to go. */
void emuv_ledger_close(struct emuv_ledger *ledger, struct emuv_account *account)
{
	spin_lock(&ledger->lock);
	ledger->physical_used -= account->physical;
	account->physical = 0;
	spin_unlock(&ledger->lock);
}

/* Copy limits and sums as of one moment; the copy's lock is not valid. */
void emuv_ledger_read(struct emuv_ledger *ledger, struct emuv_ledger *copy)
{
	spin_lock(&ledger->lock);
	copy->physical_limit = ledger->physical_limit;
	copy->virtual_limit = ledger->virtual_limit;
	copy->physical_used = ledger->physical_used;
	copy->virtual_used = ledger->virtual_used;
	copy->unowned = ledger->unowned;
	copy->counters = ledger->counters;
	spin_unlock(&ledger->lock);
}

void emuv_ledger_read_account(struct emuv_ledger *ledger,
			      const struct emuv_account *account,
			      struct emuv_account *copy)
{
	spin_lock(&ledger->lock);
	*copy = *account;
	spin_unlock(&ledger->lock);
}

int emuv_ledger_ioctl_charge(struct emuv_call *call)
{
	struct emuv_client *client = call->file->private_data;
	struct emuv_charge *arg = &call->arg.charge;

	return emuv_ledger_charge(&client->inst->ledger, &client->account,
				  arg->bytes, &arg->free_bytes);
}

void emuv_ledger_ioctl_charge_finish(struct emuv_call *call, int err)
{
	struct emuv_client *client = call->file->private_data;
	u64 bytes = call->arg.charge.bytes, unused;

	/* another thread of the client may have uncharged them already */
	if (err && !emuv_ledger_uncharge_prepare(&client->inst->ledger,
						 &client->account, bytes,
						 &unused))
		emuv_ledger_uncharge_finish(&client->inst->ledger,
					    &client->account, bytes, true);
}

int emuv_ledger_ioctl_uncharge(struct emuv_call *call)
{
	struct emuv_client *client = call->file->private_data;
	struct emuv_charge *arg = &call->arg.charge;

	return emuv_ledger_uncharge_prepare(&client->inst->ledger,
					    &client->account, arg->bytes,
					    &arg->free_bytes);
}

void emuv_ledger_ioctl_uncharge_finish(struct emuv_call *call, int err)
{
	struct emuv_client *client = call->file->private_data;

	emuv_ledger_uncharge_finish(&client->inst->ledger, &client->account,
				    call->arg.charge.bytes, !err);
}

int emuv_ledger_ioctl_report(struct emuv_call *call)
{
	struct emuv_client *client = call->file->private_data;
	const struct emuv_report *arg = &call->arg.report;
	const struct emuv_counters delta = {
		.fetched_bytes = arg->fetched_bytes,
		.evicted_bytes = arg->evicted_bytes,
		.spills = arg->spills,
		.faults = arg->faults,
		.hit_bytes = arg->hit_bytes,
		.miss_bytes = arg->miss_bytes,
		.stalled_ns = arg->stalled_ns,
	};

	return emuv_ledger_report(&client->inst->ledger, &client->account,
				  &delta);
}
