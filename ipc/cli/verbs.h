#pragma once
// One function and one file per verb. Each prints, and returns the program's exit status.

#include <string>
#include <vector>

#include "ipc/cli/options.h"
#include "ipc/messages.h"

namespace hearth::cli {

int run(const RunOptions& options);
int chat(const ChatOptions& options);
int tokenize(const TokenizeOptions& options);
int models(bool json);
int ps(bool json);
int stats(bool json);
/// What `hearth ps` and `hearth stats` print.
std::string ps_text(const ipc::PsReply& reply);
std::string stats_text(const ipc::StatsReply& reply);
/// Host memory behind a GPU's, as `hearth stats` and `hearth cache stats` say it.
std::string ram_text(const ipc::StoreSnapshot& store);
int record(const std::string& file, double seconds);
int top(bool once);
/// What `hearth top` draws, at most `rows` lines.
std::string top_text(const ipc::StatsReply& stats, const ipc::PsReply& ps, int rows);
int cancel(const std::string& request_id);
int attach(const AttachOptions& options);
int fork_request(const AttachOptions& options);
int embed(const EmbedOptions& options);
int load(const std::string& model, const std::string& keep_alive, const std::string& draft,
         bool json);
int unload(const std::string& model, bool json);
int swap(const std::string& role, const std::string& model, bool json);
/// `words`: "cache" and what follows it.
int cache(const std::vector<std::string>& words);
int ping(bool json, int wait_ms);
int stop();
int keygen(const std::string& file);
int doctor(bool json);
int config();
int protocol();

}  // namespace hearth::cli
