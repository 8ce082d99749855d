#!/usr/bin/env bash
# Real servers and a browser for the tests, from Debian, without root: `tools/programs.sh FOLDER`.
#
# They lie under FOLDER with the libraries that this machine lacks, and FOLDER/bin starts them. Nothing on the machine
# changes: the lists and packages that apt fetches are FOLDER's own.
set -euo pipefail
mirror=${DEBIAN_MIRROR:-http://deb.debian.org}
mkdir -p "$1"
folder=$(cd "$1" && pwd)
apt=$folder/apt
mkdir -p "$apt/lists/partial" "$apt/archives/partial" "$folder/bin"

cat > "$apt/sources.list" <<SOURCES
deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror/debian bookworm main
deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror/debian-security bookworm-security main
deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror/debian trixie main
SOURCES
# The machine's own proxies and certificates hold. apt as root would fetch as a user who may not write here.
options=(
  --quiet --option APT::Sandbox::User= --option Debug::NoLocking=true
  --option "Dir::Etc::SourceList=$apt/sources.list" --option Dir::Etc::SourceParts=/dev/null
  --option "Dir::State::Lists=$apt/lists" --option "Dir::Cache=$apt" --option "Dir::Cache::Archives=$apt/archives"
  --option 'APT::Default-Release=/^bookworm(-security)?$/' --option APT::Get::List-Cleanup=false
  --option Acquire::Languages=none --option Acquire::Retries=3 --option APT::Update::Error-Mode=any
)
apt-get "${options[@]}" update
# Bookworm's VictoriaMetrics takes no OTLP. `--reinstall` fetches what the machine has already, too.
apt-get "${options[@]}" install --yes --download-only --reinstall --no-install-recommends \
  prometheus chromium chromium-common fonts-dejavu-core victoria-metrics/trixie
for package in "$apt"/archives/*.deb; do dpkg-deb --extract "$package" "$folder/root"; done
rm -rf "$apt"

for name in prometheus promtool victoria-metrics; do ln -sf "../root/usr/bin/$name" "$folder/bin/$name"; done
# Debian's own starter looks for the browser, its libraries and fonts at the root of the machine.
cat > "$folder/bin/chromium" <<'CHROMIUM'
#!/bin/sh
root=$(dirname "$(readlink -f "$0")")/../root
libraries=$root/usr/lib/$(uname -m)-linux-gnu
export LD_LIBRARY_PATH="$libraries:$libraries/pulseaudio:$root/lib/$(uname -m)-linux-gnu"
export FONTCONFIG_PATH="$root/etc/fonts" XDG_DATA_HOME="$root/usr/share"
exec "$root/usr/lib/chromium/chromium" "$@"
CHROMIUM
chmod +x "$folder/bin/chromium"
