"""Builds the C kernels; everything else is in pyproject.toml, which cannot say "optional" and "stable ABI" together.

Without a C compiler the installation still succeeds, and the engine computes through MLX.
"""

from glob import glob

from setuptools import Extension, setup

SOURCES = "engine/streamoe_engine/kernels/src"

setup(
    ext_modules=[
        Extension(
            "streamoe_engine.kernels._native",
            sources=sorted(glob(f"{SOURCES}/*.c")),
            depends=sorted(glob(f"{SOURCES}/*.h")),
            # No -march and no fast-math: the instruction set is chosen at run time, and the order of sums is a promise.
            extra_compile_args=["-O3", "-std=c11", "-ffp-contract=off", "-fvisibility=hidden", "-pthread", "-g0"],
            extra_link_args=["-pthread", "-lm"],
            py_limited_api=True,
            optional=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
