#!/usr/bin/env bash
# A real SLURM of one node for the tests: its own munge, controller and node daemon, on free ports, in
# a folder of its own. Nothing of a SLURM that the machine may have is read or changed, and no
# systemd is needed.
#   tests/slurm/cluster.sh install        packages (Debian, as root)
#   tests/slurm/cluster.sh start          prints what to export so that sbatch and squeue find it
#   tests/slurm/cluster.sh status
#   tests/slurm/cluster.sh stop           ends its jobs and daemons, removes the folder
# The folder is UQSONET_SLURM_STATE, /tmp/uqsonet-slurm-<user id> unless set.
set -euo pipefail

STATE=${UQSONET_SLURM_STATE:-/tmp/uqsonet-slurm-$(id -u)}
export SLURM_CONF=$STATE/slurm.conf
PATH=$PATH:/usr/sbin:/sbin # slurmctld, slurmd and munged are there
DAEMONS=(slurmd slurmctld munged)

fail() { echo "cluster.sh: $*" >&2; exit 1; }

installed() {
  local program
  for program in slurmctld slurmd sbatch munged; do
    command -v "$program" >/dev/null || return 1
  done
}

running() { # the daemon's process is alive and is that daemon, not a later one with its number
  local pid
  pid=$(cat "$STATE/$1.pid" 2>/dev/null) && [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = "$1" ]
}

install() {
  installed && return
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  apt-get install -qq -y --no-install-recommends slurm-wlm munge >/dev/null
}

free_ports() {
  python3 - <<'PY'
import socket
sockets = [socket.socket() for _ in range(2)]
for s in sockets:
    s.bind(("127.0.0.1", 0))
print(*[s.getsockname()[1] for s in sockets])
PY
}

write_configuration() {
  local host user controller node
  host=$(hostname -s) user=$(id -un)
  read -r controller node < <(free_ports)
  # No accounting database, no control groups: neither is needed to queue, run, time out and cancel.
  # The node claims more cores and memory than there may be (config_overrides), so that jobs are
  # accepted with the sizes of a full run; memory is not enforced here.
  cat > "$SLURM_CONF" <<CONF
ClusterName=uqsonet
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$controller
SlurmdPort=$node
SlurmUser=$user
SlurmdUser=$user
AuthType=auth/munge
AuthInfo=socket=$STATE/munge.socket
CredType=cred/munge
StateSaveLocation=$STATE/controller
SlurmdSpoolDir=$STATE/node
SlurmctldPidFile=$STATE/slurmctld.pid
SlurmdPidFile=$STATE/slurmd.pid
SlurmctldLogFile=$STATE/slurmctld.log
SlurmdLogFile=$STATE/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=sched_min_interval=100000,bf_interval=5
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/filetxt
JobCompLoc=$STATE/jobs.txt
MinJobAge=86400
KillWait=5
ReturnToService=2
GresTypes=gpu
SlurmdParameters=config_overrides
NodeName=$host NodeAddr=127.0.0.1 CPUs=8 RealMemory=64000 Gres=gpu:1 State=UNKNOWN
PartitionName=main Nodes=$host Default=YES MaxTime=1-00:00:00 State=UP
PartitionName=other Nodes=$host MaxTime=1-00:00:00 State=UP
CONF
  # A GPU that is only counted (some device file has to stand for it): enough to see a job ask for it.
  echo "NodeName=$host Name=gpu File=/dev/null" > "$STATE/gres.conf"
  # Snakemake's plugin clears SLURM_CONF before it calls srun within a job.
  mkdir "$STATE/bin"
  printf '%s\n' '#!/bin/sh' "export SLURM_CONF='$SLURM_CONF'" "exec '$(command -v srun)' \"\$@\"" \
    > "$STATE/bin/srun"
  chmod +x "$STATE/bin/srun"
}

start() {
  installed || fail "SLURM or munge is missing: tests/slurm/cluster.sh install (Debian, as root)"
  if ! running slurmd; then
    [ ! -e "$STATE" ] || stop
    mkdir -p -m 0755 "$STATE" "$STATE/controller" "$STATE/node"
    mkdir -m 0700 "$STATE/key"
    (umask 077 && head -c 1024 /dev/urandom > "$STATE/key/munge.key")
    write_configuration
    # --force: the folder may lie below one that others can write to, as /tmp is.
    munged --force --key-file="$STATE/key/munge.key" --socket="$STATE/munge.socket" \
      --pid-file="$STATE/munged.pid" --log-file="$STATE/munged.log" --seed-file="$STATE/key/seed" \
      2>> "$STATE/start.log" || fail "munged did not start: $(tail -3 "$STATE/start.log")"
    slurmctld -f "$SLURM_CONF" 2>> "$STATE/start.log"
    slurmd -f "$SLURM_CONF" -N "$(hostname -s)" 2>> "$STATE/start.log"
  fi
  for _ in $(seq 120); do
    case $(sinfo --noheader --partition=main --format=%T 2>/dev/null) in
      idle | mixed | allocated) echo "export SLURM_CONF=$SLURM_CONF PATH=$STATE/bin:\$PATH"; return ;;
    esac
    sleep 0.5
  done
  fail "the node is not ready after a minute; logs are in $STATE"
}

status() {
  local daemon rc=0
  for daemon in "${DAEMONS[@]}"; do
    if running "$daemon"; then echo "$daemon runs"; else echo "$daemon does not run"; rc=1; fi
  done
  ((rc)) || { sinfo && squeue; }
  return $rc
}

stop() {
  local daemon pid
  # Jobs first, or their processes would outlive the daemon that watches over them.
  if running slurmctld && running slurmd; then
    timeout 10 scancel --user="$(id -un)" || true
    for _ in $(seq 40); do
      [ -n "$(timeout 5 squeue --noheader 2>/dev/null || true)" ] || break
      sleep 0.5
    done
  fi
  for daemon in "${DAEMONS[@]}"; do
    running "$daemon" || continue
    pid=$(cat "$STATE/$daemon.pid")
    kill "$pid"
    for _ in $(seq 40); do [ -d "/proc/$pid" ] || break; sleep 0.25; done
    [ ! -d "/proc/$pid" ] || kill -9 "$pid"
  done
  [ ! -f "$SLURM_CONF" ] || rm -rf -- "$STATE"
}

case ${1:-} in
  install | start | status | stop) "$1" ;;
  *) fail "usage: cluster.sh install|start|status|stop" ;;
esac
