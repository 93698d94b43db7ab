#!/bin/sh
# The gauntlet: every process test in full, with its table at the end. It is run by make.
# A client of the large storm costs its router three descriptors; where the hard limit
# is below that the test uses two routers.
set -u
cd "$(dirname "$0")/.."
ulimit -n "$(ulimit -H -n)" 2>/dev/null
table=$(mktemp)
trap 'rm -f "$table"' EXIT
TANDEM_GAUNTLET=1 TANDEM_GAUNTLET_TABLE=$table TANDEM_REQUIRE_LLAMA=1 \
	go test -count=1 -parallel 4 -timeout 30m ./test/e2e ${RUN:+-run "$RUN"}
status=$?
cat "$table"
[ $status -eq 0 ] && echo "The gauntlet was run: nothing broke a promise." || echo "The gauntlet found something: see above."
exit $status
