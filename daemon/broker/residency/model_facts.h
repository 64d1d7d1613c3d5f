#pragma once
// Facts from the heads of model files, for listings of models that were never loaded. A worker
// program reads each file, one after the other: a damaged file can end that program and not the
// broker. Owned by the io thread.

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "daemon/broker/process/program_runs.h"
#include "daemon/broker/residency/model_directory.h"
#include "ipc/schema/worker_messages.h"

namespace hearth::broker {

class ModelFacts {
 public:
  ModelFacts(boost::asio::io_context& io, std::filesystem::path program);

  /// Reads those of `models` that were not read since they changed, and forgets the files that are
  /// not among them. Call a few times a second; what is known already costs a comparison each.
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

/// The facts in the last line of what `describe` printed; its log may be in front of it.
std::optional<ipc::FileFacts> parse_description(std::string_view output);

}  // namespace hearth::broker
