#pragma once
// The verbs that compute without a daemon, one file each. `hearth VERB` executes this program with
// the same arguments, so it behaves like hearth: results to stdout, everything else to stderr, exit
// status 0, 1 (failed), 2 (invalid command line) or 130 (Ctrl-C).

#include <string_view>

#include "kernels/base/result.h"

namespace hearth::worker {

struct DeviceOptions;
class Verb;

inline constexpr int kFailed = 1;
inline constexpr int kUsage = 2;
inline constexpr int kInterrupted = 130;

/// Each adds its verb to the program's command line.
void add_bench(Verb program);
void add_cache(Verb program);
void add_convert(Verb program);
void add_describe(Verb program);
void add_imatrix(Verb program);
void add_inspect(Verb program);
void add_perplexity(Verb program);
void add_plan(Verb program);
void add_quantize(Verb program);
void add_render(Verb program);
void add_tokenize(Verb program);

/// --device, --numerics and --threads.
void add_compute_options(Verb verb, DeviceOptions& device);

/// "hearth: MESSAGE [code]" on stderr; kInterrupted after kCancelled, else kFailed.
int report_failure(const Error& error);
/// Writes to stdout and flushes; false if the reader has gone.
bool write_stdout(std::string_view text);

}  // namespace hearth::worker
