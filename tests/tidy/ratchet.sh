#!/usr/bin/env bash
# What only goes down: long files, long functions, casts, and words that the style page replaces.
#   bash tests/tidy/ratchet.sh            fails where a count is above its budget in ratchet.txt
#   bash tests/tidy/ratchet.sh --lower    writes today's counts as budgets, never above the old ones
# A file may have 600 lines and a function 70 before it needs a budget. A budget is raised by hand, with a reason in
# the commit.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
budgets=tests/tidy/ratchet.txt
file_lines=600
function_lines=70
code() { find daemon engine ipc kernels models monitor tests \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) -print; }
prose() { find README.md CONTRIBUTING.md docs packaging tests -not -path '*/corpus/*' \( -name '*.md' -o -name '*.sh' -o -name '*.[1-8]' -o -name '*.toml' -o -name 'CMakeLists.txt' -o -name '*.cmake' \) \
  -not -name benchmarks-history.md -not -path docs/style.md -not -path tests/tidy/ratchet.sh -print; }

# "KIND NAME" of a word and the expression that finds it (docs/style.md, "Plain English"). Identifiers count, too.
words='guess=guess
foresee=fores(ee|aw|ight)
rehearse=rehears
tell=\b(tell|tells|told)\b
say=\b(say|says|said)\b
behind=\bbehind\b
beside=\bbeside\b
shelf=shel(f|ves)
be_had=\bbe had\b
who=\bwho(ever)?\b
price=\bprice
nobody=\b(nobody|somebody|everybody)\b
is_no=\b(is|are) no\b'

counts() {
  code | xargs awk -v most=$file_lines -v most_in=$function_lines '
    FNR == 1 { if (file != "" && lines > most) print "file", file, lines; file = FILENAME; open = 0 }
    { lines = FNR }
    # Formatted code: a function begins in the first column and ends with a brace there.
    /^[^ \t#\/}].*\{$/ && !/^(namespace|struct|class|enum|union|extern|template|const)/ { open = FNR }
    /^}/ && open { n = FNR - open - 1; open = 0; if (n > most_in && n > longest[FILENAME]) longest[FILENAME] = n }
    END { if (lines > most) print "file", file, lines; for (f in longest) print "function", f, longest[f] }'
  local folder word
  for folder in daemon engine ipc kernels models monitor; do
    echo "casts $folder $(code | grep "^$folder/" | xargs cat | grep -o static_cast | wc -l)"
  done
  while IFS= read -r word; do
    echo "word ${word%%=*} $({ code; prose; } | xargs cat | grep -ioE -- "${word#*=}" | wc -l)"
  done <<<"$words"
}

found=$(counts | sort)
if [[ ${1:-} == --lower ]]; then
  awk 'FILENAME == ARGV[1] { old[$1 " " $2] = $3; next }
       { key = $1 " " $2; print key, (key in old && old[key] < $3) ? old[key] : $3 }' \
    <(cat "$budgets" 2>/dev/null || true) <(echo "$found") >"$budgets.new"
  mv "$budgets.new" "$budgets"
fi
awk 'FILENAME == ARGV[1] { budget[$1 " " $2] = $3; next }
     { key = $1 " " $2 }
     !(key in budget) { print $0 ": no budget"; bad = 1; next }
     $3 > budget[key] { print $0 ": over its budget of " budget[key]; bad = 1 }
     END { exit bad }' "$budgets" <(echo "$found") || {
  echo "Make it shorter or say it plainly (docs/style.md), or raise the budget in $budgets with a reason."
  exit 1
}
