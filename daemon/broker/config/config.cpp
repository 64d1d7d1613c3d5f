#include "daemon/broker/config/config.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <toml++/toml.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>

#include "daemon/broker/config/settings.h"
#include "ipc/schema/field_table.h"
#include "kernels/base/numbers.h"

namespace hearth::broker {
namespace fs = std::filesystem;
namespace {

constexpr std::array<std::string_view, 6> kSamplingFields = {
    "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "penalty_window"};

std::string where(std::string_view source, const toml::node& node) {
  const toml::source_position at = node.source().begin;
  return fmt::format("{}:{}:{}: ", source, at.line, at.column);
}

std::string quoted_list(const std::vector<std::string>& names) {
  return fmt::format("{}", fmt::join(names, ", "));
}

// Reads the keys of one [section] and records which keys were requested, so that finish() can name
// unknown ones. Does nothing after the first error.
class SectionReader {
 public:
  /// Records the location of each present key in `sources`.
  SectionReader(const toml::table& root, std::string_view source, std::string name,
                std::map<std::string, std::string>* sources)
      : source_(source), name_(std::move(name)), sources_(sources) {
    const size_t dot = name_.find('.');  // [models.NAME]; a name may contain dots
    const toml::node* node = root.get(dot == name_.npos ? name_ : name_.substr(dot + 1));
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

  /// One of the choices, or two with a slash between them.
  void one_or_two(const char* key, const std::vector<std::string>& choices, std::string* out) {
    const toml::node* node = find(key);
    if (node == nullptr) return;
    const std::string want = fmt::format("one of {}, or two as K/V", quoted_list(choices));
    const std::optional<std::string> value = node->value_exact<std::string>();
    if (!value) return fail(*node, met(*node, key, want));
    const size_t slash = value->find('/');
    const auto known = [&](const std::string& part) {
      return std::find(choices.begin(), choices.end(), part) != choices.end();
    };
    if (!known(value->substr(0, slash)) ||
        (slash != value->npos && !known(value->substr(slash + 1)))) {
      return fail(*node, fmt::format("{}.{} is \"{}\", want {}", name_, key, *value, want));
    }
    *out = *value;
  }

  void path(const char* key, fs::path* out) {
    std::string value;
    text(key, &value);
    if (!value.empty()) *out = value;
  }

  void texts(const char* key, std::vector<std::string>* out) {
    std::vector<fs::path> values(out->begin(), out->end());
    paths(key, &values);
    out->clear();
    for (const fs::path& value : values) out->push_back(value.string());
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

  void integers(const char* key, int64_t min, int64_t max, std::vector<int32_t>* out) {
    const toml::node* node = find(key);
    if (node == nullptr) return;
    const std::string want = fmt::format("a list of integers {}..{}", min, max);
    const toml::array* array = node->as_array();
    if (array == nullptr) return fail(*node, met(*node, key, want));
    out->clear();
    for (const toml::node& element : *array) {
      const std::optional<int64_t> value = element.value_exact<int64_t>();
      if (!value || *value < min || *value > max) return fail(element, met(element, key, want));
      out->push_back(narrow<int32_t>(*value));
    }
  }

  /// A list, or "auto", which is the list of that alone.
  void texts_or_auto(const char* key, std::optional<std::vector<std::string>>* out) {
    const toml::node* node = find(key);
    if (node == nullptr || node->value_exact<std::string>() != "auto") return texts(key, out);
    *out = {"auto"};
  }

  // Settings that a model has only if they are given.
  void texts(const char* key, std::optional<std::vector<std::string>>* out) {
    given(key, out, [&](std::vector<std::string>* value) { texts(key, value); });
  }
  void integer(const char* key, int64_t min, int64_t max, std::optional<int64_t>* out) {
    given(key, out, [&](int64_t* value) { integer(key, min, max, value); });
  }
  void text(const char* key, std::optional<std::string>* out) {
    given(key, out, [&](std::string* value) { text(key, value); });
  }
  void choice(const char* key, const std::vector<std::string>& choices,
              std::optional<std::string>* out) {
    given(key, out, [&](std::string* value) { choice(key, choices, value); });
  }
  void one_or_two(const char* key, const std::vector<std::string>& choices,
                  std::optional<std::string>* out) {
    given(key, out, [&](std::string* value) { one_or_two(key, choices, value); });
  }

  void boolean(const char* key, std::optional<bool>* out) {
    given(key, out, [&](bool* value) { boolean(key, value); });
  }

  /// Reads every key of the section as a string; tables in it are sections of their own.
  void strings(std::map<std::string, std::string>* out) {
    if (section_ == nullptr || error_) return;
    for (auto&& [key, node] : *section_) {
      known_.emplace_back(key.str());
      if (node.is_table()) continue;
      const std::optional<std::string> value = node.value_exact<std::string>();
      if (!value || value->empty()) {
        return fail(node, met(node, std::string(key.str()).c_str(), "a name"));
      }
      note(key.str(), node);
      (*out)[std::string(key.str())] = *value;
    }
  }

  /// Reads numbers that apply to all models, and one table of numbers per named model.
  void sampling(std::map<std::string, std::map<std::string, double>>* out) {
    if (section_ == nullptr || error_) return;
    for (auto&& [key, node] : *section_) {
      const std::string name(key.str());
      known_.push_back(name);
      const toml::table* of_model = node.as_table();
      if (of_model == nullptr) {
        sampling_field("", name, node, out);
        continue;
      }
      for (auto&& [field, value] : *of_model) {
        sampling_field(name, std::string(field.str()), value, out);
      }
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
  template <class T, class Read>
  void given(const char* key, std::optional<T>* out, const Read& read) {
    T value{};
    read(&value);
    if (section_ != nullptr && !error_ && section_->contains(key)) *out = std::move(value);
  }
  const toml::node* find(const char* key) {
    known_.emplace_back(key);
    if (section_ == nullptr || error_) return nullptr;
    const toml::node* node = section_->get(key);
    if (node != nullptr) note(key, *node);
    return node;
  }
  void sampling_field(const std::string& model, const std::string& name, const toml::node& node,
                      std::map<std::string, std::map<std::string, double>>* out) {
    if (error_) return;
    if (std::ranges::find(kSamplingFields, name) == kSamplingFields.end()) {
      return fail(node, fmt::format("unknown key {}.{}; known: {}, and a table of them for a model",
                                    name_, name, fmt::join(kSamplingFields, ", ")));
    }
    const ipc::Field& field = *ipc::find_field(ipc::Verb::kGenerate, name);
    const bool integer = field.type == ipc::FieldType::kInteger;
    const std::optional<double> value =
        node.is_number() && (!integer || node.is_integer()) ? node.value<double>() : std::nullopt;
    if (!value || !(*value >= field.min && *value <= field.max)) {
      return fail(node, fmt::format("{}.{} is {}, want {} {}..{}", name_, name,
                                    value ? fmt::format("{}", *value) : type_name(node),
                                    integer ? "an integer" : "a number", field.min, field.max));
    }
    note(model.empty() ? name : model + "." + name, node);
    (*out)[model][name] = *value;
  }
  void note(std::string_view key, const toml::node& node) {
    // For an assignment on the command line, the location is the assignment itself.
    (*sources_)[fmt::format("{}.{}", name_, key)] =
        source_.starts_with("--") ? source_
                                  : fmt::format("{}:{}", source_, node.source().begin.line);
  }
  void fail(const toml::node& node, const std::string& message) {
    if (!error_) error_ = Error::invalid(where(source_, node) + message, name_);
  }

  std::string source_;
  std::string name_;
  std::map<std::string, std::string>* sources_;
  const toml::table* section_ = nullptr;
  std::vector<std::string> known_;
  std::optional<Error> error_;
};

/// Reads each section [KIND.NAME] with `read(section, name)`.
template <class Read>
Result<void> read_named(const toml::table& root, std::string_view source, const std::string& kind,
                        Config* config, Read read) {
  const toml::node* node = root.get(kind);
  if (node == nullptr) return {};
  const toml::table* sections = node->as_table();
  if (sections == nullptr) {
    return Error::invalid(
        fmt::format("{}{}: want a section [{}.NAME]", where(source, *node), kind, kind), kind);
  }
  for (auto&& [name, settings] : *sections) {
    const std::string of(name.str());
    SectionReader section(*sections, source, kind + "." + of, &config->sources);
    read(section, of);
    HEARTH_TRY(section.finish());
  }
  return {};
}

bool is_owner(std::string_view name) {
  return name.starts_with("uid:") || name.starts_with("key:");
}

Result<void> read_owners(const toml::table& root, std::string_view source, Config* config) {
  HEARTH_TRY(read_named(root, source, "owners", config, [&](SectionReader& in, const auto& name) {
    visit_owner(in, &config->owners[name]);
  }));
  for (const auto& [name, settings] : config->owners) {
    if (is_owner(name)) continue;
    return Error::invalid(
        fmt::format("{}: owners.\"{}\": want \"uid:NUMBER\" or \"key:NAME\"", source, name),
        "owners");
  }
  return {};
}

/// [roles.NAME], with or without a remote.
Result<void> read_remotes(const toml::table& root, std::string_view source, Config* config) {
  const toml::node* node = root.get("roles");
  if (node == nullptr) return {};
  for (auto&& [name, settings] : *node->as_table()) {
    if (!settings.is_table()) continue;
    const std::string role(name.str());
    std::string local;
    if (const auto known = config->roles.find(role); known != config->roles.end()) {
      local = known->second;
    }
    RemoteConfig& remote = config->remotes[role];
    SectionReader section(*node->as_table(), source, "roles." + role, &config->sources);
    visit_remote(section, &local, &remote);
    HEARTH_TRY(section.finish());
    if (!local.empty()) config->roles[role] = local;
    if (remote.remote.empty()) {
      return Error::invalid(
          fmt::format("{}roles.{}.remote: absent, want the address of an endpoint; a role without "
                      "one is {} = \"MODEL\" in [roles]",
                      where(source, settings), role, role),
          "roles");
    }
  }
  return {};
}

Result<void> read_root(const toml::table& root, std::string_view source, Config* config) {
  constexpr std::array kSections = {"server",  "http",         "limits",    "residency", "worker",
                                    "cache",   "cache_owners", "kv_events", "sampling",  "roles",
                                    "devices", "models",       "owners"};
  for (auto&& [key, node] : root) {
    if (std::find(kSections.begin(), kSections.end(), key.str()) != kSections.end()) continue;
    return Error::invalid(where(source, node) + fmt::format("unknown section or key {}; known: {}",
                                                            key.str(), fmt::join(kSections, ", ")),
                          std::string(key.str()));
  }
  SectionReader server(root, source, "server", &config->sources);
  visit_server(server, &config->server);
  HEARTH_TRY(server.finish());
  SectionReader http(root, source, "http", &config->sources);
  visit_http(http, &config->http);
  HEARTH_TRY(http.finish());
  SectionReader limits(root, source, "limits", &config->sources);
  visit_limits(limits, &config->limits);
  HEARTH_TRY(limits.finish());
  SectionReader residency(root, source, "residency", &config->sources);
  visit_residency(residency, &config->residency);
  HEARTH_TRY(residency.finish());
  SectionReader worker(root, source, "worker", &config->sources);
  visit_worker(worker, &config->worker);
  HEARTH_TRY(worker.finish());
  SectionReader cache(root, source, "cache", &config->sources);
  visit_cache(cache, &config->cache);
  HEARTH_TRY(cache.finish());
  SectionReader cache_owners(root, source, "cache_owners", &config->sources);
  visit_cache_owners(cache_owners, &config->cache.owners);
  HEARTH_TRY(cache_owners.finish());
  for (const auto& [owner, tier] : config->cache.owners) {
    const bool known = tier == "off" || tier == "memory" || tier == "disk";
    if (known && is_owner(owner)) continue;
    return Error::invalid(
        fmt::format("{}: cache_owners.\"{}\" is \"{}\", want \"uid:NUMBER\" or \"key:NAME\" "
                    "with off, memory or disk",
                    source, owner, tier),
        "cache_owners");
  }
  SectionReader kv_events(root, source, "kv_events", &config->sources);
  visit_kv_events(kv_events, &config->kv_events);
  HEARTH_TRY(kv_events.finish());
  SectionReader sampling(root, source, "sampling", &config->sources);
  visit_sampling(sampling, &config->sampling);
  HEARTH_TRY(sampling.finish());
  SectionReader roles(root, source, "roles", &config->sources);
  visit_roles(roles, &config->roles);
  HEARTH_TRY(roles.finish());
  HEARTH_TRY(read_remotes(root, source, config));
  HEARTH_TRY(read_owners(root, source, config));
  HEARTH_TRY(read_named(root, source, "devices", config, [&](SectionReader& in, const auto& name) {
    visit_device(in, &config->devices[name]);
  }));
  return read_named(root, source, "models", config, [&](SectionReader& in, const auto& name) {
    visit_model(in, &config->models[name]);
  });
}

// The only function that handles toml++'s exceptions.
Result<toml::table> parse(std::string_view text, std::string_view source) {
  try {
    return toml::parse(text, source);
  } catch (const toml::parse_error& error) {
    const toml::source_position at = error.source().begin;
    return Error::invalid(
        fmt::format("{}:{}:{}: {}", source, at.line, at.column, error.description()));
  }
}

}  // namespace

ipc::SamplingSettings SamplingConfig::of(const std::string& model) const {
  ipc::SamplingSettings settings;
  for (const std::string& name : {std::string(), model}) {
    const auto found = models.find(name);
    if (found == models.end()) continue;
    // Names and ranges were checked when the configuration was read.
    for (const auto& [field, value] : found->second) ipc::set_sampling(field, value, &settings);
  }
  return settings;
}

WorkerConfig Config::worker_of(const std::string& model) const {
  WorkerConfig out = worker;
  const auto found = models.find(model);
  if (found == models.end()) return out;
  const ModelConfig& own = found->second;
  out.device = own.device.value_or(out.device);
  out.numerics = own.numerics.value_or(out.numerics);
  out.mapping = own.mapping.value_or(out.mapping);
  out.weight_bytes = own.weight_bytes.value_or(out.weight_bytes);
  out.kv_type = own.kv_type.value_or(out.kv_type);
  out.kv_bytes = own.kv_bytes.value_or(out.kv_bytes);
  out.context_length = own.context_length.value_or(out.context_length);
  out.draft = own.draft.value_or(out.draft);
  return out;
}

std::vector<std::string> Config::devices_of(const std::string& model) const {
  const auto found = models.find(model);
  if (found == models.end()) return {};
  return found->second.devices.value_or(std::vector<std::string>());
}

std::vector<std::string> Config::stages_of(const std::string& model) const {
  const auto found = models.find(model);
  if (found == models.end()) return {};
  if (found->second.experts) return {worker_of(model).device, *found->second.experts};
  if (found->second.split) return *found->second.split;
  std::vector<std::string> out = found->second.stages.value_or(std::vector<std::string>());
  if (!stages_are_auto(model)) return out;
  out.clear();
  std::string cpu = "cpu";
  for (const auto& [name, device] : devices) {
    if (device.kind == "cpu") cpu = name;
    if (device.kind.starts_with("cuda")) out.push_back(name);
  }
  if (out.empty()) out = {"cuda:0"};
  out.push_back(cpu);
  return out;
}

bool Config::experts_apart(const std::string& model) const {
  const auto found = models.find(model);
  return found != models.end() && found->second.experts.has_value();
}

bool Config::is_split(const std::string& model) const {
  const auto found = models.find(model);
  return found != models.end() && found->second.split.has_value();
}

bool Config::stages_are_auto(const std::string& model) const {
  const auto found = models.find(model);
  return found != models.end() && found->second.stages == std::vector<std::string>{"auto"};
}

DeviceConfig Config::device(const std::string& name) const {
  const auto found = devices.find(name);
  if (found != devices.end()) return found->second;
  DeviceConfig plain;
  plain.kind = name;
  return plain;
}

int64_t Config::keep_alive_ms(const std::string& model) const {
  const auto found = models.find(model);
  if (found == models.end()) return residency.keep_alive_ms;
  return found->second.keep_alive_ms.value_or(residency.keep_alive_ms);
}

Result<void> apply_toml(std::string_view text, std::string_view source, Config* config) {
  HEARTH_ASSIGN_OR_RETURN(const toml::table root, parse(text, source));
  // Apply to a copy: a file with an error changes nothing.
  Config changed = *config;
  HEARTH_TRY(read_root(root, source, &changed));
  *config = std::move(changed);
  return {};
}

namespace {

// The file names programs that the daemon runs, so a user that can write it can act as the daemon.
Result<void> check_writers(const fs::path& file) {
  struct stat info {};
  if (::stat(file.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return {};
  const auto refused = [&](std::string_view why) {
    return Error::forbidden(fmt::format("{}: {}", file.string(), why));
  };
  if (info.st_uid != 0 && info.st_uid != ::geteuid()) {
    return refused(fmt::format("belongs to uid {}, want root or uid {}", info.st_uid, ::geteuid()));
  }
  const bool group_writes =
      (info.st_mode & S_IWGRP) != 0 && info.st_gid != 0 && info.st_gid != ::getegid();
  if (group_writes || (info.st_mode & S_IWOTH) != 0) {
    return refused(
        fmt::format("has mode {:04o}: others may write it; chmod go-w", info.st_mode & 07777));
  }
  return {};
}

}  // namespace

Result<void> apply_file(const fs::path& file, Config* config) {
  HEARTH_TRY(check_writers(file));
  std::ifstream in(file, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  if (!in.is_open() || in.bad()) {
    return Error::io(fmt::format("{}: cannot be read", file.string()));
  }
  return apply_toml(text, file.string(), config);
}

Result<void> apply_assignment(std::string_view assignment, Config* config) {
  const size_t equals = assignment.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    return Error::invalid(fmt::format("--set {}: want section.key=value", assignment));
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
    config->sources["server.runtime_dir"] = "environment HEARTH_RUNTIME_DIR";
  }
  if (!environment.variable("HEARTH_STATE_DIR").empty()) {
    config->server.state_dir = paths.state;
    config->sources["server.state_dir"] = "environment HEARTH_STATE_DIR";
  }
  if (!environment.variable("HEARTH_MODEL_DIRS").empty()) {
    config->server.model_dirs = paths.model_dirs;
    config->sources["server.model_dirs"] = "environment HEARTH_MODEL_DIRS";
  }
  const std::string level = environment.variable("HEARTH_LOG");
  if (!level.empty() && !parse_log_level(level, &config->server.log_level)) {
    return Error::invalid(
        fmt::format("HEARTH_LOG is \"{}\", want debug, info, warn or error", level));
  }
  if (!level.empty()) config->sources["server.log_level"] = "environment HEARTH_LOG";
  return {};
}

fs::path program_dir() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  return error ? fs::path{} : program.parent_path();
}

}  // namespace hearth::broker
