#!/usr/bin/env bash
# Installs the Python clients of OpenAI, Anthropic and Ollama for tests/e2e/http_clients.py into a virtual environment in
# ${XDG_CACHE_HOME:-~/.cache}/hearth-tests/clients. Prints its Python, or that it skips and why.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../python_packages.sh"
python_with clients "openai==3.51.0 anthropic==2.10.0 ollama==0.6.3" || true
