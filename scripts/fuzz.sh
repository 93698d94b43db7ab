#!/usr/bin/env bash
# Runs every fuzz target of this repository for FUZZTIME (default 10s) each. What a
# target finds is written to its package's testdata/fuzz, to be committed with the fix.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${FUZZTIME:-10s}

mapfile -t dirs < <(git grep -l --untracked '^func Fuzz' -- '*_test.go' | xargs -r -n1 dirname | sort -u)
[ ${#dirs[@]} -gt 0 ] || { echo 'fuzz: no targets' >&2; exit 1; }
failed=()
for dir in "${dirs[@]}"; do
	names=$(go test -list '^Fuzz' "./$dir" | grep '^Fuzz')
	for name in $names; do
		echo "== fuzz $dir $name, $time"
		go test -run '^$' -fuzz "^$name\$" -fuzztime "$time" "./$dir" || failed+=("$dir $name")
	done
done
if [ ${#failed[@]} -gt 0 ]; then
	printf 'fuzz: %s failed\n' "${failed[@]}" >&2
	exit 1
fi
