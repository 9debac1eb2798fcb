"""llama.cpp through libllama alone: llama_decode on forced tokens, no sampling, no tokenizer.

    PEERS/bin/python -m bench.peers.llama_cpp FILE.gguf --tokens 64

Runs in an environment with llama-cpp-python. Weights are mapped (mmap) and stay as stored: repacked into its own
layouts, they would be anonymous memory, the whole model of it. --repack shows what happens then.
"""

from __future__ import annotations

import argparse
import ctypes
from typing import Any

import llama_cpp as lib
import numpy as np
from bench.peers import forced
from numpy.typing import NDArray


class Session:
    """One model and one context; step() runs the next tokens of its only sequence."""

    def __init__(self, asked: argparse.Namespace) -> None:
        lib.llama_backend_init()
        self._model: Any = lib.llama_model_load_from_file(str(asked.model).encode(), _model_params(asked))
        if not self._model:
            raise SystemExit(f"llama.cpp does not load {asked.model}; its reason is above")
        self._context: Any = lib.llama_init_from_model(self._model, _context_params(asked))
        if not self._context:
            raise SystemExit("llama.cpp makes no context; its reason is above")
        self.vocab_size = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(self._model))
        self._batch = lib.llama_batch_init(forced.BATCH_TOKENS, 0, 1)
        self._position = 0

    def step(self, ids: NDArray[np.int32]) -> NDArray[np.float32]:
        """Run ids, at most forced.BATCH_TOKENS, as one batch: (vocab_size,) logits of the last."""
        batch = self._batch
        batch.n_tokens = len(ids)
        for at, token in enumerate(ids):
            batch.token[at] = int(token)
            batch.pos[at] = self._position + at
            batch.n_seq_id[at] = 1
            batch.seq_id[at][0] = 0
            batch.logits[at] = at == len(ids) - 1
        if status := lib.llama_decode(self._context, batch):
            raise SystemExit(f"llama_decode returned {status}")
        self._position += len(ids)
        pointer = lib.llama_get_logits_ith(self._context, len(ids) - 1)  # waits for the computation
        return np.ctypeslib.as_array(ctypes.cast(pointer, ctypes.POINTER(ctypes.c_float)), (self.vocab_size,))


def _model_params(asked: argparse.Namespace) -> Any:
    params = lib.llama_model_default_params()
    params.load_mode = lib.LLAMA_LOAD_MODE_MMAP
    params.use_extra_bufts = asked.repack
    params.n_gpu_layers = 0
    return params


def _context_params(asked: argparse.Namespace) -> Any:
    params = lib.llama_context_default_params()
    params.n_ctx, params.n_batch, params.n_ubatch = forced.CTX_TOKENS, forced.BATCH_TOKENS, forced.BATCH_TOKENS
    params.n_threads = params.n_threads_batch = asked.threads
    params.type_k = params.type_v = lib.GGML_TYPE_F16
    return params


def open_engine(asked: argparse.Namespace) -> forced.Opened:
    """llama.cpp with the file mapped."""
    session = Session(asked)
    has_vnni = "AVX512_VNNI = 1" in lib.llama_print_system_info().decode()
    note = f"mmap, {'repacked' if asked.repack else 'not repacked'}, KV f16, {'AVX512-VNNI' if has_vnni else 'no VNNI'}"
    return forced.Opened(f"llama.cpp {lib.__version__}", session.vocab_size, session.step, note)


if __name__ == "__main__":
    made = forced.parser(__doc__)
    made.add_argument("--repack", action="store_true", help="let llama.cpp repack the weights into memory of its own")
    forced.run(made.parse_args(), open_engine)
