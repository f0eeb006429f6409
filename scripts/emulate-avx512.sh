#!/usr/bin/env bash
# Runs a static Linux/amd64 program in the Bochs emulator, on an emulated
# processor with AVX-512 F/BW/VL/DQ, AVX512_VNNI and AVX512_BF16, whatever the
# processor of this machine has. It shows that code is right, not that it is fast.
#
#   emulate-avx512.sh BINARY [ARGS...]   run it; its output and exit status are ours
#   emulate-avx512.sh --setup            only do the set-up
#
# Needs: Debian on amd64 (or a relative with debootstrap), root, Debian's
# package mirror for the first run, and 1 GiB of disk under the cache folder.
#
# Settings, from the environment:
#   EMULATE_TIMEOUT  seconds of real time for one run (1200); past it: status 124
#   EMULATE_MEMORY   MiB of memory of the emulated machine (1024, at most 2048)
#   EMULATE_FILES    a folder whose files the program finds in its working folder
#   EMULATE_ENV      more environment for it, such as "GODEBUG=x=1 GOGC=50"
#   EMULATE_CACHE    where the set-up is kept ($HOME/.cache/cage-emulator)
#
# Standard output and standard error come back as one stream. There is no
# network and one processor. Status 125: the emulated machine did not get as
# far as running the program, or died under it.
set -euo pipefail

cache=${EMULATE_CACHE:-${HOME:-/root}/.cache/cage-emulator}
root=$cache/root                # a small Debian tree with the emulator in it
ready=$cache/ready-1            # raise the number when the set-up changes
suite=trixie                    # has Bochs 3.0; older releases lack AVX512_BF16

die() { echo "emulate-avx512: $*" >&2; exit 125; }

setup() {
    [ -e "$ready" ] && return
    echo "emulate-avx512: setting up in $cache (about a minute)" >&2
    if ! command -v debootstrap >/dev/null; then
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends debootstrap
    fi
    # A set-up that was cut short may have left these mounted.
    umount "$root/proc" "$root/sys" 2>/dev/null || true
    rm -rf --one-file-system "$root"
    debootstrap --variant=minbase "$suite" "$root"
    # bochs-term must be named: the default screen of bochs needs a desktop.
    chroot "$root" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        bochs bochs-term bochsbios vgabios busybox-static cpio isolinux syslinux-common xorriso
    # The kernel is unpacked, not installed: nothing here should set up booting.
    chroot "$root" bash -euc '
        mkdir -p /emu/kernel
        cd /emu/kernel
        meta=linux-image-cloud-amd64
        image=$(apt-cache depends "$meta" | sed -n "s/^ *Depends: *\(linux-image-[0-9].*\)/\1/p" | head -n 1)
        apt-get -o APT::Sandbox::User=root download "$image"
        dpkg-deb --fsys-tarfile linux-image-*.deb | tar -x --wildcards "./boot/vmlinuz-*"
        mv boot/vmlinuz-* /emu/vmlinuz
        cd /emu
        rm -rf kernel
        apt-get clean'
    touch "$ready"
}

# A word as the shell in the emulated machine reads it back.
quote() { printf "'%s' " "${1//\'/\'\\\'\'}"; }

[ $# -ge 1 ] || die "usage: emulate-avx512.sh BINARY [ARGS...]"
[ "$(id -u)" = 0 ] || die "must run as root (it uses chroot)"
[ "$1" = --setup ] || [ -f "$1" ] || die "no such program: $1"

mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9
trap 'echo "emulate-avx512: the set-up failed" >&2; exit 125' EXIT
setup >&2
trap - EXIT
flock -u 9
exec 9>&-
[ "$1" != --setup ] || exit 0

binary=$1
shift
limit=${EMULATE_TIMEOUT:-1200}
memory=${EMULATE_MEMORY:-1024}

run=$(mktemp -d "$root/emu/run.XXXXXX")
in=${run#"$root"}               # the same folder as seen inside the tree
pid=
clean() {
    [ -z "$pid" ] || kill -KILL -- "-$pid" 2>/dev/null || true   # timeout leads a group
    rm -rf "$run"
}
trap clean EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# The emulated machine's root folder: busybox, the program, and an /init that
# runs it. The kernel talks on the first serial line, the program on the second.
mkdir -p "$run/fs/bin" "$run/fs/proc" "$run/fs/sys" "$run/fs/dev" "$run/fs/tmp" "$run/fs/files" "$run/iso"
cp "$root/usr/bin/busybox" "$run/fs/bin/busybox"
cp "$binary" "$run/fs/program"
chmod 755 "$run/fs/program"
[ -z "${EMULATE_FILES:-}" ] || cp -RL "$EMULATE_FILES/." "$run/fs/files/"
{
    printf 'cd /files\nexport HOME=/tmp TMPDIR=/tmp PATH=/bin\n'
    for setting in ${EMULATE_ENV:-}; do
        printf 'export '; quote "$setting"; printf '\n'
    done
    printf '/program '
    for argument in "$@"; do quote "$argument"; done
    printf '\n'
} >"$run/fs/command"
cat >"$run/fs/init" <<'INIT'
#!/bin/busybox sh
b=/bin/busybox
$b mount -t devtmpfs dev /dev
$b mount -t proc proc /proc
$b mount -t sysfs sys /sys
$b ln -s /proc/self/fd /dev/fd
$b stty -F /dev/ttyS1 raw -echo 115200
$b sh /command </dev/null >/dev/ttyS1 2>&1
echo "emulated program ended: $?" >/dev/ttyS0
$b sleep 0.1
$b reboot -f
INIT
chmod 755 "$run/fs/init"

# reboot=t ends in a triple fault, which ends the emulator (see below).
cat >"$run/iso/isolinux.cfg" <<'CFG'
default linux
prompt 0
timeout 0
label linux
kernel vmlinuz
initrd initrd
append console=ttyS0,115200 loglevel=4 panic=-1 reboot=t nokaslr mitigations=off ibt=off tsc=reliable nowatchdog audit=0 apparmor=0
CFG
cp "$root/usr/lib/ISOLINUX/isolinux.bin" "$root/usr/lib/syslinux/modules/bios/ldlinux.c32" "$root/emu/vmlinuz" "$run/iso/"
chroot "$root" bash -euc '
    cd "$1/fs"
    find . | cpio -o -H newc -R 0:0 --quiet >../iso/initrd
    cd ..
    rm -rf fs
    xorriso -as mkisofs -quiet -o boot.iso -b isolinux.bin -c boot.cat \
        -no-emul-boot -boot-load-size 4 -boot-info-table iso 2>/dev/null
    rm -rf iso' - "$in" || die "could not make the boot image"

# Features left out: ones that Linux and Bochs do not agree on (AMX), and ones
# that only slow the emulator down.
cat >"$run/bochsrc" <<RC
config_interface: textconfig
display_library: term
romimage: file=/usr/share/bochs/BIOS-bochs-latest, options=fastboot
vgaromimage: file=/usr/share/vgabios/vgabios.bin
cpu: model=sapphire_rapids, count=1, ips=50000000, reset_on_triple_fault=0, exclude_features="amx,amx_int8,amx_bf16,cet,uintr,la57,waitpkg"
memory: guest=$memory, host=$memory
clock: sync=none, time0=local
boot: cdrom
ata0-master: type=cdrom, path=$in/boot.iso, status=inserted
com1: enabled=1, mode=file, dev=$in/console
com2: enabled=1, mode=file, dev=$in/output
log: $in/log
panic: action=fatal
error: action=ignore
info: action=ignore
debug: action=ignore
RC
echo c >"$run/continue"         # what Debian's bochs, a debugger, is told to do
: >"$run/console"
: >"$run/output"

# Its input must be /dev/null: on a terminal this bochs sleeps 1 ms at each idle moment.
TERM=vt100 timeout -s KILL "$limit" chroot "$root" bochs -f "$in/bochsrc" -rc "$in/continue" \
    </dev/null >"$run/screen" 2>&1 &
pid=$!
tail -c +1 -s 0.2 -f --pid="$pid" "$run/output" &
code=0
{ wait "$pid" || code=$?; } 2>/dev/null     # no word from bash about a killed job
pid=
wait $! || true

status=$(tr -d '\r' <"$run/console" | sed -n 's/^emulated program ended: \([0-9]*\)$/\1/p' | tail -n 1)
[ -z "$status" ] || exit "$status"
if [ "$code" = 124 ] || [ "$code" = 137 ]; then
    echo "emulate-avx512: stopped after $limit s" >&2
    exit 124
fi
echo "emulate-avx512: the emulated machine failed; its last words:" >&2
tail -n 20 "$run/console" >&2
tail -n 12 "$run/screen" >&2
exit 125
