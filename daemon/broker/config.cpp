#include "daemon/broker/config.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>

namespace hearth::broker {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kMaxMs = 86'400'000;  // a day: longer waits are a typing error

std::string where(std::string_view source, const toml::node& node) {
  const toml::source_position at = node.source().begin;
  return fmt::format("{}:{}:{}: ", source, at.line, at.column);
}

std::string quoted_list(const std::vector<std::string>& names) {
  return fmt::format("{}", fmt::join(names, ", "));
}

// Reads the keys of one [section]; remembers which it was asked for, so that finish() can name
// those that nobody knows. After the first error it does nothing more.
class SectionReader {
 public:
  SectionReader(const toml::table& root, std::string_view source, std::string name)
      : source_(source), name_(std::move(name)) {
    const toml::node* node = root.get(name_);
    if (node == nullptr) return;
    section_ = node->as_table();
    if (section_ == nullptr) {
      fail(*node, fmt::format("{} is a {}, want a [section]", name_, type_name(*node)));
    }
  }

  void integer(const char* key, int64_t min, int64_t max, int64_t* out) {
    const toml::node* node = find(key);
    if (node == nullptr) return;
    const std::optional<int64_t> value = node->value_exact<int64_t>();
    if (!value) return fail(*node, met(*node, key, fmt::format("an integer {}..{}", min, max)));
    if (*value < min || *value > max) {
      return fail(*node, fmt::format("{}.{} is {}, want {}..{}", name_, key, *value, min, max));
    }
    *out = *value;
  }

  void number(const char* key, double min, double max, double* out) {
    const toml::node* node = find(key);
    if (node == nullptr) return;
    const std::optional<double> value = node->is_number() ? node->value<double>() : std::nullopt;
    if (!value) return fail(*node, met(*node, key, fmt::format("a number {}..{}", min, max)));
    if (!(*value >= min && *value <= max)) {  // NaN fails here too
      return fail(*node, fmt::format("{}.{} is {}, want {}..{}", name_, key, *value, min, max));
    }
    *out = *value;
  }

  void boolean(const char* key, bool* out) {
    const toml::node* node = find(key);
    if (node == nullptr) return;
    const std::optional<bool> value = node->value_exact<bool>();
    if (!value) return fail(*node, met(*node, key, "true or false"));
    *out = *value;
  }

  void text(const char* key, std::string* out) {
    const toml::node* node = find(key);
    if (node == nullptr) return;
    const std::optional<std::string> value = node->value_exact<std::string>();
    if (!value) return fail(*node, met(*node, key, "a string"));
    *out = *value;
  }

  void choice(const char* key, const std::vector<std::string>& choices, std::string* out) {
    const toml::node* node = find(key);
    if (node == nullptr) return;
    const std::optional<std::string> value = node->value_exact<std::string>();
    if (!value) return fail(*node, met(*node, key, "one of " + quoted_list(choices)));
    if (std::find(choices.begin(), choices.end(), *value) == choices.end()) {
      return fail(*node, fmt::format("{}.{} is \"{}\", want one of {}", name_, key, *value,
                                     quoted_list(choices)));
    }
    *out = *value;
  }

  void path(const char* key, fs::path* out) {
    std::string value;
    text(key, &value);
    if (!value.empty()) *out = value;
  }

  void paths(const char* key, std::vector<fs::path>* out) {
    const toml::node* node = find(key);
    if (node == nullptr) return;
    const toml::array* array = node->as_array();
    if (array == nullptr) return fail(*node, met(*node, key, "a list of strings"));
    std::vector<fs::path> values;
    for (const toml::node& element : *array) {
      const std::optional<std::string> value = element.value_exact<std::string>();
      if (!value || value->empty()) return fail(element, met(element, key, "non-empty strings"));
      values.emplace_back(*value);
    }
    *out = std::move(values);
  }

  /// Every key of the section, whatever its name.
  void strings(std::map<std::string, std::string>* out) {
    if (section_ == nullptr || error_) return;
    for (auto&& [key, node] : *section_) {
      known_.emplace_back(key.str());
      const std::optional<std::string> value = node.value_exact<std::string>();
      if (!value || value->empty()) {
        return fail(node, met(node, std::string(key.str()).c_str(), "a model's name"));
      }
      (*out)[std::string(key.str())] = *value;
    }
  }

  Result<void> finish() {
    if (!error_ && section_ != nullptr) {
      for (auto&& [key, node] : *section_) {
        if (std::find(known_.begin(), known_.end(), key.str()) != known_.end()) continue;
        fail(node, fmt::format("unknown key {}.{}; known here: {}", name_, key.str(),
                               quoted_list(known_)));
        break;
      }
    }
    if (error_) return *error_;
    return {};
  }

 private:
  static std::string type_name(const toml::node& node) {
    std::ostringstream out;
    out << node.type();
    return out.str();
  }
  std::string met(const toml::node& node, const char* key, const std::string& wanted) const {
    return fmt::format("{}.{} is a {}, want {}", name_, key, type_name(node), wanted);
  }
  const toml::node* find(const char* key) {
    known_.emplace_back(key);
    return section_ == nullptr || error_ ? nullptr : section_->get(key);
  }
  void fail(const toml::node& node, const std::string& message) {
    if (!error_) error_ = Error{ErrorCode::kInvalidArgument, where(source_, node) + message, name_};
  }

  std::string source_;
  std::string name_;
  const toml::table* section_ = nullptr;
  std::vector<std::string> known_;
  std::optional<Error> error_;
};

Result<void> read_server(const toml::table& root, std::string_view source, ServerConfig* server) {
  SectionReader in(root, source, "server");
  in.path("runtime_dir", &server->runtime_dir);
  in.paths("model_dirs", &server->model_dirs);
  in.text("admin_group", &server->admin_group);
  std::string level;
  in.choice("log_level", {"debug", "info", "warn", "error"}, &level);
  if (!level.empty()) parse_log_level(level, &server->log_level);
  in.integer("drain_timeout_ms", 0, kMaxMs, &server->drain_timeout_ms);
  return in.finish();
}

Result<void> read_limits(const toml::table& root, std::string_view source, LimitsConfig* limits) {
  SectionReader in(root, source, "limits");
  in.integer("max_message_bytes", 1024, 1 << 30, &limits->max_message_bytes);
  in.integer("max_requests", 1, 1 << 20, &limits->max_requests);
  in.integer("max_requests_per_owner", 1, 1 << 20, &limits->max_requests_per_owner);
  in.integer("max_queued_bytes", 1024, int64_t{1} << 40, &limits->max_queued_bytes);
  in.integer("output_buffer_bytes", 4096, 1 << 30, &limits->output_buffer_bytes);
  in.integer("max_resident", 1, 64, &limits->max_resident);
  return in.finish();
}

Result<void> read_worker(const toml::table& root, std::string_view source, WorkerConfig* worker) {
  SectionReader in(root, source, "worker");
  in.path("program", &worker->program);
  in.integer("threads", 0, 4096, &worker->threads);
  in.text("cpu_variant", &worker->cpu_variant);
  in.choice("kv_type", {"f16", "f32"}, &worker->kv_type);
  in.integer("kv_bytes", 0, int64_t{1} << 50, &worker->kv_bytes);
  in.integer("block_size", 16, 1024, &worker->block_size);
  in.integer("context_length", 0, 1 << 27, &worker->context_length);
  in.integer("max_seqs", 1, 1 << 16, &worker->max_seqs);
  in.integer("max_step_tokens", 1, 1 << 20, &worker->max_step_tokens);
  in.choice("policy", {"continuous", "static"}, &worker->policy);
  in.boolean("chunked_prefill", &worker->chunked_prefill);
  in.number("waiting_served_ratio", 0.0, 1e6, &worker->waiting_served_ratio);
  in.boolean("prefix_cache", &worker->prefix_cache);
  in.choice("speculation", {"lookup", "off"}, &worker->speculation);
  in.integer("heartbeat_timeout_ms", 100, kMaxMs, &worker->heartbeat_timeout_ms);
  in.integer("load_timeout_ms", 100, kMaxMs, &worker->load_timeout_ms);
  in.integer("restart_delay_ms", 0, kMaxMs, &worker->restart_delay_ms);
  in.integer("restart_delay_max_ms", 0, kMaxMs, &worker->restart_delay_max_ms);
  return in.finish();
}

Result<void> read_root(const toml::table& root, std::string_view source, Config* config) {
  constexpr std::array kSections = {"server", "limits", "worker", "roles"};
  for (auto&& [key, node] : root) {
    if (std::find(kSections.begin(), kSections.end(), key.str()) != kSections.end()) continue;
    return Error{ErrorCode::kInvalidArgument,
                 where(source, node) + fmt::format("unknown section or key {}; known: {}",
                                                   key.str(), fmt::join(kSections, ", ")),
                 std::string(key.str())};
  }
  HEARTH_TRY(read_server(root, source, &config->server));
  HEARTH_TRY(read_limits(root, source, &config->limits));
  HEARTH_TRY(read_worker(root, source, &config->worker));
  SectionReader roles(root, source, "roles");
  roles.strings(&config->roles);
  return roles.finish();
}

// The one place that meets toml++'s exceptions.
Result<toml::table> parse(std::string_view text, std::string_view source) {
  try {
    return toml::parse(text, source);
  } catch (const toml::parse_error& error) {
    const toml::source_position at = error.source().begin;
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}:{}:{}: {}", source, at.line, at.column, error.description()), ""};
  }
}

}  // namespace

Result<void> apply_toml(std::string_view text, std::string_view source, Config* config) {
  HEARTH_ASSIGN_OR_RETURN(const toml::table root, parse(text, source));
  // Into a copy: a file with an error changes nothing.
  Config changed = *config;
  HEARTH_TRY(read_root(root, source, &changed));
  *config = std::move(changed);
  return {};
}

Result<void> apply_file(const fs::path& file, Config* config) {
  std::ifstream in(file, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  if (!in.is_open() || in.bad()) {
    return Error{ErrorCode::kIo, fmt::format("{}: cannot be read", file.string()), ""};
  }
  return apply_toml(text, file.string(), config);
}

Result<void> apply_assignment(std::string_view assignment, Config* config) {
  const size_t equals = assignment.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--set {}: want section.key=value", assignment), ""};
  }
  const std::string source = fmt::format("--set {}", assignment);
  const std::string key(assignment.substr(0, equals));
  const std::string value(assignment.substr(equals + 1));
  if (parse(assignment, source).ok()) return apply_toml(assignment, source, config);
  std::string escaped;
  for (const char c : value) {
    if (c == '"' || c == '\\') escaped += '\\';
    escaped += c;
  }
  return apply_toml(fmt::format("{} = \"{}\"", key, escaped), source, config);
}

Result<void> apply_environment(const ipc::Environment& environment, const ipc::Paths& paths,
                               Config* config) {
  if (!environment.variable("HEARTH_RUNTIME_DIR").empty()) {
    config->server.runtime_dir = paths.runtime;
  }
  if (!environment.variable("HEARTH_MODEL_DIRS").empty()) {
    config->server.model_dirs = paths.model_dirs;
  }
  const std::string level = environment.variable("HEARTH_LOG");
  if (!level.empty() && !parse_log_level(level, &config->server.log_level)) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("HEARTH_LOG is \"{}\", want debug, info, warn or error", level), ""};
  }
  return {};
}

fs::path program_dir() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  return error ? fs::path{} : program.parent_path();
}

}  // namespace hearth::broker
