#!/bin/sh
# How long the matrix and the changelog take on the public benchmark's own data. Prints; asserts nothing.
#
#   benches/matrix.sh [ORACLE]
#
# ORACLE holds head/configs (two master files and the runners file) and history/history.bundle; default ../shared/oracle.
# Needs git and a release build (made here when it is missing). Every figure is whole-process wall time.
#
#   matrix   1,820 rows of both master files, as JSON              target < 46 ms, aim 23 ms (the Python generator: 2.3 s)
#   select   what one commit's changelog entries select            target < 100 ms
#   audit    the whole history of the bundle, and what 300 commits would take     target < 30 s for 300
#
# RUNS (default 21) is the number of runs of which the median is taken. hyperfine is used where it is installed.
set -eu

here=$(cd "$(dirname "$0")/.." && pwd)
oracle=$(cd "${1:-$here/../shared/oracle}" && pwd)
runs=${RUNS:-21}
ixbuild=${IXBUILD:-$here/target/release/ixbuild}
[ -x "$ixbuild" ] || (cd "$here" && cargo build --release --quiet)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git init -q --bare "$work/history"
git -C "$work/history" fetch -q "$oracle/history/history.bundle" 'refs/heads/*:refs/heads/*'
branch=$(git -C "$work/history" for-each-ref --format='%(refname:short)' refs/heads | head -n 1)

# median FOLDER NAME COMMAND…: the median wall time of a command, in milliseconds.
median() {
    folder=$1 name=$2
    shift 2
    if command -v hyperfine >/dev/null 2>&1; then
        (cd "$folder" && hyperfine --shell=none --warmup 2 --runs "$runs" --export-json "$work/times.json" "$*" >/dev/null 2>&1)
        ms=$(sed -n 's/.*"median": *\([0-9.e-]*\).*/\1/p' "$work/times.json" | awk '{ printf "%.1f", $1 * 1000 }')
    else
        : >"$work/times"
        i=0
        while [ "$i" -lt "$runs" ]; do
            start=$(date +%s%N)
            (cd "$folder" && exec "$@" >/dev/null 2>&1)
            end=$(date +%s%N)
            echo $((end - start)) >>"$work/times"
            i=$((i + 1))
        done
        ms=$(sort -n "$work/times" | awk '{ t[NR] = $1 } END { printf "%.1f", t[int((NR + 1) / 2)] / 1000000 }')
    fi
    printf '%-8s %10s ms   median of %s\n' "$name" "$ms" "$runs"
}

median "$oracle/head" matrix "$ixbuild" matrix \
    --config-files configs/amd-master.yaml configs/nvidia-master.yaml --runner-config configs/runners.yaml
median "$work/history" select "$ixbuild" changelog select --base "$branch~1" --head "$branch"

first=$(git -C "$work/history" rev-list --max-parents=0 "$branch" | head -n 1)
commits=$(git -C "$work/history" rev-list --first-parent --count "$first..$branch")
start=$(date +%s%N)
(cd "$work/history" && "$ixbuild" changelog audit --range "$first..$branch" >/dev/null 2>&1)
end=$(date +%s%N)
echo "$start $end $commits" | awk '{ s = ($2 - $1) / 1e9; printf "%-8s %10.1f ms   %d commits, %.1f s for 300\n", "audit", s * 1000, $3, s / $3 * 300 }'
