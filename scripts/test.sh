#!/bin/sh
# npm test: type-check, lint, format check, then every test. Arguments go to vitest.
. "$(dirname "$0")/toolchain.sh"
# Both are Go programs, which otherwise spend a third of their time on garbage collection.
GOGC=200 node_modules/.bin/tsc --noEmit
GOGC=200 node_modules/.bin/oxlint --type-aware --deny-warnings
node_modules/.bin/oxfmt --check
find_program
export PROGRAM
exec node_modules/.bin/vitest run "$@"
