#!/bin/sh
# npm start: runs the store. The last line is an exec, so that a signal to npm reaches the store itself.
. "$(dirname "$0")/toolchain.sh"
exec "$NODE" packages/api/src/cli/main.ts serve "$@"
