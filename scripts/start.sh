#!/bin/sh
# npm start: runs the store.
. "$(dirname "$0")/toolchain.sh"
exec_epitaph serve "$@"
