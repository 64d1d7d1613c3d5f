#!/usr/bin/env bash
# compare_engines.sh and paired.sh with stand-ins for the peer's programs, which print and answer what those of llama.cpp do.
#   compare_engines_test.sh BUILD_DIRECTORY
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
work=$(mktemp -d "${TMPDIR:-/tmp}/hearth-compare-test.XXXXXX")
trap 'rm -rf "$work"' EXIT
export HEARTH_BUILD=$1 HEARTH_THREADS=1
stand_in() { printf '#!/bin/sh\n%s\n' "$2" >"$work/$1"; chmod 755 "$work/$1"; }
# expect PROGRAM PATTERN: of what is printed.
expect() {
  bash tests/bench/compare_engines.sh "$work/$1" models/demo/tales.gguf 1 >"$work/output"
  grep -Eq "$2" "$work/output" || { cat "$work/output"; echo "$1: want $2"; exit 1; }
}
stand_in llama-bench 'echo "[{\"n_prompt\": 512, \"n_gen\": 0, \"avg_ts\": 100.0}, {\"n_prompt\": 0, \"n_gen\": 32, \"avg_ts\": 10.0}]"'
expect llama-bench '^\| prefill 512 \| [0-9.]+ \| 100\.0 \| [0-9.]+ \|$'
stand_in llama-batched-bench 'echo "{\"pl\": 8, \"speed_pp\": 1.0, \"speed_tg\": 20.0}"'
expect llama-batched-bench '^\| decode, 8 sequences \| [0-9.]+ \| 20\.0 \| [0-9.]+ \|$'
stand_in llama-perplexity 'echo "Mean    KLD:   0.002000 +-   0.000100"'
expect llama-perplexity '^\| mean KL, nats per token \| 0\.0[0-9]+ \| 0\.002000 \| [0-9.]+ \(less is better\) \|$'
stand_in llama-server 'exit 3'
if bash tests/bench/compare_engines.sh "$work/llama-server" models/demo/tales.gguf 1 >"$work/output" 2>&1; then exit 1; fi
grep -q "llama-server ended" "$work/output"
cat >"$work/llama-server" <<'PYTHON'
#!/usr/bin/env python3
import http.server, json, sys
if "--version" in sys.argv:
    sys.exit(print("version: a stand-in"))
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        body = json.dumps({"usage": {"completion_tokens": asked["max_tokens"] + OFF}}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
OFF = int("--short" in sys.argv) * -1
http.server.HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()
PYTHON
export HEARTH_ROUNDS=3 HEARTH_BURST=0.02
paired() { bash tests/bench/paired.sh models/demo/tales.gguf "$work/llama-server" >"$work/output" 2>&1; }
paired
grep -Eq '^\| peer 1 \| [0-9.]+ \([0-9.]+ to [0-9.]+\) \|.*\| [0-3] of 3 \| [0-9.]+ \|$' "$work/output"
grep -q '^peer 1: version: a stand-in$' "$work/output"
if HEARTH_PEER_FLAGS=--short paired; then exit 1; fi
grep -Eq 'peer 1: [0-9]+ tokens, want [0-9]+' "$work/output"
echo "compare_engines.sh reads every peer, paired.sh every burst"
