#pragma once
// The options of all verbs, parsed, as plain data.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ipc/cli/chat/chat_options.h"

namespace hearth::cli {

struct RunOptions {
  std::string model;
  std::vector<std::string> prompt_words;
  std::string file;  ///< "-": standard input
  /// Field names and their values as written, in the given order; lists repeat the name.
  std::vector<std::pair<std::string, std::string>> fields;
  bool json = false;
  bool ids = false;
  bool stats = false;
  bool raw = false;  ///< continue the prompt as text, without the chat template
  bool no_start = false;
  bool allow_root = false;
};

struct TokenizeOptions {
  std::string model;       ///< a file, a model's name or a role
  std::string model_word;  ///< the first word, before it is known whether --model was given
  std::vector<std::string> text_words;
  std::string file;
  bool raw = false;
  bool parse_special = false;
  bool json = false;
  bool ids = false;
  bool no_start = false;
  bool allow_root = false;
};

/// attach and fork.
struct AttachOptions {
  std::string id;
  int from = 0;  ///< fork: -1, after all tokens
  int sample = 0;
  int n = 1;
  int max_tokens = 0;
  std::optional<uint64_t> seed;
  bool json = false;
  bool ids = false;
  bool stats = false;
};

struct EmbedOptions {
  std::string model;
  std::vector<std::string> text_words;
  std::string file;
  std::string pooling = "auto";
  std::string query;
  bool lines = false;  ///< each line is a text
  bool raw = false;    ///< not scaled to length 1
  bool json = false;
  bool no_start = false;
  bool allow_root = false;
};

struct RecordOptions {
  std::string file;
  bool text = false;
  std::string time;        ///< as written; empty: until Ctrl-C
  uint64_t max_mb = 1024;  ///< of the file, MiB
};

struct ReplayOptions {
  std::string file;
  double speed = 1;
  std::string against;  ///< a model's name, or a daemon's FILE.toml; empty: as recorded
  int concurrency = 64;
  bool warm = false;  ///< use what the cache holds already
};

/// models rm.
struct RemoveOptions {
  std::string model;  ///< empty: the models are listed
  std::string dir;    ///< the model directory; empty: the default ones
  bool yes = false;   ///< without asking
};

struct Options {
  std::string verb;
  bool json = false;       ///< models, ps, stats, ping, doctor, load, unload, swap
  int wait_ms = 0;         ///< ping: keep trying for this long
  std::string request_id;  ///< cancel
  bool only_reasoning = false;
  std::string role;         ///< swap
  std::string model;        ///< load, unload, swap
  std::string key_file;     ///< keygen
  std::string keep_alive;   ///< load: as written; empty: as configured
  bool once = false;        ///< top: one picture
  std::string record;       ///< stats: the file to record into
  double record_s = 0;      ///< stats: seconds; 0: until interrupted
  std::string adapter;      ///< unload: only this; empty: the model
  bool keep = false;        ///< unload: keep the worker asleep
  std::string draft;        ///< load: its draft model; empty: unchanged
  bool no_start = false;    ///< load, swap
  bool allow_root = false;  ///< load, swap, start
  RunOptions run;
  TokenizeOptions tokenize;
  ChatOptions chat;
  AttachOptions attach;  ///< fork, too
  EmbedOptions embed;
  RecordOptions record_requests;
  ReplayOptions replay;
  RemoveOptions remove;
  /// For a verb that another program parses: the verb and all following words, as written.
  std::vector<std::string> passed_on;
};

}  // namespace hearth::cli
