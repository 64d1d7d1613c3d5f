#pragma once
// One function and one file per verb. Each prints its result and returns the exit status.

#include <string>
#include <vector>

#include "ipc/cli/verbs/options.h"
#include "ipc/schema/messages.h"

namespace hearth::ipc {
class Client;
}

namespace hearth::cli {

int run(const RunOptions& options);
int chat(const ChatOptions& options);
/// The same with a connected client.
int chat_with(ipc::Client client, const ChatOptions& options);
/// Loads the model and checks that it can hold a conversation. kUnsupported: it has no chat
/// template; other errors are the daemon's.
Result<void> check_chat(ipc::Client& client, const std::string& model, const std::string& system);
int tokenize(const TokenizeOptions& options);
int models(bool json);
int remove_model(const RemoveOptions& options);
int ps(bool json);
int stats(bool json);
/// A line for each replica of models with several devices.
std::string replicas_text(const std::vector<ipc::ModelEntry>& models);
/// The state of a model as `hearth ps` and `hearth models` print it: "resident", "load 40 %".
std::string state_text(const ipc::ModelEntry& model);
/// Tables are shortened to `width` characters per line; 0: not shortened.
std::string ps_text(const ipc::PsReply& reply, size_t width = 0);
std::string models_text(const ipc::ModelsReply& reply, size_t width = 0);
std::string requests_table(const ipc::PsReply& reply, size_t width, size_t most_rows);
std::string stats_text(const ipc::StatsReply& reply);
/// Accepted of the tokens drafted at each place: " 83 69 50 %".
std::string percents_by_place(const ipc::SpeculationStats& drafts);
/// Host memory that backs a GPU's, as `hearth stats` and `hearth cache stats` print it.
std::string ram_text(const ipc::StoreSnapshot& store);
int record(const std::string& file, double seconds);
int record_requests(const RecordOptions& options);
int replay(const ReplayOptions& options, bool json);
int top(bool once);
/// The screen of `hearth top`: at most `rows` lines of `width` characters.
std::string top_text(const ipc::StatsReply& stats, const ipc::PsReply& ps, int rows,
                     size_t width = 0);
int cancel(const std::string& request_id, bool only_reasoning);
int attach(const AttachOptions& options);
int fork_request(const AttachOptions& options);
int embed(const EmbedOptions& options);
int load(const Options& options);
int unload(const Options& options);
int swap(const Options& options);
/// `words`: "cache" and all following words.
int cache(const std::vector<std::string>& words);
int ping(bool json, int wait_ms);
int start(bool allow_root);
int stop();
int keygen(const std::string& file);
int doctor(bool json);
int config();
int protocol();

}  // namespace hearth::cli
