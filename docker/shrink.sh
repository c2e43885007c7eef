#!/bin/sh
# Remove what a running container never reads from the virtual environment $1, and pip with it.
#
# Test suites, C headers and sources of packages, their libraries for services that spanloop does not use, and symbol
# tables. The packages' bytecode stays, because a read-only root file system cannot write it again.
set -eu
cd "$1"/lib/python3.*/site-packages

rm -rf pip pip-*.dist-info "$1"/bin/pip*
rm -rf pandas/tests pyarrow/tests pyarrow/include pyarrow/src pydeck/nbextension
rm -f pyarrow/*.pyx pyarrow/*.pxd pyarrow/*.pxi
rm -f pyarrow/libarrow_flight.so* pyarrow/libarrow_python_flight.so* pyarrow/_flight.*.so
rm -f pyarrow/libarrow_s3.so* pyarrow/_s3fs.*.so
find . -path './numpy/*' -type d -name tests -prune -exec rm -rf {} +

# Libraries beside a package (numpy.libs, pillow.libs) were rewritten by their wheels' tools and must stay as they are.
find . \( -path './_polars_runtime_32/*' -o -path './pyarrow/*' -o -path './uvloop/*' -o -path './sqlalchemy/*' \
    -o -path './lz4/*' -o -path './clickhouse_connect/*' \) -type f -name '*.so*' -exec strip --strip-unneeded {} +
