"""A stored matrix as the C kernels take it: which fields it has, and where they lie.

Owns the reading of its packing off its tensors. Refuses to know what the matrix is for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..kernels import Matrix
from ..manifest import Field
from ..quantization import stored_quantization


def stored_matrix(fields: Mapping[str, Field], address_of: Callable[[str], int], cols: int, bias: int = 0) -> Matrix:
    """fields: by "weight", and "scales" and "biases" where it is packed in the affine way; address_of: of each.

    cols: its inputs. bias: address of one float32 an output, 0 for none.
    """
    weight, address = fields["weight"], address_of("weight")
    rows = weight.shape[0]
    if "scales" not in fields:
        return Matrix(32 if weight.dtype == "F32" else 16, 32, rows, cols, weight.dtype, address, bias=bias)
    spec = stored_quantization(cols, weight, fields["scales"])
    scales, biases, dtype = address_of("scales"), address_of("biases"), fields["scales"].dtype
    return Matrix(spec.bits, spec.group_size, rows, cols, dtype, address, scales, biases, bias)
