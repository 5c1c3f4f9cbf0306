# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
#
# Shared by the scripts beside this file: Debian systems of their own, programs
# inside them, and guests that boot them. To be sourced behind scripts/lib.sh.

# The packages that emuV's own need: with them installed, purging emuV's takes no
# other one.
# shellcheck disable=SC2034 # used by the sourcing script
SYSTEM_PACKAGES=(bash-completion dkms gcc kmod libfmt9 libinih-dev libkmod-dev libncurses-dev
    libpugixml1v5 libsmartcols1 make man-db openssl pkg-config slurm-wlm-basic-plugins systemd
    systemd-sysv udev)

# debian_system PACKAGE...: print the path of an archive of a Debian 12 that has
# these. It is made once a machine.
debian_system() {
    local name list archive
    need mmdebstrap mmdebstrap
    list=$(printf '%s\n' "$@" | LC_ALL=C sort -u)
    name=$(sha256sum <<<"$list" | cut -c 1-16)
    archive=$(cache_dir)/debian/$name.tar
    if [[ ! -f $archive ]]; then
        mkdir -p -- "${archive%/*}"
        say "making a Debian 12 with ${list//$'\n'/ }"
        # shellcheck disable=SC2016 # for apt to expand
        apt-get indextargets --format 'deb $(REPO_URI) $(RELEASE) $(COMPONENT)' \
            'Origin: Debian' 'Identifier: Packages' | sort -u |
            mmdebstrap --mode=root --variant=apt --include="${list//$'\n'/,}" \
                --aptopt='APT::Install-Recommends "false"' --dpkgopt=force-unsafe-io \
                bookworm "$archive.$$.tar" - >&2 || die "mmdebstrap failed"
        mv -- "$archive.$$.tar" "$archive"
    fi
    printf '%s\n' "$archive"
}

# need_debs DIR NAME...: end the script where that folder lacks one of emuV's packages,
# of revision 1, and say what it takes.
need_debs() {
    local name why
    for name in "${@:2}"; do
        case $name in
        libemuv-cuda) why="CUDA's toolkit, 13.0 or later, which scripts/setup does not install" ;;
        emuv-slurm) why="Slurm's headers (scripts/setup --packages)" ;;
        *) why="what scripts/setup --packages installs" ;;
        esac
        compgen -G "$1/${name}_$(<"$EMUV_ROOT/VERSION")-1_*.deb" >/dev/null ||
            die "$1 has no $name. To build it, scripts/package needs $why"
    done
}

# install_debs ROOT DIR NAME...: have apt install these of emuV's packages in that
# system. They are left in ROOT/packages.
install_debs() {
    local name file paths=()
    mkdir -p -- "$1/packages"
    for name in "${@:3}"; do
        for file in "$2/${name}_$(<"$EMUV_ROOT/VERSION")-1"_*.deb; do
            cp -- "$file" "$1/packages" || return 1
            paths+=("/packages/${file##*/}")
        done
    done
    inside "$1" apt-get -y install "${paths[@]}"
}

# inside ROOT COMMAND...: run it in that system, which is not booted. The mounts
# and all that it starts end with it.
inside() {
    # shellcheck disable=SC2016 # for that shell to expand
    unshare --mount --pid --fork --kill-child -- bash -c '
        mount --make-rprivate / && mount -t proc proc "$1/proc" && mount -t tmpfs run "$1/run" &&
        mount -t tmpfs dev "$1/dev" && mknod -m 666 "$1/dev/null" c 1 3 &&
        mknod -m 666 "$1/dev/urandom" c 1 9 && ln -s /proc/self/fd "$1/dev/fd" &&
        mkdir -m 1777 "$1/dev/shm" &&
        exec chroot "$1" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
            DEBIAN_FRONTEND=noninteractive "${@:2}"' bash "$@" </dev/null
}

# --- guests

# A guest's state: its work folder, the folder that it shares with this machine,
# and QEMU's process.
guest_work='' guest_share='' guest_qemu=''

# guest_prepare ROOT: give a system's root what it needs to obey this script: a
# unit that runs commands, and a name of its own. The kernel is the newest there.
guest_prepare() {
    local root=$1
    tr -d - </proc/sys/kernel/random/uuid >"$root/etc/machine-id"
    echo guest >"$root/etc/hostname"
    install -D -m 755 -- "$EMUV_ROOT/tests/system/agent" "$root/opt/guest/agent"
    cat >"$root/etc/systemd/system/guest-agent.service" <<'END'
[Unit]
Description=Commands of the machine that runs this guest

[Service]
ExecStart=/opt/guest/agent
# Programs that a command starts may outlive it.
KillMode=process
END
    mkdir -p -- "$root/etc/systemd/system/multi-user.target.wants"
    ln -sf ../guest-agent.service "$root/etc/systemd/system/multi-user.target.wants/"
}

# guest_image ROOT IMAGE [SIZE]: a disk with what lies below ROOT. It takes as much
# of this machine's disk as it holds.
guest_image() {
    need mke2fs e2fsprogs
    rm -f -- "$2"
    PATH=$PATH:/sbin:/usr/sbin mke2fs -q -t ext4 -E lazy_itable_init=1,lazy_journal_init=1 \
        -d "$1" "$2" "${3:-8G}" >&2 || die "cannot make a disk of $1"
}

# guest_take_kernel ROOT DIR: put its newest kernel and that one's initrd into DIR,
# as vmlinux and initrd.
guest_take_kernel() {
    local image
    mkdir -p -- "$2"
    image=$(printf '%s\n' "$1"/boot/vmlinuz-* | sort -V | tail -n 1)
    extract_vmlinux "$image" "$2/vmlinux" || cp -- "$image" "$2/vmlinux"
    cp -- "$1/boot/initrd.img-${image##*/vmlinuz-}" "$2/initrd"
}

# guest_start WORK IMAGE [QEMU-OPTION]...: boot the system of that disk with the
# kernel in WORK, and wait until it takes commands. The log of its kernel and of
# systemd goes on in WORK/console.log; its folder /run/share is WORK/share.
# GUEST_MEMORY, GUEST_CPUS, GUEST_APPEND and GUEST_BOOT_SECONDS change the machine.
guest_start() {
    guest_work=$1 guest_share=$1/share
    guest_qemu_begins "${@:2}"
    guest_await "$guest_share/ready" "${GUEST_BOOT_SECONDS:-900}" && return
    # An emulated processor may hang at an instruction that another one has just
    # changed (seen with QEMU 7.2, rarely).
    say "the guest takes no commands, and is started again; the end of its log:"
    tail -n 5 -- "$guest_work/console.log" >&2
    guest_kill
    guest_qemu_begins "${@:2}"
    guest_await "$guest_share/ready" "${GUEST_BOOT_SECONDS:-900}" || {
        say "the guest takes no commands; the end of its log:"
        tail -n 30 -- "$guest_work/console.log" >&2
        return 1
    }
}

# guest_qemu_begins IMAGE [QEMU-OPTION]...
guest_qemu_begins() {
    local slow="erms fsrm avx avx2 f16c fma vaes vpclmulqdq la57" accel kernel_options
    need qemu-system-x86_64 qemu-system-x86
    mkdir -p -- "$guest_share"
    rm -f -- "$guest_share"/{ready,command,running,status,said}
    # As in scripts/vm: what is slow when it is emulated is left out.
    accel=(-accel "tcg,thread=multi" -cpu "max,${slow// /=off,}=off")
    if [[ ${EMUV_KVM:-} == 1 ]]; then
        accel=(-accel kvm -cpu host)
    fi
    # As in scripts/vm: on a busy host a guest stands still for seconds.
    kernel_options=(root=/dev/vda rw console=ttyS0 panic=-1 oops=panic norandmaps mitigations=off
        no_timer_check tsc=reliable watchdog_thresh=60 workqueue.watchdog_thresh=120
        rcupdate.rcu_cpu_stall_timeout=120 systemd.mask=serial-getty@ttyS0.service
        systemd.default_timeout_start_sec=600s "${GUEST_APPEND:-}")
    qemu-system-x86_64 -nodefaults -no-user-config -display none -no-reboot \
        -M q35 "${accel[@]}" -m "${GUEST_MEMORY:-2G}" -smp "${GUEST_CPUS:-2}" \
        -kernel "$guest_work/vmlinux" -initrd "$guest_work/initrd" -append "${kernel_options[*]}" \
        -chardev "file,id=console,path=$guest_work/console.log,append=on" -serial chardev:console \
        -drive "file=$1,format=raw,if=none,id=disk,cache=unsafe" -device virtio-blk-pci,drive=disk \
        -fsdev "local,id=share,path=$guest_share,security_model=none" \
        -device virtio-9p-pci,fsdev=share,mount_tag=share -device virtio-rng-pci \
        "${@:2}" </dev/null >>"$guest_work/qemu.log" 2>&1 &
    guest_qemu=$!
}

# guest_await FILE SECONDS: wait until the guest has written it. Fails when the
# guest ends before, or the time is over.
guest_await() {
    local end=$((SECONDS + $2))
    until [[ -e $1 ]]; do
        kill -0 "$guest_qemu" 2>/dev/null && ((SECONDS < end)) || return 1
        sleep 0.2
    done
}

# guest COMMAND...: run it there as root, and pass on what it says and its status;
# 125 where it does not end within GUEST_SECONDS (1800).
guest() {
    guest_shell "$(printf '%q ' "$@")"
}

# guest_shell TEXT: the same, of a text for bash.
guest_shell() {
    rm -f -- "$guest_share"/{status,said}
    printf '%s\n' "$1" >"$guest_share/command.new"
    mv -- "$guest_share/command.new" "$guest_share/command"
    guest_await "$guest_share/status" "${GUEST_SECONDS:-1800}" || {
        cat -- "$guest_share/said" 2>/dev/null || true
        say "the guest did not do: $1"
        tail -n 15 -- "$guest_work/console.log" >&2
        return 125
    }
    cat -- "$guest_share/said"
    return "$(<"$guest_share/status")"
}

# guest_stop [VERB]: shut it down, by systemctl's verb `poweroff` or `reboot`, and
# wait until it is off. guest_start boots it again.
guest_stop() {
    local end=$((SECONDS + 600))
    printf 'systemctl --no-block %s\n' "${1:-poweroff}" >"$guest_share/command.new"
    mv -- "$guest_share/command.new" "$guest_share/command"
    while kill -0 "$guest_qemu" 2>/dev/null; do
        ((SECONDS < end)) || {
            say "the guest does not go down; the end of its log:"
            tail -n 15 -- "$guest_work/console.log" >&2
            guest_kill
            return 1
        }
        sleep 0.2
    done
    wait "$guest_qemu" || true
    guest_qemu=''
}

# guest_kill: end it at once, if it runs.
guest_kill() {
    if [[ -n $guest_qemu ]]; then
        kill -KILL "$guest_qemu" 2>/dev/null || true
        wait "$guest_qemu" 2>/dev/null || true
        guest_qemu=''
    fi
}

# --- tests

passed=0 failed=0
# check WHAT COMMAND...: a test. Its words go to the folder of work, and are shown
# if it fails.
# shellcheck disable=SC2034,SC2154 # the sourcing script reads and sets
check() {
    local what=$1 begun=$SECONDS
    shift
    if "$@" >"$work/said" 2>&1; then
        printf 'ok %s (%d s)\n' "$what" $((SECONDS - begun))
        passed=$((passed + 1))
    else
        printf 'FAILED %s (%d s)\n' "$what" $((SECONDS - begun))
        tail -n 40 -- "$work/said" | sed 's/^/    /'
        failed=$((failed + 1))
    fi
}

# says PATTERN COMMAND...: true if the command says so; its exit status does not
# matter.
says() {
    local pattern=$1 said
    shift
    said=$("$@" 2>&1) || true
    printf '%s\n' "$said"
    grep -E -- "$pattern" <<<"$said" >/dev/null
}

# does_not_say PATTERN COMMAND...: true if the command succeeds, and does not say so.
# A guest that is dead says nothing, and that is no success.
does_not_say() {
    local pattern=$1 said status=0
    shift
    said=$("$@" 2>&1) || status=$?
    printf '%s\n' "$said"
    ((!status)) && ! grep -E -- "$pattern" <<<"$said" >/dev/null
}

# refuses COMMAND...: true if the command comes to an end, and fails. A guest that is
# dead refuses nothing.
refuses() {
    local status=0
    "$@" || status=$?
    ((status && status != 125))
}
