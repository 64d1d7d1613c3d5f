// Lists the effective settings, each with its source.

#include <fmt/core.h>

#include <algorithm>

#include "daemon/broker/config/config.h"
#include "daemon/broker/config/reload.h"
#include "daemon/broker/config/settings.h"
#include "ipc/text/utf8.h"
#include "kernels/base/chars.h"

namespace hearth::broker {
namespace fs = std::filesystem;
namespace {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : ipc::to_valid_utf8(text)) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte_of(c) < 0x20 || c == 0x7F) {
      out += fmt::format("\\u{:04X}", c);
    } else {
      out += c;
    }
  }
  return out + "\"";
}

// Model names may contain dots and spaces.
std::string as_toml_key(const std::string& key) {
  const bool bare = !key.empty() && std::all_of(key.begin(), key.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  });
  return bare ? key : quoted(key);
}

// Runs the walk of daemon/broker/config/settings.h and records each setting.
class SectionLister {
 public:
  SectionLister(std::string name, const Config& config, std::vector<Setting>* out)
      : name_(std::move(name)), sources_(config.sources), out_(out) {}

  void integer(const char* key, int64_t, int64_t, const int64_t* value) {
    add(key, fmt::format("{}", *value));
  }
  void number(const char* key, double, double, const double* value) {
    // A TOML float needs a decimal point.
    std::string text = fmt::format("{}", *value);
    if (text.find_first_of(".en") == text.npos) text += ".0";
    add(key, text);
  }
  void boolean(const char* key, const bool* value) { add(key, *value ? "true" : "false"); }
  void text(const char* key, const std::string* value) { add(key, quoted(*value)); }
  void choice(const char* key, const std::vector<std::string>&, const std::string* value) {
    add(key, quoted(*value));
  }
  void one_or_two(const char* key, const std::vector<std::string>&, const std::string* value) {
    text(key, value);
  }
  void path(const char* key, const fs::path* value) { add(key, quoted(value->string())); }
  void paths(const char* key, const std::vector<fs::path>* values) {
    std::string list;
    for (const fs::path& value : *values) {
      list += (list.empty() ? "" : ", ") + quoted(value.string());
    }
    add(key, "[" + list + "]");
  }
  void texts(const char* key, const std::vector<std::string>* values) {
    std::string list;
    for (const std::string& value : *values) list += (list.empty() ? "" : ", ") + quoted(value);
    add(key, "[" + list + "]");
  }
  void integers(const char* key, int64_t, int64_t, const std::vector<int32_t>* values) {
    add(key, fmt::format("[{}]", fmt::join(*values, ", ")));
  }
  // Settings that a model has only if they are given.
  void texts(const char* key, const std::optional<std::vector<std::string>>* values) {
    if (*values) texts(key, &**values);
  }
  void texts_or_auto(const char* key, const std::optional<std::vector<std::string>>* values) {
    texts(key, values);
  }
  void integer(const char* key, int64_t min, int64_t max, const std::optional<int64_t>* value) {
    if (*value) integer(key, min, max, &**value);
  }
  void text(const char* key, const std::optional<std::string>* value) {
    if (*value) text(key, &**value);
  }
  void choice(const char* key, const std::vector<std::string>&,
              const std::optional<std::string>* value) {
    if (*value) text(key, &**value);
  }
  void one_or_two(const char* key, const std::vector<std::string>&,
                  const std::optional<std::string>* value) {
    text(key, value);
  }
  void boolean(const char* key, const std::optional<bool>* value) {
    if (*value) boolean(key, &**value);
  }
  void sampling(const std::map<std::string, std::map<std::string, double>>* models) {
    for (const auto& [model, fields] : *models) {
      for (const auto& [field, value] : fields) {
        const auto source =
            sources_.find(name_ + "." + (model.empty() ? field : model + "." + field));
        const std::string key = model.empty() ? field : as_toml_key(model) + "." + field;
        out_->push_back({name_ + "." + key, fmt::format("{}", value),
                         source == sources_.end() ? "default" : source->second});
      }
    }
  }
  void strings(const std::map<std::string, std::string>* values) {
    for (const auto& [key, value] : *values) add(key, quoted(value));
  }

 private:
  void add(const std::string& key, std::string value) {
    const auto source = sources_.find(name_ + "." + key);
    const size_t dot = name_.find('.');  // models.NAME
    const std::string section =
        dot == name_.npos ? name_ : name_.substr(0, dot + 1) + as_toml_key(name_.substr(dot + 1));
    out_->push_back({section + "." + as_toml_key(key), std::move(value),
                     source == sources_.end() ? "default" : source->second});
  }

  std::string name_;
  const std::map<std::string, std::string>& sources_;
  std::vector<Setting>* out_;
};

}  // namespace

std::vector<Setting> list_settings(const Config& config) {
  std::vector<Setting> out;
  Config copy = config;  // the walk takes a mutable config because it can also write
  SectionLister server("server", config, &out), http("http", config, &out),
      limits("limits", config, &out), residency("residency", config, &out),
      worker("worker", config, &out), cache("cache", config, &out),
      cache_owners("cache_owners", config, &out), kv_events("kv_events", config, &out),
      sampling("sampling", config, &out), roles("roles", config, &out);
  visit_server(server, &copy.server);
  visit_http(http, &copy.http);
  visit_limits(limits, &copy.limits);
  visit_residency(residency, &copy.residency);
  visit_worker(worker, &copy.worker);
  visit_cache(cache, &copy.cache);
  visit_cache_owners(cache_owners, &copy.cache.owners);
  visit_kv_events(kv_events, &copy.kv_events);
  visit_sampling(sampling, &copy.sampling);
  for (const auto& [name, remote] : copy.remotes) copy.roles.erase(name);  // `local` has its model
  visit_roles(roles, &copy.roles);
  for (auto& [name, remote] : copy.remotes) {
    SectionLister section("roles." + name, config, &out);
    const auto local = config.roles.find(name);
    std::string model = local == config.roles.end() ? "" : local->second;
    visit_remote(section, &model, &remote);
  }
  for (auto& [name, device] : copy.devices) {
    SectionLister section("devices." + name, config, &out);
    visit_device(section, &device);
  }
  for (auto& [name, model] : copy.models) {
    SectionLister section("models." + name, config, &out);
    visit_model(section, &model);
  }
  for (auto& [name, owner] : copy.owners) {
    SectionLister section("owners." + name, config, &out);
    visit_owner(section, &owner);
  }
  return out;
}

std::string settings_as_toml(const std::vector<Setting>& settings) {
  std::string out, section;
  for (const Setting& setting : settings) {
    const size_t dot = setting.key.find('.');
    if (setting.key.substr(0, dot) != section) {
      section = setting.key.substr(0, dot);
      out += fmt::format("{}[{}]\n", out.empty() ? "" : "\n", section);
    }
    out += fmt::format("{:<40}  # {}{}\n",
                       fmt::format("{} = {}", setting.key.substr(dot + 1), setting.value),
                       ipc::to_valid_utf8(setting.source),
                       is_reloadable(setting.key) ? "" : "; read at start only");
  }
  return out;
}

}  // namespace hearth::broker
