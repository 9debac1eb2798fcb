"""One token through experts that land one after the other: a call for all that are there, with the shared one.

Owns the arguments that do not change from call to call, so that a call costs Python little. Refuses to know who lies
where.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from .layer_structs import declare_layers
from .native import Expert, Kernels, Rows, address_of
from .part_calls import SharedExpert


class TokenExperts:
    """One layer's experts, and its shared expert where it has one.

    hidden: scratch, k * gate.rows + the shared expert's gate.rows floats. products (k, width), one row more where there
    is a shared expert.
    """

    def __init__(
        self, kernels: Kernels, expert: Expert, shared: SharedExpert | None, hidden: Rows, products: Rows
    ) -> None:
        most = len(products) - (shared is not None)
        needed = most * expert.gate.rows + (0 if shared is None else shared.expert.gate.rows)
        assert products.shape[1] == expert.down.rows and hidden.size >= needed
        self._kernels, self._lib, self._kept = kernels, declare_layers(kernels.lib), (expert, shared, hidden, products)
        self._records, self._places = (ctypes.c_uint64 * most)(), (ctypes.c_int64 * most)()
        self._expert = ctypes.addressof(expert.c)
        self._arrays = ctypes.addressof(self._records), ctypes.addressof(self._places)
        self._out = address_of(hidden), address_of(products), expert.down.rows
        self._shared = None if shared is None else ctypes.addressof(shared.c)
        self._shared_row = address_of(products) + most * expert.down.rows * 4

    def run(self, x: int, records: Sequence[int], places: Sequence[int], *, with_shared: bool) -> None:
        """The row at address x (width) through the experts at these addresses, each into its place among the products.

        with_shared: the shared expert too, if there is one, into the last row. Any split over calls gives the same
        bits.
        """
        count = len(records)
        self._records[:count], self._places[:count] = [*records], [*places]
        if with_shared and self._shared is not None:
            args = (*self._arrays, count, self._shared, x, *self._out, self._shared_row)
            self._lib.st_expert_token_shared(self._kernels.pool, self._expert, *args)
        elif count:
            self._lib.st_expert_token(self._kernels.pool, self._expert, *self._arrays, count, x, *self._out)
