# Sourced by the scripts beside it. Sets $NODE to a Node.js that is new enough, and installs the workspace's packages.
# Needs only Node 20 and npm. Remembers what it has found in .toolchain/.
set -eu
user_folder=$PWD
cd "$(dirname "$0")/.."
# npm runs a package's scripts in the package's folder. INIT_CWD is where npm was called.
if [ "${npm_package_json-}" -ef package.json ]; then user_folder=${INIT_CWD:-$user_folder}; fi
NODE_VERSION=24.21.0
PNPM_VERSION=12.21.0

new_enough() { # before 24.15 node:sqlite warns that it is experimental
  [ -n "$1" ] && [ -x "$1" ] || return 1
  # Evaluating JavaScript would take three times as long.
  version=$("$1" --version 2>/dev/null) || return 1
  major=${version#v}
  minor=${major#*.}
  major=${major%%.*}
  minor=${minor%%.*}
  [ "$major" -gt 24 ] 2>/dev/null || { [ "$major" = 24 ] && [ "$minor" -ge 15 ] 2>/dev/null; }
}

find_node() {
  NODE=$(command -v node || true)
  if new_enough "$NODE"; then return; fi
  NODE=$(cat .toolchain/node 2>/dev/null || true)
  if new_enough "$NODE"; then return; fi
  case "$(uname -s)-$(uname -m)" in
    Linux-x86_64) platform=linux-x64 ;;
    Linux-aarch64 | Linux-arm64) platform=linux-arm64 ;;
    Darwin-arm64) platform=darwin-arm64 ;;
    Darwin-x86_64) platform=darwin-x64 ;;
    *)
      echo "epitaph: no prebuilt Node.js $NODE_VERSION for $(uname -s) $(uname -m); install Node.js 24.15 or newer." >&2
      exit 1
      ;;
  esac
  echo "epitaph: this machine's Node.js is older than 24.15; downloading $NODE_VERSION from the npm registry." >&2
  # The package of the platform, not "node", which needs an install script that npm 12 does not run.
  NODE=$(npm exec --yes --loglevel=error --package="node-$platform@$NODE_VERSION" -- sh -c 'command -v node' </dev/null) || NODE=
  if ! new_enough "$NODE"; then
    echo "epitaph: could not get Node.js $NODE_VERSION; install Node.js 24.15 or newer. (A version that another user has downloaded is in that user's home folder, so it can't be used.)" >&2
    exit 1
  fi
  mkdir -p .toolchain
  echo "$NODE" >.toolchain/node
}

find_pnpm() {
  PNPM=$(cat .toolchain/pnpm 2>/dev/null || true)
  if [ -n "$PNPM" ] && [ -e "$PNPM" ] && [ "$(cat .toolchain/pnpm-version 2>/dev/null)" = "$PNPM_VERSION" ]; then return; fi
  PNPM=$(npm exec --yes --loglevel=error --package="pnpm@$PNPM_VERSION" -- sh -c 'command -v pnpm' </dev/null) || PNPM=
  if [ ! -e "$PNPM" ]; then
    echo "epitaph: could not get pnpm $PNPM_VERSION, which installs the packages; the lines above say why. Run npm run -s epitaph -- --version once, with network access, as a user who has a home folder and may write to this folder." >&2
    exit 1
  fi
  mkdir -p .toolchain
  echo "$PNPM" >.toolchain/pnpm
  echo "$PNPM_VERSION" >.toolchain/pnpm-version
}

install_packages() {
  wanted=$(cat pnpm-lock.yaml pnpm-workspace.yaml package.json packages/*/package.json test/package.json bench/package.json examples/package.json | cksum)
  if [ -d node_modules ] && [ "$(cat node_modules/.epitaph-installed 2>/dev/null)" = "$wanted" ]; then return; fi
  find_pnpm
  echo "epitaph: installing packages." >&2
  if ! CI=true "$PNPM" install --frozen-lockfile --reporter=append-only </dev/null >.toolchain-install.log 2>&1; then
    cat .toolchain-install.log >&2
    echo "epitaph: the packages could not be installed; the lines above say why." >&2
    exit 1
  fi
  rm -f .toolchain-install.log
  echo "$wanted" >node_modules/.epitaph-installed
}

# Sets $PROGRAM to a bundle of the current sources, which starts twice as fast as these, or else to the sources.
find_program() {
  PROGRAM=$PWD/packages/api/src/cli/main.ts
  sources=$(find packages/*/src packages/*/package.json pnpm-lock.yaml scripts/build.ts -type f -exec cat {} + | cksum)
  folder=.toolchain/program/${sources% *}-${sources#* }
  if [ ! -e "$folder" ]; then
    # A user who may not write here runs the sources.
    mkdir -p .toolchain/program 2>/dev/null && [ -w .toolchain/program ] || return 0
    # A running program still loads files of its bundle, so the newest ones stay. The compile cache belongs to older bundles.
    ls -td .toolchain/program/* 2>/dev/null | tail -n +4 | xargs rm -rf .toolchain/compiled
    "$NODE" scripts/build.ts "$folder" || [ -e "$folder" ] || return 0
  fi
  PROGRAM=$PWD/$folder/main.mjs
}

# Replaces the shell with the program, so that a signal to npm reaches it. Relative paths are relative to the user's folder.
exec_epitaph() {
  find_program
  cd "$user_folder" 2>/dev/null ||
    echo "epitaph: $user_folder can't be entered, so relative paths are relative to $PWD." >&2
  exec "$NODE" "$PROGRAM" "$@"
}

find_node
PATH="$(dirname "$NODE"):$PATH"
# Without the compile cache, a command spends half of its time on compiling the same files again.
NODE_COMPILE_CACHE="${NODE_COMPILE_CACHE-$PWD/.toolchain/compiled}"
export PATH NODE_COMPILE_CACHE
install_packages
