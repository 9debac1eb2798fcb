#!/bin/sh
# Writes the generated code beside the .proto files, or below $1. Needs grpcio-tools 1.78 and mypy-protobuf:
# code of older tools runs on newer libraries, not the other way round.
set -e
root=$(cd "$(dirname "$0")" && pwd)
target=${1:-$root}
python=${PYTHON:-$root/../.venv/bin/python}
export PATH="$(dirname "$python"):$PATH"
cd "$root"
"$python" -W ignore -m grpc_tools.protoc -I . --python_out="$target" --mypy_out="$target" --grpc_python_out="$target" \
    --mypy_grpc_out="$target" streamoe_proto/v1/*.proto
