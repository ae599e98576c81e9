#!/usr/bin/env bash
# Times `ixbuild plan`: the tree's own 68 arms with a warm store, and a synthetic matrix of 100,000 arms (2,000 keys), cold
# and with nothing changed since the last plan. Prints medians of whole-process wall time and the peak resident set.
# Usage: benches/plan.sh [RUNS]      needs a release build (cargo build --release) and GNU awk or mawk
set -euo pipefail
runs=${1:-7}
root=$(cd "$(dirname "$0")/.." && pwd)
ixbuild=${IXBUILD:-$root/target/release/ixbuild}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export IXBUILD_STORE=$work/store IXBUILD_CACHE=$work/cache IXBUILD_SCRATCH=$work/scratch IXBUILD_PROFILE=rehearsal

# median NAME COMMAND…: seconds of wall time, and MiB of the largest run
median() {
  local name=$1; shift
  for _ in $(seq "$runs"); do
    { /usr/bin/env bash -c 'TIMEFORMAT=%R; time "$@" > /dev/null 2> /dev/null' _ "$@"; } 2>&1
  done | sort -n | awk -v name="$name" '{t[NR]=$1} END {printf "%-44s %8.3f s (median of %d)\n", name, t[int((NR+1)/2)], NR}'
}
peak() { # NAME COMMAND…
  local name=$1; shift
  "$@" > /dev/null 2>&1 &
  local pid=$! most=0 now
  while kill -0 $pid 2> /dev/null; do
    now=$(awk '/VmHWM/ {print $2}' /proc/$pid/status 2> /dev/null || true)
    [ "${now:-0}" -gt "$most" ] && most=$now
    sleep 0.01
  done
  awk -v name="$name" -v kib="$most" 'BEGIN {printf "%-44s %8.1f MiB (peak resident set)\n", name, kib / 1024}'
}

cd "$root"
"$ixbuild" run --only-changed > /dev/null 2>&1 || { echo "the rehearsal failed"; exit 1; }
median "plan, 68 arms, all recorded" "$ixbuild" plan
median "run --only-changed, nothing to run" "$ixbuild" run --only-changed

mkdir -p "$work/big"
cp -r configs golden_al_distribution ixbuild.lock "$work/big/"
awk 'BEGIN {
  for (k = 0; k < 2000; k++) {
    mtp = k % 2
    printf "dsv4-fp4-b200-vllm-agentic-%04d:\n", k
    print "  image: vllm/vllm-openai:nightly-dev-x86_64-cu13.0.1-904e4ec\n  model: deepseek-ai/DeepSeek-V4-Pro-" k
    print "  model-prefix: dsv4\n  runner: cluster:b200-dgxc\n  precision: fp4\n  framework: vllm\n  multinode: false"
    print "  scenarios:\n    agentic-coding:\n    - dram-utilization: 0.80\n      search-space:"
    spec = mtp ? ", spec-decoding: mtp" : ""
    list = ""; for (c = 1; c <= 25; c++) list = list (c > 1 ? ", " : "") c
    print "      - {tp: 8, kv-offloading: none" spec ", conc-list: [" list "]}"
    print "      - {tp: 8, ep: 8, dp-attn: true, kv-offloading: dram, kv-offload-backend: {name: mooncake, version: 0.3.11.post1}, router: {name: vllm-router, version: 0.1.14}" spec ", conc-list: [" list "]}"
  }
}' > "$work/big/configs/nvidia-master.yaml"
cd "$work/big"
runs=3
median "plan, 100,000 arms, cold" bash -c 'rm -rf "$IXBUILD_CACHE"; exec "$0" plan --json' "$ixbuild"
peak "plan, 100,000 arms, cold" bash -c 'rm -rf "$IXBUILD_CACHE"; exec "$0" plan --json' "$ixbuild"
"$ixbuild" plan --json > /dev/null 2>&1
median "plan, 100,000 arms, nothing changed" "$ixbuild" plan --json
peak "plan, 100,000 arms, nothing changed" "$ixbuild" plan --json
