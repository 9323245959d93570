#!/bin/sh
# npm test: type-check, lint, format check, then every test. Arguments go to vitest.
. "$(dirname "$0")/toolchain.sh"
node_modules/.bin/tsc --noEmit
node_modules/.bin/oxlint --type-aware --deny-warnings
node_modules/.bin/oxfmt --check
find_program
export PROGRAM
exec node_modules/.bin/vitest run "$@"
