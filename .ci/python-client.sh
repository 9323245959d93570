#!/bin/sh
# Puts the Python client `azure-cosmos` 4.16.2 into a folder, out of Debian's packages, and prints what PYTHONPATH has to be
# for it: for machines that reach Debian's packages and not PyPI. Says why not, and fails, where it can't be had.
set -eu
PACKAGE=http://deb.debian.org/debian/pool/main/p/python-azure/python3-azure_20260602+git-1_all.deb
SHA256=57338c80b2b30ba9bc13db178295f17a170279a09dedfe256833f09d27c1378c
NEEDED='aiohttp aiosignal async-timeout attr charset-normalizer frozenlist idna isodate multidict requests typing-extensions urllib3 yarl'

folder=$1
mkdir -p "$folder"
cd "$folder"
curl --silent --show-error --fail --max-time 120 --output azure.deb "$PACKAGE"
echo "$SHA256  azure.deb" | sha256sum --check --quiet
# Debian's stable packages, as apt on this machine knows and checks them.
for name in $NEEDED; do echo "python3-$name"; done | xargs apt-get download >apt.log 2>&1 || { cat apt.log >&2; exit 1; }
for package in python3-*.deb; do dpkg-deb --extract "$package" .; done
packages=usr/lib/python3/dist-packages
dpkg-deb --fsys-tarfile azure.deb | tar x "./$packages/azure/core" "./$packages/azure/cosmos"
path=$PWD/$packages
PYTHONPATH=$path python3 -c 'import azure.cosmos.aio, aiohttp' >&2
echo "$path"
