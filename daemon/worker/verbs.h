#pragma once
// The verbs that compute without a daemon, one file each. `hearth VERB` becomes this program with
// the same words, so they speak as hearth: results to stdout, everything else to stderr, exit
// status 0, 1 (failed), 2 (the command line makes no sense) or 130 (Ctrl-C).

#include <string_view>

#include "kernels/base/result.h"

namespace CLI {
class App;
}

namespace hearth::worker {

inline constexpr int kFailed = 1;
inline constexpr int kUsage = 2;
inline constexpr int kInterrupted = 130;

/// Each adds its verb to the program's command line; when it was parsed it runs, and leaves the
/// exit status in `*status`.
void add_bench(CLI::App& app, int* status);
void add_cache(CLI::App& app, int* status);
void add_convert(CLI::App& app, int* status);
void add_inspect(CLI::App& app, int* status);
void add_perplexity(CLI::App& app, int* status);
void add_plan(CLI::App& app, int* status);
void add_quantize(CLI::App& app, int* status);
void add_render(CLI::App& app, int* status);
void add_tokenize(CLI::App& app, int* status);

/// "hearth: MESSAGE [code]" on stderr; kFailed.
int report_failure(const Error& error);
/// Writes to stdout at once; false when nobody reads any more.
bool write_stdout(std::string_view text);

}  // namespace hearth::worker
