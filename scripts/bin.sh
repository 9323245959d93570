#!/bin/sh
# Runs a tool of the workspace (tsc, oxlint, oxfmt, vitest).
. "$(dirname "$0")/toolchain.sh"
tool=$1
shift
# Tests start the program in the same way as users do.
if [ "$tool" = vitest ]; then
  find_program
  export PROGRAM
fi
exec "node_modules/.bin/$tool" "$@"
