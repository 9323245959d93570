#!/bin/sh
# Runs a file of the workspace on the Node.js that the project needs.
. "$(dirname "$0")/toolchain.sh"
exec "$NODE" "$@"
