// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests of range.c against a map of each chunk's range.
 */
#include <kunit/test.h>
#include <linux/prandom.h>

#include "range.c"

#define SIZE	64

/*
 * struct range_model - the tree, and a map with one entry per chunk
 * @owner: Range that a chunk belongs to, one of @ranges, or NULL
 */
struct range_model {
	struct emuv_range_tree tree;
	struct emuv_range ranges[SIZE];
	struct emuv_range *owner[SIZE];
};

static int range_kunit_init(struct kunit *test)
{
	struct range_model *model;

	model = kunit_kzalloc(test, sizeof(*model), GFP_KERNEL);
	if (!model)
		return -ENOMEM;
	emuv_range_tree_init(&model->tree, SIZE);
	test->priv = model;
	return 0;
}

/* Find the lowest place with @count free chunks, or -ENOSPC. */
static int range_model_fit(const struct range_model *model, unsigned long count)
{
	unsigned long i, run = 0;

	for (i = 0; i < SIZE; i++) {
		run = model->owner[i] ? 0 : run + 1;
		if (run == count)
			return i + 1 - count;
	}
	return -ENOSPC;
}

/* Insert a range, and expect it at the model's place. */
static int range_insert(struct kunit *test, struct emuv_range *range,
			unsigned long count)
{
	struct range_model *model = test->priv;
	int place = range_model_fit(model, count);
	unsigned long i;
	int err;

	err = emuv_range_insert(&model->tree, range, count);
	if (place < 0) {
		KUNIT_EXPECT_EQ(test, err, place);
		return err;
	}
	KUNIT_ASSERT_EQ(test, err, 0);
	KUNIT_ASSERT_EQ(test, range->first, place);
	KUNIT_ASSERT_EQ(test, range->count, count);
	for (i = place; i < place + count; i++)
		model->owner[i] = range;
	return 0;
}

static void range_erase(struct kunit *test, struct emuv_range *range)
{
	struct range_model *model = test->priv;
	unsigned long i;

	emuv_range_erase(&model->tree, range);
	for (i = 0; i < SIZE; i++)
		if (model->owner[i] == range)
			model->owner[i] = NULL;
}

/* Compare each chunk's range, and the widths of gaps, with the model. */
static void range_expect_model(struct kunit *test)
{
	struct range_model *model = test->priv;
	struct rb_node *node;
	unsigned long i, end = 0;

	for (i = 0; i < SIZE; i++)
		KUNIT_EXPECT_PTR_EQ(test, emuv_range_find(&model->tree, i),
				    model->owner[i]);
	for (node = rb_first(&model->tree.root); node; node = rb_next(node)) {
		struct emuv_range *range = to_range(node);

		KUNIT_EXPECT_EQ(test, range->gap, range->first - end);
		KUNIT_EXPECT_EQ(test, range->widest_gap,
				max3(range->gap,
				     emuv_range_widest(node->rb_left),
				     emuv_range_widest(node->rb_right)));
		end = emuv_range_end(range);
	}
}

static void range_takes_the_lowest_gap_that_fits(struct kunit *test)
{
	struct range_model *model = test->priv;
	struct emuv_range *ranges = model->ranges;

	range_insert(test, &ranges[0], 4);
	range_insert(test, &ranges[1], 2);
	range_insert(test, &ranges[2], 4);
	range_insert(test, &ranges[3], 3);
	range_insert(test, &ranges[4], 1);
	range_erase(test, &ranges[1]);
	range_erase(test, &ranges[3]);
	range_expect_model(test);

	range_insert(test, &ranges[5], 3);
	KUNIT_EXPECT_EQ(test, ranges[5].first, 10);
	range_insert(test, &ranges[6], 1);
	KUNIT_EXPECT_EQ(test, ranges[6].first, 4);
	range_expect_model(test);
}

static void range_fills_the_space_and_no_more(struct kunit *test)
{
	struct range_model *model = test->priv;
	struct emuv_range *ranges = model->ranges;

	KUNIT_EXPECT_EQ(test, range_insert(test, &ranges[0], SIZE + 1), -ENOSPC);
	KUNIT_EXPECT_EQ(test, range_insert(test, &ranges[0], ULONG_MAX),
			-ENOSPC);
	KUNIT_EXPECT_EQ(test, range_insert(test, &ranges[0], SIZE), 0);
	KUNIT_EXPECT_EQ(test, range_insert(test, &ranges[1], 1), -ENOSPC);
	range_erase(test, &ranges[0]);
	KUNIT_EXPECT_TRUE(test, RB_EMPTY_ROOT(&model->tree.root));
	KUNIT_EXPECT_EQ(test, range_insert(test, &ranges[1], SIZE), 0);
	range_expect_model(test);
}

static void range_of_an_empty_space_fits_nothing(struct kunit *test)
{
	struct range_model *model = test->priv;

	emuv_range_tree_init(&model->tree, 0);
	KUNIT_EXPECT_EQ(test, emuv_range_insert(&model->tree, model->ranges, 1),
			-ENOSPC);
	KUNIT_EXPECT_NULL(test, emuv_range_find(&model->tree, 0));
}

static void range_ends_behind_the_last_range_and_not_before(struct kunit *test)
{
	struct range_model *model = test->priv;
	struct emuv_range *ranges = model->ranges;

	KUNIT_EXPECT_EQ(test, emuv_range_resize(&model->tree, 0), 0);
	KUNIT_EXPECT_EQ(test, emuv_range_insert(&model->tree, &ranges[0], 1),
			-ENOSPC);
	KUNIT_EXPECT_EQ(test, emuv_range_resize(&model->tree, 8), 0);
	range_insert(test, &ranges[0], 4);
	range_insert(test, &ranges[1], 4);
	KUNIT_EXPECT_EQ(test, emuv_range_resize(&model->tree, 7), -EBUSY);
	KUNIT_EXPECT_EQ(test, model->tree.size, 8);
	range_erase(test, &ranges[0]);
	KUNIT_EXPECT_EQ(test, emuv_range_resize(&model->tree, 7), -EBUSY);
	range_erase(test, &ranges[1]);
	KUNIT_EXPECT_EQ(test, emuv_range_resize(&model->tree, SIZE), 0);
	range_insert(test, &ranges[2], SIZE);
	range_expect_model(test);
}

/* Random steps from a fixed seed, so that a failure can be repeated. */
static void range_agrees_with_the_map_whatever_comes(struct kunit *test)
{
	struct range_model *model = test->priv;
	struct rnd_state chance;
	int round;

	prandom_seed_state(&chance, 1);
	for (round = 0; round < 2000; round++) {
		struct emuv_range *range;
		u32 dice = prandom_u32_state(&chance);

		range = &model->ranges[dice % SIZE];
		if (range->count) {
			range_erase(test, range);
			range->count = 0;
		} else {
			range_insert(test, range, 1 + (dice >> 16) % 9);
		}
		range_expect_model(test);
	}
}

static struct kunit_case range_kunit_cases[] = {
	KUNIT_CASE(range_takes_the_lowest_gap_that_fits),
	KUNIT_CASE(range_fills_the_space_and_no_more),
	KUNIT_CASE(range_of_an_empty_space_fits_nothing),
	KUNIT_CASE(range_ends_behind_the_last_range_and_not_before),
	KUNIT_CASE(range_agrees_with_the_map_whatever_comes),
	{}
};

static struct kunit_suite range_kunit = {
	.name = "emuv_range",
	.init = range_kunit_init,
	.test_cases = range_kunit_cases,
};

kunit_test_suite(range_kunit);
