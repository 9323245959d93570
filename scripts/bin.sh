#!/bin/sh
# Runs a tool of the workspace (tsc, oxlint, oxfmt, vitest).
. "$(dirname "$0")/toolchain.sh"
tool=$1
shift
exec "node_modules/.bin/$tool" "$@"
