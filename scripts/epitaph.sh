#!/bin/sh
# npm run epitaph -- <command>: the command line, against a running server.
. "$(dirname "$0")/toolchain.sh"
exec_epitaph "$@"
