#!/bin/sh
# npm test: type-check, lint, format check, then every test. Arguments go to vitest.
. "$(dirname "$0")/toolchain.sh"
# Both are programs in Go, which spend a third of their time on collecting garbage unless told to do so later.
GOGC=200 node_modules/.bin/tsc --noEmit
GOGC=200 node_modules/.bin/oxlint --type-aware --deny-warnings
node_modules/.bin/oxfmt --check
find_program
export PROGRAM
exec node_modules/.bin/vitest run "$@"
