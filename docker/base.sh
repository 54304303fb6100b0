#!/usr/bin/env bash
# Makes a base image from Debian's packages, for machines that reach a mirror but no registry.
#
#   base.sh [-f] [-m MIRROR] [NAME]      NAME is sparkps-base:bookworm unless given; its tag is Debian's suite
#
# Does nothing when the image is there; -f makes it again. Without -m the mirror is the one that this
# machine's own apt uses, with its apt settings for proxies and dates. Certificates that this machine
# trusts beside Debian's are trusted in the image too: keep such an image to yourself.
set -euo pipefail

fail() { echo "base.sh: $*" >&2; exit 1; }
usage() { sed -n '2,8s/^# \{0,1\}//p' "$0"; exit "$1"; }

force='' mirror=''
while getopts fm:h option; do
    case $option in
    f) force=1 ;;
    m) mirror=${OPTARG%/}/ ;;
    h) usage 0 ;;
    *) usage 2 >&2 ;;
    esac
done
shift $((OPTIND - 1))
[ $# -le 1 ] || usage 2 >&2
name=${1:-sparkps-base:bookworm}
suite=${name##*:}
[ "$suite" != "$name" ] || fail "'$name' needs a tag that is a suite of Debian, as in $name:bookworm"

command -v docker >/dev/null || fail "docker is not installed"
if [ -z "$force" ] && docker image inspect "$name" >/dev/null 2>&1; then
    echo "$name is there already; -f makes it again"
    exit
fi
docker info >/dev/null 2>&1 || fail "no Docker engine answers"
[ "$(id -u)" = 0 ] || fail "debootstrap needs root: run it with sudo"
command -v debootstrap >/dev/null || fail "debootstrap is not installed: apt-get install debootstrap"

# "URI suite" of each repository of Debian that apt uses here, the release itself before its updates.
sources() {
    apt-get indextargets --format '$(ORIGIN) $(REPO_URI) $(RELEASE)' 'Created-By: Packages' 2>/dev/null |
        awk -v suite="$suite" '$1 == "Debian" && index($3, suite) == 1 { print $2, $3 }' | sort -u -k2
}
if [ -n "$mirror" ]; then
    repositories="$mirror $suite"
else
    repositories=$(sources)
    mirror=$(echo "$repositories" | awk -v suite="$suite" '$2 == suite { print $1; exit }')
    [ -n "$mirror" ] || fail "this machine's apt knows no Debian $suite (after apt-get update): give a mirror with -m"
fi

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
trap 'exit 1' INT TERM

echo "making $name from $mirror"
debootstrap --variant=minbase --include=ca-certificates "$suite" "$root" "$mirror" >"$root.log" 2>&1 ||
    fail "debootstrap failed; the end of $root.log: $(tail -n 5 "$root.log")"
rm -f "$root.log"

echo "$repositories" | sed 's/^/deb /; s/$/ main/' >"$root/etc/apt/sources.list"
apt-config dump | grep -E '^Acquire::(https?::|Check-)' >"$root/etc/apt/apt.conf.d/80machine" || true
cat >"$root/etc/apt/apt.conf.d/90image" <<END
APT::Install-Recommends "false";
Acquire::Languages "none";
END
for certificate in /usr/local/share/ca-certificates/*.crt; do
    [ ! -e "$certificate" ] || cp "$certificate" "$root/usr/local/share/ca-certificates/"
done
chroot "$root" update-ca-certificates >/dev/null

# What nobody reads in a container, now and in packages to come.
cat >"$root/etc/dpkg/dpkg.cfg.d/image" <<END
path-exclude /usr/share/doc/*
path-include /usr/share/doc/*/copyright
path-exclude /usr/share/info/*
path-exclude /usr/share/locale/*
path-exclude /usr/share/man/*
END
find "$root"/usr/share/{doc,info,locale,man} ! -type d ! -name copyright -delete
rm -rf "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/*.bin "$root"/var/cache/apt/archives/*.deb "$root"/var/log/*

tar -C "$root" --one-file-system -c . | docker import -c 'CMD ["bash"]' - "$name" >/dev/null
echo "$name has $(docker image inspect -f '{{.Size}}' "$name" | awk '{ printf "%.0f MB", $1 / 1e6 }')"
