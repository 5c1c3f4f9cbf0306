// SPDX-License-Identifier: GPL-2.0-only
/*
 * Ranges of chunks in an offset space: first fit, in logarithmic time.
 *
 * A red-black tree ordered by position. Each node knows the free gap before it
 * and the widest gap in its subtree. Removing a range needs no memory and
 * cannot fail, which a maple tree does not promise.
 */
#include <linux/rbtree_augmented.h>

#include "emuv.h"

#define to_range(node) rb_entry_safe(node, struct emuv_range, rb)

static unsigned long emuv_range_gap(struct emuv_range *range)
{
	return range->gap;
}

RB_DECLARE_CALLBACKS_MAX(static, emuv_range_callbacks, struct emuv_range, rb,
			 unsigned long, widest_gap, emuv_range_gap)

static unsigned long emuv_range_end(const struct emuv_range *range)
{
	return range ? range->first + range->count : 0;
}

static unsigned long emuv_range_widest(struct rb_node *node)
{
	return node ? to_range(node)->widest_gap : 0;
}

/* Find the first range with a gap of @count before it, or NULL. */
static struct emuv_range *emuv_range_fit(struct emuv_range_tree *tree,
					 unsigned long count)
{
	struct rb_node *node = tree->root.rb_node;

	if (emuv_range_widest(node) < count)
		return NULL;
	while (emuv_range_widest(node->rb_left) >= count ||
	       to_range(node)->gap < count)
		node = emuv_range_widest(node->rb_left) >= count ?
		       node->rb_left : node->rb_right;
	return to_range(node);
}

static void emuv_range_set_gap(struct emuv_range *range, unsigned long gap)
{
	range->gap = gap;
	emuv_range_callbacks_propagate(&range->rb, NULL);
}

/*
 * Insert @range at the lowest free place for @count chunks, above 0; or
 * -ENOSPC.
 */
int emuv_range_insert(struct emuv_range_tree *tree, struct emuv_range *range,
		      unsigned long count)
{
	struct emuv_range *next = emuv_range_fit(tree, count);
	struct rb_node **link = &tree->root.rb_node;
	struct rb_node *parent = NULL;

	if (next) {
		range->first = next->first - next->gap;
		/* just before @next: the right end of its left subtree */
		parent = &next->rb;
		link = &parent->rb_left;
	} else {
		struct emuv_range *last = to_range(rb_last(&tree->root));

		if (tree->size - emuv_range_end(last) < count)
			return -ENOSPC;
		range->first = emuv_range_end(last);
	}
	while (*link) {
		parent = *link;
		link = &parent->rb_right;
	}

	range->count = count;
	range->gap = 0;
	range->widest_gap = 0;
	rb_link_node(&range->rb, parent, link);
	rb_insert_augmented(&range->rb, &tree->root, &emuv_range_callbacks);
	if (next)
		emuv_range_set_gap(next, next->gap - count);
	return 0;
}

void emuv_range_erase(struct emuv_range_tree *tree, struct emuv_range *range)
{
	struct emuv_range *next = to_range(rb_next(&range->rb));

	rb_erase_augmented(&range->rb, &tree->root, &emuv_range_callbacks);
	if (next)
		emuv_range_set_gap(next, next->gap + range->gap + range->count);
}

/* Change the size of the offset space; -EBUSY if a range lies beyond it. */
int emuv_range_resize(struct emuv_range_tree *tree, unsigned long size)
{
	if (emuv_range_end(to_range(rb_last(&tree->root))) > size)
		return -EBUSY;
	tree->size = size;
	return 0;
}

/* Find the range that contains chunk @index, or NULL. */
struct emuv_range *emuv_range_find(struct emuv_range_tree *tree,
				   unsigned long index)
{
	struct rb_node *node = tree->root.rb_node;

	while (node) {
		struct emuv_range *range = to_range(node);

		if (index < range->first)
			node = node->rb_left;
		else if (index >= emuv_range_end(range))
			node = node->rb_right;
		else
			return range;
	}
	return NULL;
}

/* Find the first range that ends behind chunk @index, or NULL. */
struct emuv_range *emuv_range_next(struct emuv_range_tree *tree,
				   unsigned long index)
{
	struct rb_node *node = tree->root.rb_node;
	struct emuv_range *next = NULL;

	while (node) {
		struct emuv_range *range = to_range(node);

		if (index < emuv_range_end(range)) {
			next = range;
			node = node->rb_left;
		} else {
			node = node->rb_right;
		}
	}
	return next;
}
