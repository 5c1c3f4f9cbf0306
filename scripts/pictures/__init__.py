# SPDX-License-Identifier: GPL-2.0-or-later
"""The pictures that no results are behind, one a module; scripts/plots draws them."""
