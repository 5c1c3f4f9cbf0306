// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests of ledger.c: limits hold, and sums equal the accounts.
 */
#include <kunit/test.h>
#include <linux/module.h>
#include <linux/prandom.h>

#include "ledger.c"

#define ACCOUNTS	4
#define PHYSICAL	1000
#define VIRTUAL		500

struct ledger_model {
	struct emuv_ledger ledger;
	struct emuv_account accounts[ACCOUNTS];
	u64 unowned;
};

static int ledger_kunit_init(struct kunit *test)
{
	struct ledger_model *model;

	model = kunit_kzalloc(test, sizeof(*model), GFP_KERNEL);
	if (!model)
		return -ENOMEM;
	emuv_ledger_init(&model->ledger, PHYSICAL, VIRTUAL, VIRTUAL);
	test->priv = model;
	return 0;
}

static void ledger_expect_sums(struct kunit *test)
{
	struct ledger_model *model = test->priv;
	u64 physical = 0, virtual = model->unowned;
	struct emuv_ledger sums;
	int i;

	for (i = 0; i < ACCOUNTS; i++) {
		physical += model->accounts[i].physical;
		virtual += model->accounts[i].virtual;
	}
	emuv_ledger_read(&model->ledger, &sums);
	KUNIT_EXPECT_EQ(test, sums.physical_used, physical);
	KUNIT_EXPECT_EQ(test, sums.virtual_used, virtual);
	KUNIT_EXPECT_EQ(test, sums.unowned, model->unowned);
	KUNIT_EXPECT_LE(test, sums.physical_used, sums.physical_limit);
	KUNIT_EXPECT_LE(test, sums.virtual_used, sums.virtual_limit);
	KUNIT_EXPECT_LE(test, sums.physical_used, sums.physical_peak);
	KUNIT_EXPECT_LE(test, sums.virtual_used, sums.virtual_peak);
}

static void ledger_charges_up_to_the_limit(struct kunit *test)
{
	struct ledger_model *model = test->priv;
	struct emuv_account *one = &model->accounts[0];
	struct emuv_account *two = &model->accounts[1];
	u64 free_bytes;

	KUNIT_EXPECT_EQ(test, emuv_ledger_charge(&model->ledger, one, U64_MAX,
						 &free_bytes), -ENOSPC);
	KUNIT_EXPECT_EQ(test, emuv_ledger_charge(&model->ledger, one,
						 PHYSICAL - 1, &free_bytes), 0);
	KUNIT_EXPECT_EQ(test, free_bytes, 1);
	KUNIT_EXPECT_EQ(test, emuv_ledger_charge(&model->ledger, two, 2,
						 &free_bytes), -ENOSPC);
	KUNIT_EXPECT_EQ(test, emuv_ledger_charge(&model->ledger, two, U64_MAX,
						 &free_bytes), -ENOSPC);
	KUNIT_EXPECT_EQ(test, emuv_ledger_charge(&model->ledger, two, 1,
						 &free_bytes), 0);
	KUNIT_EXPECT_EQ(test, free_bytes, 0);
	ledger_expect_sums(test);
}

static void ledger_gives_virtual_bytes_up_to_the_limit(struct kunit *test)
{
	struct ledger_model *model = test->priv;
	struct emuv_account *one = &model->accounts[0];
	struct emuv_account *two = &model->accounts[1];

	KUNIT_EXPECT_EQ(test, emuv_ledger_take(&model->ledger, one, VIRTUAL), 0);
	KUNIT_EXPECT_EQ(test, emuv_ledger_take(&model->ledger, two, 1), -ENOSPC);
	KUNIT_EXPECT_EQ(test, emuv_ledger_take(&model->ledger, two, U64_MAX),
			-ENOSPC);
	emuv_ledger_disown(&model->ledger, one, 10);
	model->unowned = 10;
	KUNIT_EXPECT_EQ(test, emuv_ledger_take(&model->ledger, two, 1), -ENOSPC);
	ledger_expect_sums(test);
	emuv_ledger_return(&model->ledger, 10);
	model->unowned = 0;
	KUNIT_EXPECT_EQ(test, emuv_ledger_take(&model->ledger, two, 10), 0);
	ledger_expect_sums(test);
}

static void ledger_uncharges_what_is_the_accounts_own(struct kunit *test)
{
	struct ledger_model *model = test->priv;
	struct emuv_account *one = &model->accounts[0];
	struct emuv_account *two = &model->accounts[1];
	u64 free_bytes;

	emuv_ledger_charge(&model->ledger, one, 10, &free_bytes);
	emuv_ledger_charge(&model->ledger, two, 20, &free_bytes);
	KUNIT_EXPECT_EQ(test, emuv_ledger_uncharge_prepare(&model->ledger, one,
							   11, &free_bytes),
			-EINVAL);
	ledger_expect_sums(test);
	KUNIT_EXPECT_EQ(test, emuv_ledger_uncharge_prepare(&model->ledger, one,
							   10, &free_bytes),
			0);
	KUNIT_EXPECT_EQ(test, free_bytes, PHYSICAL - 20);
	emuv_ledger_uncharge_finish(&model->ledger, one, 10, true);
	ledger_expect_sums(test);
	KUNIT_EXPECT_EQ(test, one->physical, 0);
}

static void ledger_gives_nobody_what_may_yet_be_put_back(struct kunit *test)
{
	struct ledger_model *model = test->priv;
	struct emuv_account *one = &model->accounts[0];
	u64 free_bytes;

	emuv_ledger_charge(&model->ledger, one, PHYSICAL, &free_bytes);
	emuv_ledger_uncharge_prepare(&model->ledger, one, 10, &free_bytes);
	KUNIT_EXPECT_EQ(test, emuv_ledger_charge(&model->ledger,
						 &model->accounts[1], 1,
						 &free_bytes), -ENOSPC);
	emuv_ledger_uncharge_finish(&model->ledger, one, 10, false);
	KUNIT_EXPECT_EQ(test, one->physical, PHYSICAL);
	ledger_expect_sums(test);
}

static void ledger_wait(struct emuv_ledger *ledger, struct emuv_waiter *waiter,
			struct emuv_account *account, u64 bytes)
{
	waiter->account = account;
	waiter->bytes = bytes;
	init_completion(&waiter->served);
	spin_lock(&ledger->lock);
	emuv_ledger_join(ledger, waiter);
	emuv_ledger_settle(ledger, ledger->waiter_count - 1);
	spin_unlock(&ledger->lock);
}

static void ledger_serves_those_who_wait_in_order(struct kunit *test)
{
	struct ledger_model *model = test->priv;
	struct emuv_ledger *ledger = &model->ledger;
	struct emuv_account *one = &model->accounts[0];
	struct emuv_account *two = &model->accounts[1];
	struct emuv_waiter large, small;
	u64 free_bytes;

	emuv_ledger_charge(ledger, one, PHYSICAL, &free_bytes);
	ledger_wait(ledger, &large, two, 20);
	ledger_wait(ledger, &small, two, 1);
	KUNIT_EXPECT_EQ(test, two->waiters, 2);
	emuv_ledger_uncharge_prepare(ledger, one, 10, &free_bytes);
	emuv_ledger_uncharge_finish(ledger, one, 10, true);
	KUNIT_EXPECT_FALSE(test, completion_done(&large.served));
	KUNIT_EXPECT_FALSE(test, completion_done(&small.served));
	KUNIT_EXPECT_EQ(test, emuv_ledger_charge(ledger, one, 1, &free_bytes),
			-ENOSPC);
	KUNIT_EXPECT_EQ(test, free_bytes, 10);
	ledger_expect_sums(test);
	emuv_ledger_uncharge_prepare(ledger, one, 10, &free_bytes);
	emuv_ledger_uncharge_finish(ledger, one, 10, true);
	KUNIT_EXPECT_TRUE(test, completion_done(&large.served));
	KUNIT_EXPECT_FALSE(test, completion_done(&small.served));
	KUNIT_EXPECT_EQ(test, two->physical, 20);
	ledger_expect_sums(test);
	emuv_ledger_close(ledger, one);
	KUNIT_EXPECT_TRUE(test, completion_done(&small.served));
	KUNIT_EXPECT_EQ(test, two->physical, 21);
	KUNIT_EXPECT_EQ(test, two->waiters, 0);
	KUNIT_EXPECT_TRUE(test, list_empty(&ledger->waiters));
	ledger_expect_sums(test);
}

static void ledger_takes_nothing_back_by_a_lower_limit(struct kunit *test)
{
	struct ledger_model *model = test->priv;
	struct emuv_ledger *ledger = &model->ledger;
	struct emuv_account *one = &model->accounts[0];
	struct emuv_waiter large, small;
	u64 free_bytes;

	emuv_ledger_charge(ledger, one, 600, &free_bytes);
	emuv_ledger_take(ledger, one, 300);
	KUNIT_EXPECT_EQ(test, emuv_ledger_resize(ledger, 599, VIRTUAL, 0),
			-EBUSY);
	KUNIT_EXPECT_EQ(test, emuv_ledger_resize(ledger, 2000, 299, 0), -EBUSY);
	KUNIT_EXPECT_EQ(test, ledger->physical_limit, PHYSICAL);
	KUNIT_EXPECT_EQ(test, ledger->virtual_limit, VIRTUAL);

	ledger_wait(ledger, &large, &model->accounts[1], 900);
	ledger_wait(ledger, &small, &model->accounts[2], 500);
	KUNIT_EXPECT_EQ(test, emuv_ledger_resize(ledger, 800, 300, 400), 0);
	KUNIT_EXPECT_EQ(test, large.result, -ENOSPC);
	KUNIT_EXPECT_PTR_EQ(test, ledger->head, &small);
	KUNIT_EXPECT_EQ(test, ledger->client_limit, 300);
	KUNIT_EXPECT_EQ(test, emuv_ledger_resize(ledger, 1100, 600, 400), 0);
	KUNIT_EXPECT_EQ(test, small.result, 0);
	KUNIT_EXPECT_EQ(test, ledger->client_limit, 400);
	KUNIT_EXPECT_EQ(test, emuv_ledger_charge(ledger, one, 1, &free_bytes),
			-ENOSPC);
	ledger_expect_sums(test);
}

static void ledger_lets_others_through_when_one_gives_up(struct kunit *test)
{
	struct ledger_model *model = test->priv;
	struct emuv_ledger *ledger = &model->ledger;
	struct emuv_account *one = &model->accounts[0];
	struct emuv_account *two = &model->accounts[1];
	struct emuv_waiter behind;
	u64 free_bytes;

	KUNIT_EXPECT_EQ(test, emuv_ledger_charge_wait(ledger, one, PHYSICAL + 1,
						      EMUV_NO_DEADLINE,
						      &free_bytes), -ENOSPC);
	emuv_ledger_charge(ledger, one, PHYSICAL - 5, &free_bytes);
	KUNIT_EXPECT_EQ(test, emuv_ledger_charge_wait(ledger, two, 6, 1,
						      &free_bytes), -ETIMEDOUT);
	KUNIT_EXPECT_EQ(test, free_bytes, 5);
	KUNIT_EXPECT_EQ(test, emuv_ledger_charge_wait(ledger, two, 5, 0,
						      &free_bytes), 0);
	KUNIT_EXPECT_EQ(test, ledger->waiter_count, 0);
	emuv_ledger_close(ledger, two);
	ledger_wait(ledger, &behind, two, 6);
	emuv_ledger_uncharge_prepare(ledger, one, 1, &free_bytes);
	emuv_ledger_uncharge_finish(ledger, one, 1, true);
	KUNIT_EXPECT_TRUE(test, completion_done(&behind.served));
	ledger_expect_sums(test);
}

static void ledger_holds_nobody_up_for_a_client_in_its_own_way(struct kunit *test)
{
	struct ledger_model *model = test->priv;
	struct emuv_ledger *ledger = &model->ledger;
	struct emuv_account *one = &model->accounts[0];
	struct emuv_account *two = &model->accounts[1];
	struct emuv_waiter own, behind;
	u64 free_bytes;

	emuv_ledger_charge(ledger, one, PHYSICAL - 100, &free_bytes);
	ledger_wait(ledger, &own, one, 101);
	KUNIT_EXPECT_EQ(test, ledger->state & EMUV_STATE_ROOM, EMUV_STATE_ROOM);
	KUNIT_EXPECT_EQ(test, emuv_ledger_charge(ledger, two, 40, &free_bytes),
			0);
	ledger_wait(ledger, &behind, two, 60);
	KUNIT_EXPECT_TRUE(test, completion_done(&behind.served));
	KUNIT_EXPECT_FALSE(test, completion_done(&own.served));
	/* it is in line, and at its head, as soon as others could serve it */
	emuv_ledger_uncharge_prepare(ledger, one, 1, &free_bytes);
	emuv_ledger_uncharge_finish(ledger, one, 1, true);
	KUNIT_EXPECT_EQ(test, emuv_ledger_charge(ledger, two, 1, &free_bytes),
			-ENOSPC);
	emuv_ledger_close(ledger, two);
	KUNIT_EXPECT_TRUE(test, completion_done(&own.served));
	ledger_expect_sums(test);
	emuv_ledger_close(ledger, one);
	ledger_expect_sums(test);
}

static void ledger_bounds_the_waits_of_a_client(struct kunit *test)
{
	struct ledger_model *model = test->priv;
	struct emuv_ledger *ledger = &model->ledger;
	struct emuv_account *one = &model->accounts[0];
	struct emuv_account *two = &model->accounts[1];
	u64 free_bytes;

	emuv_ledger_charge(ledger, one, PHYSICAL, &free_bytes);
	two->waiters = EMUV_LEDGER_WAITS;
	KUNIT_EXPECT_EQ(test, emuv_ledger_charge_wait(ledger, two, 1,
						      EMUV_NO_DEADLINE,
						      &free_bytes), -EAGAIN);
	two->waiters = EMUV_LEDGER_WAITS - 1;
	KUNIT_EXPECT_EQ(test, emuv_ledger_charge_wait(ledger, two, 1, 1,
						      &free_bytes), -ETIMEDOUT);
	two->waiters = 0;
	ledger_expect_sums(test);
}

static void ledger_counts_what_a_waiter_held_up_before(struct kunit *test)
{
	struct ledger_model *model = test->priv;
	struct emuv_ledger *ledger = &model->ledger;
	struct emuv_account *one = &model->accounts[0];
	struct emuv_account *two = &model->accounts[1];
	struct emuv_account *three = &model->accounts[2];
	struct emuv_waiter first, second;
	u64 free_bytes;

	emuv_ledger_charge(ledger, one, PHYSICAL - 5, &free_bytes);
	two->rests_until = get_jiffies_64() + 1000 * HZ;
	ledger_wait(ledger, &first, two, 8);
	KUNIT_EXPECT_PTR_EQ(test, ledger->head, NULL);
	ledger_wait(ledger, &second, three, 6);
	KUNIT_EXPECT_PTR_EQ(test, ledger->head, &second);
	ledger->head_since -= HZ;
	/* one before it comes into line, and it goes */
	two->rests_until = 0;
	emuv_ledger_uncharge_prepare(ledger, one, 0, &free_bytes);
	emuv_ledger_uncharge_finish(ledger, one, 0, true);
	KUNIT_EXPECT_PTR_EQ(test, ledger->head, &first);
	KUNIT_EXPECT_GE(test, second.held, HZ);
	emuv_ledger_cancel(ledger, three);
	KUNIT_EXPECT_GT(test, three->rests_until, get_jiffies_64());
	emuv_ledger_cancel(ledger, two);
	ledger_expect_sums(test);
}

static void ledger_looks_again_when_a_rest_is_over(struct kunit *test)
{
	struct ledger_model *model = test->priv;
	struct emuv_ledger *ledger = &model->ledger;
	struct emuv_account *one = &model->accounts[0];
	struct emuv_account *two = &model->accounts[1];
	struct emuv_account *three = &model->accounts[2];
	struct emuv_waiter waiter;
	u64 free_bytes;

	emuv_ledger_charge(ledger, one, PHYSICAL - 5, &free_bytes);
	two->rests_until = get_jiffies_64() + 1000 * HZ;
	ledger_wait(ledger, &waiter, two, 8);
	KUNIT_EXPECT_EQ(test, ledger->rest_ends, two->rests_until);
	KUNIT_EXPECT_EQ(test, emuv_ledger_charge(ledger, three, 1, &free_bytes),
			0);
	two->rests_until -= 1000 * HZ;
	ledger->rest_ends = two->rests_until;
	KUNIT_EXPECT_EQ(test, emuv_ledger_charge(ledger, three, 1, &free_bytes),
			-ENOSPC);
	KUNIT_EXPECT_PTR_EQ(test, ledger->head, &waiter);
	emuv_ledger_cancel(ledger, two);
	ledger_expect_sums(test);
}

static void ledger_passes_over_whoever_holds_others_up_for_too_long(struct kunit *test)
{
	struct ledger_model *model = test->priv;
	struct emuv_ledger *ledger = &model->ledger;
	struct emuv_account *one = &model->accounts[0];
	struct emuv_account *two = &model->accounts[1];
	struct emuv_account *three = &model->accounts[2];
	struct emuv_waiter large, small, again;
	u64 free_bytes;

	emuv_ledger_charge(ledger, one, PHYSICAL - 5, &free_bytes);
	ledger_wait(ledger, &large, two, 6);
	ledger_wait(ledger, &small, three, 3);
	KUNIT_EXPECT_EQ(test, emuv_ledger_charge(ledger, three, 1, &free_bytes),
			-ENOSPC);
	KUNIT_EXPECT_FALSE(test, completion_done(&small.served));
	/* others look, too */
	ledger->head_since -= EMUV_LEDGER_TURN;
	KUNIT_EXPECT_EQ(test, emuv_ledger_charge(ledger, three, 1, &free_bytes),
			0);
	KUNIT_EXPECT_TRUE(test, completion_done(&small.served));
	KUNIT_EXPECT_FALSE(test, completion_done(&large.served));
	/* whatever it does, its client holds nobody up for a while */
	ledger_wait(ledger, &again, two, 2);
	KUNIT_EXPECT_FALSE(test, completion_done(&again.served));
	KUNIT_EXPECT_EQ(test, emuv_ledger_charge(ledger, three, 1, &free_bytes),
			0);
	/* later it may */
	two->rests_until = 0;
	emuv_ledger_uncharge_prepare(ledger, three, 1, &free_bytes);
	emuv_ledger_uncharge_finish(ledger, three, 1, true);
	KUNIT_EXPECT_EQ(test, emuv_ledger_charge(ledger, three, 1, &free_bytes),
			-ENOSPC);
	emuv_ledger_close(ledger, one);
	KUNIT_EXPECT_TRUE(test, completion_done(&large.served));
	KUNIT_EXPECT_TRUE(test, completion_done(&again.served));
	ledger_expect_sums(test);
}

static void ledger_cancels_the_waits_of_one_client(struct kunit *test)
{
	struct ledger_model *model = test->priv;
	struct emuv_ledger *ledger = &model->ledger;
	struct emuv_account *one = &model->accounts[0];
	struct emuv_account *two = &model->accounts[1];
	struct emuv_account *three = &model->accounts[2];
	struct emuv_waiter first, behind, last;
	u64 free_bytes;

	emuv_ledger_charge(ledger, one, PHYSICAL - 5, &free_bytes);
	ledger_wait(ledger, &first, two, 6);
	ledger_wait(ledger, &behind, three, 5);
	ledger_wait(ledger, &last, two, 1);
	emuv_ledger_cancel(ledger, two);
	KUNIT_EXPECT_EQ(test, first.result, -ECANCELED);
	KUNIT_EXPECT_EQ(test, behind.result, 0);
	KUNIT_EXPECT_EQ(test, last.result, -ECANCELED);
	KUNIT_EXPECT_TRUE(test, completion_done(&first.served));
	KUNIT_EXPECT_EQ(test, two->waiters, 0);
	KUNIT_EXPECT_EQ(test, two->waiting, 0);
	KUNIT_EXPECT_EQ(test, ledger->waiter_count, 0);
	ledger_expect_sums(test);
}

static void ledger_bounds_what_one_client_takes(struct kunit *test)
{
	struct ledger_model *model = test->priv;
	struct emuv_ledger *ledger = &model->ledger;
	struct emuv_account *one = &model->accounts[0];
	struct emuv_account *two = &model->accounts[1];

	ledger->client_limit = VIRTUAL / 2;
	KUNIT_EXPECT_EQ(test, emuv_ledger_take(ledger, one, VIRTUAL / 2 + 1),
			-ENOSPC);
	KUNIT_EXPECT_EQ(test, emuv_ledger_take(ledger, one, VIRTUAL / 2), 0);
	KUNIT_EXPECT_EQ(test, emuv_ledger_take(ledger, one, 1), -ENOSPC);
	KUNIT_EXPECT_EQ(test, emuv_ledger_take(ledger, two, VIRTUAL / 2), 0);
	ledger_expect_sums(test);
}

static void ledger_state_follows_the_sum_and_those_who_wait(struct kunit *test)
{
	struct ledger_model *model = test->priv;
	struct emuv_ledger *ledger = &model->ledger;
	struct emuv_account *one = &model->accounts[0];
	struct emuv_account *two = &model->accounts[1];
	struct emuv_waiter waiter;
	u64 free_bytes;

	KUNIT_EXPECT_EQ(test, ledger->state, EMUV_STATE_ROOM);
	emuv_ledger_charge(ledger, one, PHYSICAL - PHYSICAL / 16, &free_bytes);
	KUNIT_EXPECT_EQ(test, ledger->state, EMUV_STATE_ROOM);
	emuv_ledger_charge(ledger, one, 1, &free_bytes);
	KUNIT_EXPECT_EQ(test, ledger->state,
			EMUV_STATE_ROOM | EMUV_STATE_NEAR_LIMIT);
	ledger_wait(ledger, &waiter, two, PHYSICAL);
	KUNIT_EXPECT_EQ(test, ledger->state,
			EMUV_STATE_WAITERS | EMUV_STATE_NEAR_LIMIT);
	KUNIT_EXPECT_EQ(test, emuv_ledger_state(ledger, one),
			EMUV_STATE_WAITERS | EMUV_STATE_NEAR_LIMIT);
	KUNIT_EXPECT_EQ(test, emuv_ledger_state(ledger, two),
			EMUV_STATE_NEAR_LIMIT);
	emuv_ledger_close(ledger, one);
	KUNIT_EXPECT_EQ(test, ledger->state, EMUV_STATE_NEAR_LIMIT);
	emuv_ledger_uncharge_prepare(ledger, two, PHYSICAL / 8 - 1, &free_bytes);
	emuv_ledger_uncharge_finish(ledger, two, PHYSICAL / 8 - 1, true);
	KUNIT_EXPECT_EQ(test, ledger->state,
			EMUV_STATE_ROOM | EMUV_STATE_NEAR_LIMIT);
	emuv_ledger_close(ledger, two);
	KUNIT_EXPECT_EQ(test, ledger->state, EMUV_STATE_ROOM);
}

static void ledger_takes_back_what_a_closed_account_charged(struct kunit *test)
{
	struct ledger_model *model = test->priv;
	u64 free_bytes;

	emuv_ledger_charge(&model->ledger, &model->accounts[0], 10, &free_bytes);
	emuv_ledger_charge(&model->ledger, &model->accounts[1], 20, &free_bytes);
	emuv_ledger_close(&model->ledger, &model->accounts[0]);
	KUNIT_EXPECT_EQ(test, model->ledger.physical_used, 20);
	ledger_expect_sums(test);
}

static void ledger_keeps_the_peaks_of_its_sums(struct kunit *test)
{
	struct ledger_model *model = test->priv;
	struct emuv_account *one = &model->accounts[0];
	struct emuv_ledger sums;
	u64 free_bytes;

	emuv_ledger_charge(&model->ledger, one, 30, &free_bytes);
	emuv_ledger_take(&model->ledger, one, 40);
	emuv_ledger_uncharge_prepare(&model->ledger, one, 20, &free_bytes);
	emuv_ledger_uncharge_finish(&model->ledger, one, 20, true);
	emuv_ledger_disown(&model->ledger, one, 35);
	emuv_ledger_return(&model->ledger, 35);
	emuv_ledger_charge(&model->ledger, one, 5, &free_bytes);
	emuv_ledger_charge(&model->ledger, one, PHYSICAL, &free_bytes);
	emuv_ledger_take(&model->ledger, one, VIRTUAL);
	emuv_ledger_read(&model->ledger, &sums);
	KUNIT_EXPECT_EQ(test, sums.physical_peak, 30);
	KUNIT_EXPECT_EQ(test, sums.virtual_peak, 40);
	emuv_ledger_charge(&model->ledger, one, 20, &free_bytes);
	emuv_ledger_take(&model->ledger, one, 37);
	emuv_ledger_read(&model->ledger, &sums);
	KUNIT_EXPECT_EQ(test, sums.physical_peak, 35);
	KUNIT_EXPECT_EQ(test, sums.virtual_peak, 42);
	ledger_expect_sums(test);
}

static void ledger_adds_up_what_accounts_report(struct kunit *test)
{
	struct ledger_model *model = test->priv;
	const struct emuv_counters delta = { 1, 20, 300, 4000, 5, 60, 700 };

	KUNIT_EXPECT_EQ(test, emuv_ledger_report(&model->ledger,
						 &model->accounts[0], &delta),
			0);
	KUNIT_EXPECT_EQ(test, emuv_ledger_report(&model->ledger,
						 &model->accounts[1], &delta),
			0);
	KUNIT_EXPECT_EQ(test, model->accounts[1].counters.evicted_bytes, 20);
	KUNIT_EXPECT_EQ(test, model->ledger.counters.fetched_bytes, 2);
	KUNIT_EXPECT_EQ(test, model->ledger.counters.evicted_bytes, 40);
	KUNIT_EXPECT_EQ(test, model->ledger.counters.spills, 600);
	KUNIT_EXPECT_EQ(test, model->ledger.counters.faults, 8000);
	KUNIT_EXPECT_EQ(test, model->ledger.counters.hit_bytes, 10);
	KUNIT_EXPECT_EQ(test, model->ledger.counters.miss_bytes, 120);
	KUNIT_EXPECT_EQ(test, model->ledger.counters.stalled_ns, 1400);
}

static void ledger_counters_never_go_back(struct kunit *test)
{
	struct ledger_model *model = test->priv;
	const struct emuv_counters one = { .spills = 1, .faults = 1 };
	const struct emuv_counters rest = { .spills = U64_MAX };

	KUNIT_EXPECT_EQ(test, emuv_ledger_report(&model->ledger,
						 &model->accounts[0], &one),
			0);
	KUNIT_EXPECT_EQ(test, emuv_ledger_report(&model->ledger,
						 &model->accounts[0], &rest),
			-EOVERFLOW);
	KUNIT_EXPECT_EQ(test, model->accounts[0].counters.spills, 1);
	KUNIT_EXPECT_EQ(test, model->ledger.counters.spills, 1);
	KUNIT_EXPECT_EQ(test, emuv_ledger_report(&model->ledger,
						 &model->accounts[1], &rest),
			0);
	KUNIT_EXPECT_EQ(test, model->ledger.counters.spills, U64_MAX);
	KUNIT_EXPECT_EQ(test, emuv_ledger_report(&model->ledger,
						 &model->accounts[0], &one),
			0);
	KUNIT_EXPECT_EQ(test, model->accounts[0].counters.spills, 2);
	KUNIT_EXPECT_EQ(test, model->ledger.counters.spills, U64_MAX);
	KUNIT_EXPECT_EQ(test, model->ledger.counters.faults, 2);
}

/* Random steps from a fixed seed, so that a failure can be repeated. */
static void ledger_sums_are_the_accounts_whatever_comes(struct kunit *test)
{
	struct ledger_model *model = test->priv;
	struct emuv_ledger *ledger = &model->ledger;
	struct rnd_state chance;
	int round;

	prandom_seed_state(&chance, 1);
	for (round = 0; round < 10000; round++) {
		u32 dice = prandom_u32_state(&chance);
		struct emuv_account *account = &model->accounts[dice % ACCOUNTS];
		u64 bytes = (dice >> 8) % 300, unused;

		switch ((dice >> 4) % 6) {
		case 0:
			emuv_ledger_charge(ledger, account, bytes, &unused);
			break;
		case 1:
			if (!emuv_ledger_uncharge_prepare(ledger, account, bytes,
							  &unused))
				emuv_ledger_uncharge_finish(ledger, account,
							    bytes, dice >> 31);
			break;
		case 2:
			emuv_ledger_take(ledger, account, bytes);
			break;
		case 3:
			bytes = min(bytes, account->virtual);
			emuv_ledger_disown(ledger, account, bytes);
			model->unowned += bytes;
			break;
		case 4:
			bytes = min(bytes, model->unowned);
			emuv_ledger_return(ledger, bytes);
			model->unowned -= bytes;
			break;
		case 5:
			emuv_ledger_close(ledger, account);
			break;
		}
		ledger_expect_sums(test);
	}
}

/* The call may come to the ledger as its instance is revoked. */
static void ledger_that_has_ended_says_so_for_any_size(struct kunit *test)
{
	struct emuv_call call = {};
	struct emuv_instance *inst;
	struct emuv_client *client;

	inst = kunit_kzalloc(test, sizeof(*inst), GFP_KERNEL);
	client = kunit_kzalloc(test, sizeof(*client), GFP_KERNEL);
	call.file = kunit_kzalloc(test, sizeof(*call.file), GFP_KERNEL);
	KUNIT_ASSERT_TRUE(test, inst && client && call.file);
	emuv_ledger_init(&inst->ledger, PHYSICAL, VIRTUAL, VIRTUAL);
	emuv_dmem_init(&inst->dmem);
	emuv_dmem_init_client(client);
	client->inst = inst;
	call.file->private_data = client;
	call.arg.charge.bytes = PHYSICAL + 1;
	KUNIT_EXPECT_EQ(test, emuv_ledger_ioctl_charge(&call), -ENOSPC);
	emuv_ledger_end(&inst->ledger);
	KUNIT_EXPECT_EQ(test, emuv_ledger_ioctl_charge(&call), -ENODEV);
	call.arg.charge.flags = EMUV_CHARGE_WAIT;
	call.arg.charge.deadline_ns = EMUV_NO_DEADLINE;
	KUNIT_EXPECT_EQ(test, emuv_ledger_ioctl_charge(&call), -ENODEV);
}

static struct kunit_case ledger_kunit_cases[] = {
	KUNIT_CASE(ledger_charges_up_to_the_limit),
	KUNIT_CASE(ledger_gives_virtual_bytes_up_to_the_limit),
	KUNIT_CASE(ledger_uncharges_what_is_the_accounts_own),
	KUNIT_CASE(ledger_gives_nobody_what_may_yet_be_put_back),
	KUNIT_CASE(ledger_serves_those_who_wait_in_order),
	KUNIT_CASE(ledger_takes_nothing_back_by_a_lower_limit),
	KUNIT_CASE(ledger_lets_others_through_when_one_gives_up),
	KUNIT_CASE(ledger_holds_nobody_up_for_a_client_in_its_own_way),
	KUNIT_CASE(ledger_bounds_the_waits_of_a_client),
	KUNIT_CASE(ledger_counts_what_a_waiter_held_up_before),
	KUNIT_CASE(ledger_looks_again_when_a_rest_is_over),
	KUNIT_CASE(ledger_passes_over_whoever_holds_others_up_for_too_long),
	KUNIT_CASE(ledger_cancels_the_waits_of_one_client),
	KUNIT_CASE(ledger_bounds_what_one_client_takes),
	KUNIT_CASE(ledger_state_follows_the_sum_and_those_who_wait),
	KUNIT_CASE(ledger_takes_back_what_a_closed_account_charged),
	KUNIT_CASE(ledger_keeps_the_peaks_of_its_sums),
	KUNIT_CASE(ledger_adds_up_what_accounts_report),
	KUNIT_CASE(ledger_counters_never_go_back),
	KUNIT_CASE(ledger_sums_are_the_accounts_whatever_comes),
	KUNIT_CASE(ledger_that_has_ended_says_so_for_any_size),
	{}
};

static struct kunit_suite ledger_kunit = {
	.name = "emuv_ledger",
	.init = ledger_kunit_init,
	.test_cases = ledger_kunit_cases,
};

kunit_test_suite(ledger_kunit);

MODULE_DESCRIPTION("KUnit tests of the emuV driver");
MODULE_LICENSE("GPL");
