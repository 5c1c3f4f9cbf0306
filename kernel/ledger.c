// SPDX-License-Identifier: GPL-2.0-only
/*
 * The ledger of an instance: limits, sums, and the accounts behind the sums.
 *
 * Each sum changes together with its account, under one lock. A reader thus
 * never sees more in the accounts than in the sum.
 */
#include <linux/jiffies.h>
#include <linux/sysfs.h>

#include "emuv.h"

/* Virtual bytes that one account may have, of @virtual; @client 0 stands for all. */
static u64 emuv_ledger_part(u64 virtual, u64 client)
{
	return client ? min(client, virtual) : virtual;
}

/* @client is the part of @virtual that one account may have; 0: all. */
void emuv_ledger_init(struct emuv_ledger *ledger, u64 physical, u64 virtual,
		      u64 client)
{
	spin_lock_init(&ledger->lock);
	ledger->physical_limit = physical;
	ledger->virtual_limit = virtual;
	ledger->client_limit = emuv_ledger_part(virtual, client);
	INIT_LIST_HEAD(&ledger->waiters);
	ledger->state = physical ? EMUV_STATE_ROOM : 0;
	init_waitqueue_head(&ledger->changed);
}

static u64 emuv_ledger_free_bytes(const struct emuv_ledger *ledger)
{
	return ledger->physical_limit - ledger->physical_used;
}

static void emuv_ledger_enter(struct emuv_ledger *ledger,
			      struct emuv_account *account, u64 bytes)
{
	ledger->physical_used += bytes;
	ledger->physical_peak = max(ledger->physical_peak, ledger->physical_used);
	account->physical += bytes;
}

/* A waiter at the head of the line holds others up no longer than this. */
#define EMUV_LEDGER_TURN	(10 * HZ)

/*
 * A client rests so many times as long as it held others up in vain. So it holds
 * them up for a tenth of the time at most, however often it comes back.
 */
#define EMUV_LEDGER_REST	9

/* Charges of one client that may wait at a time: a settlement looks at them all. */
#define EMUV_LEDGER_WAITS	1024

/* Each waiter looks so often whether the head has had its turn. */
#define EMUV_LEDGER_LOOK	HZ

/*
 * Does the waiter hold up those behind it? Not while its client rests, or if
 * others' returns cannot serve it: then its own client has to return bytes
 * first. Such a waiter keeps its place.
 */
static bool emuv_ledger_is_in_line(const struct emuv_ledger *ledger,
				   const struct emuv_waiter *waiter)
{
	return time_before_eq64(waiter->account->rests_until,
				get_jiffies_64()) &&
	       waiter->bytes <=
	       ledger->physical_limit - waiter->account->physical;
}

/*
 * Find the waiter that the free bytes belong to, or NULL. Without one, note when
 * to look again: nothing but a rest's end then makes one, or a change of sums.
 */
static struct emuv_waiter *emuv_ledger_find_head(struct emuv_ledger *ledger)
{
	const u64 now = get_jiffies_64();
	struct emuv_waiter *waiter;

	/* never, as jiffies are compared */
	ledger->rest_ends = now + MAX_JIFFY_OFFSET;
	list_for_each_entry(waiter, &ledger->waiters, node) {
		u64 until = waiter->account->rests_until;

		if (emuv_ledger_is_in_line(ledger, waiter))
			return waiter;
		if (until > now)
			ledger->rest_ends = min(ledger->rest_ends, until);
	}
	return NULL;
}

/* Count the jiffies for which a waiter has held others up. */
static u64 emuv_ledger_turn(const struct emuv_ledger *ledger,
			    const struct emuv_waiter *waiter)
{
	if (waiter != ledger->head)
		return waiter->held;
	return waiter->held + get_jiffies_64() - ledger->head_since;
}

/* The waiter has held others up in vain, if at all. */
static void emuv_ledger_rest(struct emuv_ledger *ledger,
			     struct emuv_waiter *waiter)
{
	u64 turn = emuv_ledger_turn(ledger, waiter);
	u64 *until = &waiter->account->rests_until;

	if (turn)
		*until = max(*until, get_jiffies_64()) +
			 EMUV_LEDGER_REST * turn;
	waiter->held = 0;
	if (waiter == ledger->head)
		ledger->head_since = get_jiffies_64();
}

static u32 emuv_ledger_new_state(const struct emuv_ledger *ledger)
{
	u64 free_bytes = emuv_ledger_free_bytes(ledger);
	bool was_near = ledger->state & EMUV_STATE_NEAR_LIMIT;
	u32 state = 0;

	if (ledger->waiter_count)
		state |= EMUV_STATE_WAITERS;
	if (free_bytes && !ledger->head)
		state |= EMUV_STATE_ROOM;
	/* hysteresis, so that pollers are not woken for each charge */
	if (free_bytes < ledger->physical_limit >> (was_near ? 3 : 4))
		state |= EMUV_STATE_NEAR_LIMIT;
	return state;
}

static void emuv_ledger_join(struct emuv_ledger *ledger,
			     struct emuv_waiter *waiter)
{
	waiter->held = 0;
	waiter->result = -EINPROGRESS;
	list_add_tail(&waiter->node, &ledger->waiters);
	ledger->waiter_count++;
	waiter->account->waiters++;
	waiter->account->waiting += waiter->bytes;
}

static void emuv_ledger_leave(struct emuv_ledger *ledger,
			      struct emuv_waiter *waiter)
{
	list_del_init(&waiter->node);
	ledger->waiter_count--;
	waiter->account->waiters--;
	waiter->account->waiting -= waiter->bytes;
}

/* Let a waiter go on with its answer. It may be gone after this. */
static void emuv_ledger_answer(struct emuv_ledger *ledger,
			       struct emuv_waiter *waiter, int result)
{
	emuv_ledger_leave(ledger, waiter);
	waiter->result = result;
	complete(&waiter->served);
}

/*
 * Serve waiters in the order of their arrival. A waiter that does not fit yet
 * holds up those behind it, so that small charges cannot starve a large one.
 * It holds them up for a limited time only, and not if its own client is in its
 * way.
 */
static void emuv_ledger_serve(struct emuv_ledger *ledger)
{
	struct emuv_waiter *first, *next;

	list_for_each_entry_safe(first, next, &ledger->waiters, node) {
		if (first->bytes > emuv_ledger_free_bytes(ledger)) {
			if (emuv_ledger_is_in_line(ledger, first))
				break;
			continue;
		}
		emuv_ledger_enter(ledger, first->account, first->bytes);
		emuv_ledger_answer(ledger, first, 0);
	}
}

/*
 * Tell pollers of a new state. @waiters is the length of the queue before.
 * Pollers are told of a new length even if the state is the same, since each
 * client asks whether *others* wait.
 */
static void emuv_ledger_publish(struct emuv_ledger *ledger,
				unsigned int waiters)
{
	u32 state = emuv_ledger_new_state(ledger);

	if (state == ledger->state && waiters == ledger->waiter_count)
		return;
	ledger->state = state;
	wake_up_poll(&ledger->changed, EPOLLPRI);
	if (ledger->told)
		sysfs_notify_dirent(ledger->told);
}

/*
 * Serve waiters and tell pollers, after physical bytes came back or the queue
 * has changed. This looks at all who wait.
 */
static void emuv_ledger_settle(struct emuv_ledger *ledger, unsigned int waiters)
{
	struct emuv_waiter *head;

	lockdep_assert_held(&ledger->lock);
	if (ledger->ended)
		return;
	emuv_ledger_serve(ledger);
	head = emuv_ledger_find_head(ledger);
	if (head != ledger->head) {
		/* it needs the lock to return: it is still there */
		if (ledger->head)
			ledger->head->held = emuv_ledger_turn(ledger,
							      ledger->head);
		ledger->head = head;
		ledger->head_since = get_jiffies_64();
	}
	emuv_ledger_publish(ledger, waiters);
}

/*
 * Let those behind through if the head has had its turn; get one in line whose
 * rest is over. All who wait or charge look, since a head may be slow.
 */
static void emuv_ledger_look(struct emuv_ledger *ledger)
{
	struct emuv_waiter *head = ledger->head;
	bool over;

	if (head) {
		over = emuv_ledger_turn(ledger, head) >= EMUV_LEDGER_TURN;
		if (over)
			emuv_ledger_rest(ledger, head);
	} else {
		over = ledger->waiter_count &&
		       time_after_eq64(get_jiffies_64(), ledger->rest_ends);
	}
	if (over)
		emuv_ledger_settle(ledger, ledger->waiter_count);
}

/*
 * Charge @bytes of VRAM to an account; -ENOSPC also if others wait for room,
 * -ENODEV once the ledger has ended.
 */
int emuv_ledger_charge(struct emuv_ledger *ledger, struct emuv_account *account,
		       u64 bytes, u64 *free_bytes)
{
	int err = 0;

	spin_lock(&ledger->lock);
	emuv_ledger_look(ledger);
	if (ledger->ended) {
		err = -ENODEV;
	} else if (!bytes || (bytes <= emuv_ledger_free_bytes(ledger) &&
			      !ledger->head)) {
		emuv_ledger_enter(ledger, account, bytes);
		/* less room serves nobody, and puts nobody in line */
		emuv_ledger_publish(ledger, ledger->waiter_count);
	} else {
		err = -ENOSPC;
	}
	*free_bytes = emuv_ledger_free_bytes(ledger);
	spin_unlock(&ledger->lock);
	return err;
}

/*
 * Sleep until the waiter is served, the deadline is over, a signal comes, or it
 * is time to look at the line. False after a signal.
 */
static bool emuv_ledger_sleep(struct emuv_waiter *waiter, u64 deadline_ns)
{
	unsigned long limit = EMUV_LEDGER_LOOK;
	u64 now = ktime_get_ns();

	if (deadline_ns <= now)
		return true;
	/* the current tick may end at once */
	if (deadline_ns - now < jiffies_to_nsecs(limit))
		limit = nsecs_to_jiffies(deadline_ns - now) + 1;
	return wait_for_completion_interruptible_timeout(&waiter->served,
							 limit) >= 0;
}

/*
 * Charge @bytes of VRAM as soon as there is room and earlier waiters are served.
 * -ENOSPC if the limit is below @bytes. -EAGAIN if too many charges of the
 * account wait. -ETIMEDOUT, -ECANCELED, -ENODEV once the ledger has ended, or
 * -ERESTARTSYS on a signal.
 * Bytes that come back are charged to the waiter at once, under the ledger's
 * lock. So nobody gets in between, and no wake-up is lost.
 */
int emuv_ledger_charge_wait(struct emuv_ledger *ledger,
			    struct emuv_account *account, u64 bytes,
			    u64 deadline_ns, u64 *free_bytes)
{
	struct emuv_waiter waiter = { .account = account, .bytes = bytes };
	int err;

	err = emuv_ledger_charge(ledger, account, bytes, free_bytes);
	if (err != -ENOSPC)
		return err;
	init_completion(&waiter.served);
	spin_lock(&ledger->lock);
	if (ledger->ended)
		err = -ENODEV;
	else if (bytes > ledger->physical_limit)
		err = -ENOSPC;
	else if (account->waiters >= EMUV_LEDGER_WAITS)
		err = -EAGAIN;
	else
		err = 0;
	if (err)
		goto out_unlock;
	emuv_ledger_join(ledger, &waiter);
	emuv_ledger_settle(ledger, ledger->waiter_count - 1);
	/* a late grant beats the deadline or the signal */
	while (!err && !list_empty(&waiter.node)) {
		bool undisturbed;

		spin_unlock(&ledger->lock);
		undisturbed = emuv_ledger_sleep(&waiter, deadline_ns);
		spin_lock(&ledger->lock);
		if (!undisturbed)
			err = -ERESTARTSYS;
		else if (deadline_ns <= ktime_get_ns())
			err = -ETIMEDOUT;
		else
			emuv_ledger_look(ledger);
	}
	if (list_empty(&waiter.node)) {
		err = waiter.result;
	} else {
		emuv_ledger_rest(ledger, &waiter);
		emuv_ledger_leave(ledger, &waiter);
		emuv_ledger_settle(ledger, ledger->waiter_count + 1);
	}
out_unlock:
	*free_bytes = emuv_ledger_free_bytes(ledger);
	spin_unlock(&ledger->lock);
	return err;
}

/*
 * Change the limits. -EBUSY below what is used, -ENODEV once the ledger has
 * ended. Charges that wait for more than there ever is get -ENOSPC.
 */
int emuv_ledger_resize(struct emuv_ledger *ledger, u64 physical, u64 virtual,
		       u64 client)
{
	struct emuv_waiter *waiter, *next;
	unsigned int waiters;
	int err = 0;

	spin_lock(&ledger->lock);
	waiters = ledger->waiter_count;
	if (ledger->ended)
		err = -ENODEV;
	else if (physical < ledger->physical_used ||
		 virtual < ledger->virtual_used)
		err = -EBUSY;
	if (err)
		goto out_unlock;
	ledger->physical_limit = physical;
	ledger->virtual_limit = virtual;
	/* no account has more: each had no more than the old part */
	ledger->client_limit = emuv_ledger_part(virtual, client);
	list_for_each_entry_safe(waiter, next, &ledger->waiters, node)
		if (waiter->bytes > physical)
			emuv_ledger_answer(ledger, waiter, -ENOSPC);
	emuv_ledger_settle(ledger, waiters);
out_unlock:
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
	if (done) {
		ledger->physical_used -= bytes;
		emuv_ledger_settle(ledger, ledger->waiter_count);
	} else {
		account->physical += bytes;
	}
	spin_unlock(&ledger->lock);
}

/*
 * Charge @bytes of virtual VRAM to an account; -ENOSPC if that passes the
 * ledger's limit or a client's.
 */
int emuv_ledger_take(struct emuv_ledger *ledger, struct emuv_account *account,
		     u64 bytes)
{
	int err = 0;

	spin_lock(&ledger->lock);
	if (bytes <= ledger->virtual_limit - ledger->virtual_used &&
	    bytes <= ledger->client_limit - account->virtual) {
		ledger->virtual_used += bytes;
		ledger->virtual_peak = max(ledger->virtual_peak,
					   ledger->virtual_used);
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

/* End the waits of one client. */
void emuv_ledger_cancel(struct emuv_ledger *ledger, struct emuv_account *account)
{
	struct emuv_waiter *waiter, *next;
	unsigned int waiters;

	spin_lock(&ledger->lock);
	waiters = ledger->waiter_count;
	list_for_each_entry_safe(waiter, next, &ledger->waiters, node) {
		if (waiter->account != account)
			continue;
		emuv_ledger_rest(ledger, waiter);
		emuv_ledger_answer(ledger, waiter, -ECANCELED);
	}
	emuv_ledger_settle(ledger, waiters);
	spin_unlock(&ledger->lock);
}

/* Refuse all charges from now on, those that wait included; wake all pollers. */
void emuv_ledger_end(struct emuv_ledger *ledger)
{
	struct emuv_waiter *waiter, *next;

	spin_lock(&ledger->lock);
	ledger->ended = true;
	ledger->head = NULL;
	list_for_each_entry_safe(waiter, next, &ledger->waiters, node)
		emuv_ledger_answer(ledger, waiter, -ENODEV);
	spin_unlock(&ledger->lock);
	wake_up_all(&ledger->changed);
}

/* Uncharge all VRAM of an account that is about to go. */
void emuv_ledger_close(struct emuv_ledger *ledger, struct emuv_account *account)
{
	spin_lock(&ledger->lock);
	ledger->physical_used -= account->physical;
	account->physical = 0;
	emuv_ledger_settle(ledger, ledger->waiter_count);
	spin_unlock(&ledger->lock);
}

/* Copy limits and sums as of one moment; the copy's lock is not valid. */
void emuv_ledger_read(struct emuv_ledger *ledger, struct emuv_ledger *copy)
{
	spin_lock(&ledger->lock);
	copy->physical_limit = ledger->physical_limit;
	copy->virtual_limit = ledger->virtual_limit;
	copy->client_limit = ledger->client_limit;
	copy->physical_used = ledger->physical_used;
	copy->virtual_used = ledger->virtual_used;
	copy->unowned = ledger->unowned;
	copy->physical_peak = ledger->physical_peak;
	copy->virtual_peak = ledger->virtual_peak;
	copy->counters = ledger->counters;
	copy->waiter_count = ledger->waiter_count;
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

/*
 * Get the state as a client sees it: its own waiting charges do not count. NULL
 * stands for no client.
 */
u32 emuv_ledger_state(struct emuv_ledger *ledger,
		      const struct emuv_account *account)
{
	u32 state;

	spin_lock(&ledger->lock);
	state = ledger->state;
	if (account && account->waiters == ledger->waiter_count)
		state &= ~EMUV_STATE_WAITERS;
	spin_unlock(&ledger->lock);
	return state;
}

/* Note that a client has been told @state. */
void emuv_ledger_saw(struct emuv_ledger *ledger, struct emuv_account *account,
		     u32 state)
{
	spin_lock(&ledger->lock);
	account->seen = state;
	spin_unlock(&ledger->lock);
}

bool emuv_ledger_is_news(struct emuv_ledger *ledger,
			 const struct emuv_account *account, u32 state)
{
	bool news;

	spin_lock(&ledger->lock);
	news = account->seen != state;
	spin_unlock(&ledger->lock);
	return news;
}

/* Tell those who poll the sysfs attribute of a change outside the ledger. */
void emuv_ledger_remind(struct emuv_ledger *ledger)
{
	spin_lock(&ledger->lock);
	if (ledger->told && !ledger->ended)
		sysfs_notify_dirent(ledger->told);
	spin_unlock(&ledger->lock);
}

/* Does anybody poll a client, or have the sysfs attribute open? */
bool emuv_ledger_is_watched(struct emuv_ledger *ledger)
{
	const struct kernfs_node *told = READ_ONCE(ledger->told);

	/* a poller has itself watched after it has entered the queue */
	return waitqueue_active(&ledger->changed) ||
	       (told && rcu_access_pointer(told->attr.open));
}

/* Tell pollers of a sysfs attribute, too; the ledger owns @node from now on. */
void emuv_ledger_tell(struct emuv_ledger *ledger, struct kernfs_node *node)
{
	spin_lock(&ledger->lock);
	WRITE_ONCE(ledger->told, node);
	spin_unlock(&ledger->lock);
}

int emuv_ledger_ioctl_charge(struct emuv_call *call)
{
	struct emuv_client *client = call->file->private_data;
	struct emuv_charge *arg = &call->arg.charge;
	struct emuv_ledger now;
	int err;

	if (!(arg->flags & EMUV_CHARGE_WAIT) && arg->deadline_ns)
		return -EINVAL;
	if (READ_ONCE(client->inst->dmem.region)) {
		/* more never fits, and could be more than a cgroup can count */
		emuv_ledger_read(&client->inst->ledger, &now);
		if (arg->bytes > now.physical_limit)
			return -ENOSPC;
	}
	err = emuv_dmem_charge(client, arg->bytes, &call->pool);
	if (err)
		return err;
	if (arg->flags & EMUV_CHARGE_WAIT)
		err = emuv_ledger_charge_wait(&client->inst->ledger,
					      &client->account, arg->bytes,
					      arg->deadline_ns,
					      &arg->free_bytes);
	else
		err = emuv_ledger_charge(&client->inst->ledger,
					 &client->account, arg->bytes,
					 &arg->free_bytes);
	if (err && call->pool)
		emuv_dmem_uncharge(client, arg->bytes, call->pool);
	return err;
}

void emuv_ledger_ioctl_charge_finish(struct emuv_call *call, int err)
{
	struct emuv_client *client = call->file->private_data;
	u64 bytes = call->arg.charge.bytes, unused;

	/* another thread of the client may have uncharged them already */
	if (err && !emuv_ledger_uncharge_prepare(&client->inst->ledger,
						 &client->account, bytes,
						 &unused)) {
		emuv_ledger_uncharge_finish(&client->inst->ledger,
					    &client->account, bytes, true);
		if (call->pool)
			emuv_dmem_uncharge(client, bytes, call->pool);
	}
}

int emuv_ledger_ioctl_uncharge(struct emuv_call *call)
{
	struct emuv_client *client = call->file->private_data;
	struct emuv_charge *arg = &call->arg.charge;

	if (arg->deadline_ns)
		return -EINVAL;
	return emuv_ledger_uncharge_prepare(&client->inst->ledger,
					    &client->account, arg->bytes,
					    &arg->free_bytes);
}

void emuv_ledger_ioctl_uncharge_finish(struct emuv_call *call, int err)
{
	struct emuv_client *client = call->file->private_data;
	struct emuv_ledger *ledger = &client->inst->ledger;

	emuv_ledger_uncharge_finish(ledger, &client->account,
				    call->arg.charge.bytes, !err);
	if (!err)
		emuv_dmem_uncharge(client, call->arg.charge.bytes, NULL);
	if (!err && call->arg.flags & EMUV_UNCHARGE_CANCEL)
		emuv_ledger_cancel(ledger, &client->account);
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
