#pragma once
// Facts from the headers of model files, for listings of models that were never loaded. A worker
// program reads one file at a time, so a damaged file can crash that program but not the broker.
// Owned by the io thread.

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/broker/process/program_runs.h"
#include "daemon/broker/residency/model_directory.h"
#include "ipc/schema/worker_messages.h"

namespace hearth::broker {

class ModelFacts {
 public:
  ModelFacts(boost::asio::io_context& io, std::filesystem::path program);

  /// Reads the files of `models` that are new or changed and forgets all other files. Call a few
  /// times a second; a known file costs one comparison.
  void refresh(const std::map<std::string, ModelFile>& models);
  /// Null: not read yet, or not a model file.
  const ipc::FileFacts* find(const ModelFile& model) const;

 private:
  struct Known {
    uint64_t bytes = 0;
    int64_t changed_ns = 0;
    std::optional<ipc::FileFacts> facts;
  };
  void start_next();

  const std::filesystem::path program_;
  std::map<std::filesystem::path, Known> known_;
  std::deque<std::filesystem::path> to_read_;
  ProgramRuns runs_;
};

/// What a model can do. The worker's `tool_form` hermes adds tools to any chat template.
std::vector<std::string> abilities_of(const ipc::FileFacts& facts, std::string_view tool_form);
/// Parses the last line of the output of `describe`, which may follow log lines.
std::optional<ipc::FileFacts> parse_description(std::string_view output);

}  // namespace hearth::broker
