#!/usr/bin/env bash
# What a widely included header costs every file that includes it: its preprocessed lines.
#   bash tests/tidy/header_lines.sh            prints them; fails above the budgets in header_lines.txt
#   bash tests/tidy/header_lines.sh --lower    writes budgets that are 2 % above today's lines, never above the old ones
# A budget is raised by hand, with a reason in the commit.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
budgets=tests/tidy/header_lines.txt
least_users=8   # files that include a header before it needs a budget

# "COUNT PATH" of each header by the number of files that include it.
users() {
  grep -rhoE '^#include "[a-z0-9_/]+\.h"' --include=*.h --include=*.cpp daemon engine ipc kernels models monitor |
    sort | uniq -c | sed -E 's/^ *([0-9]+) #include "(.*)"$/\1 \2/'
}
lines_of() { "${CXX:-c++}" -std=c++20 -DFMT_SHARED -I. -E -P -x c++ "$1" 2>/dev/null | wc -l; }
export -f lines_of

mapfile -t headers < <(users | awk -v least=$least_users '$1 >= least { print $2 }' | sort)
measured=$(printf '%s\n' "${headers[@]}" | xargs -P "$(nproc)" -I{} bash -c 'echo "{} $(lines_of {})"' | sort)
if [[ ${1:-} == --lower ]]; then
  awk 'FILENAME == ARGV[1] { old[$2] = $1; next }
       { new = int($2 * 1.02); if ($1 in old && old[$1] < new) new = old[$1]; print new, $1 }' \
    <(cat "$budgets" 2>/dev/null || true) <(echo "$measured") >"$budgets.new"
  mv "$budgets.new" "$budgets"
fi
awk 'FILENAME == ARGV[1] { budget[$2] = $1; next }
     { note = "";
       if (!($1 in budget)) note = "  NO BUDGET";
       else if ($2 > budget[$1]) note = "  OVER";
       bad += note != "";
       printf "%6d of %6d  %s%s\n", $2, budget[$1], $1, note }
     END { if (bad) print bad " headers over their budgets: include less, or raise the budget with a reason";
           exit bad > 0 }' "$budgets" <(echo "$measured")
