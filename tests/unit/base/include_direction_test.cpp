// Reads every #include of the tree and fails if a room includes one that the table below does not
// allow. The table is the map of the house: rooms may include rooms above their own line, never
// below.

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/paths.h"

namespace fs = std::filesystem;

namespace {

struct Room {
  std::string name;  ///< a folder with everything in it that has no line of its own, or one file
  std::vector<std::string> may_see;
};

// From the bottom up: a room may see only rooms above its own line.
const std::vector<Room> kRooms = {
    {"kernels/base", {}},
    {"kernels/database", {"kernels/base"}},
    {"kernels", {"kernels/base"}},
    {"kernels/host", {"kernels/base"}},
    {"kernels/quant", {"kernels", "kernels/base"}},
    {"kernels/reference", {"kernels", "kernels/base", "kernels/host", "kernels/quant"}},
    {"kernels/cpu/simd", {"kernels"}},
    {"kernels/cpu",
     {"kernels", "kernels/base", "kernels/cpu/simd", "kernels/host", "kernels/quant",
      "kernels/reference"}},
    {"kernels/cuda", {"kernels", "kernels/base", "kernels/host", "kernels/quant"}},

    {"models/gguf", {"kernels", "kernels/base", "kernels/quant"}},
    {"models/safetensors", {"kernels", "kernels/base", "models/gguf"}},
    {"models/quantize",
     {"kernels", "kernels/base", "kernels/host", "kernels/quant", "models/gguf"}},
    {"models/tokenizer/vocabulary", {"kernels/base", "models/gguf"}},
    {"models/tokenizer/tokenizer.h", {"kernels/base", "models/tokenizer/vocabulary"}},
    {"models/tokenizer/text", {"kernels/base", "models/gguf", "models/tokenizer/tokenizer.h"}},
    {"models/tokenizer/pretokenizer", {"models/tokenizer/text"}},
    {"models/tokenizer/kinds",
     {"kernels/base", "models/gguf", "models/tokenizer/pretokenizer", "models/tokenizer/text",
      "models/tokenizer/tokenizer.h", "models/tokenizer/vocabulary"}},
    {"models/tokenizer",
     {"kernels/base", "models/gguf", "models/tokenizer/kinds", "models/tokenizer/text",
      "models/tokenizer/tokenizer.h"}},
    {"models/template",
     {"kernels/base", "models/gguf", "models/tokenizer/text", "models/tokenizer/tokenizer.h",
      "models/tokenizer/vocabulary"}},
    {"models/answer", {"models/template"}},
    {"models/convert",
     {"kernels", "kernels/base", "kernels/quant", "models/gguf", "models/safetensors",
      "models/tokenizer/kinds", "models/tokenizer/pretokenizer", "models/tokenizer/text",
      "models/tokenizer/vocabulary"}},
    {"models/pooling.h", {}},
    {"models/canvas.h", {}},
    {"models/share.h", {"kernels"}},
    {"models/model.h",
     {"kernels", "kernels/base", "models/canvas.h", "models/pooling.h", "models/share.h"}},
    {"models/weights",
     {"kernels", "kernels/base", "kernels/quant", "models/gguf", "models/model.h",
      "models/pooling.h"}},
    {"models/ranking",
     {"kernels", "kernels/base", "kernels/quant", "models/gguf", "models/pooling.h",
      "models/tokenizer/text", "models/tokenizer/tokenizer.h", "models/weights"}},
    {"models/decoder",
     {"kernels", "kernels/base", "models/gguf", "models/model.h", "models/weights"}},
    {"models/encoder",
     {"kernels", "kernels/base", "models/model.h", "models/pooling.h", "models/weights"}},
    {"models/families", {"kernels/base", "models/decoder", "models/encoder", "models/model.h"}},
    {"models/divided_kv.h", {"kernels", "kernels/base", "models/model.h"}},
    {"models",
     {"kernels", "kernels/base", "kernels/host", "models/divided_kv.h", "models/families",
      "models/gguf", "models/model.h", "models/pooling.h", "models/quantize"}},

    {"engine/config.h", {"kernels"}},
    {"engine/cost", {"kernels/base"}},
    {"engine/kv", {"engine/config.h", "engine/cost", "kernels/base", "models/model.h"}},
    {"engine/store", {"engine/kv", "kernels/base", "kernels/database"}},
    {"engine", {"engine/store", "kernels/base", "models/canvas.h", "models/pooling.h"}},
    {"engine/sampling",
     {"engine", "kernels", "kernels/base", "models/canvas.h", "models/pooling.h",
      "models/tokenizer/tokenizer.h"}},
    {"engine/grammar",
     {"kernels/base", "models/answer", "models/template", "models/tokenizer/text"}},
    {"engine/scheduling",
     {"engine", "engine/config.h", "engine/cost", "engine/kv", "engine/sampling", "kernels/base"}},
    {"engine/steps",
     {"engine", "engine/kv", "engine/scheduling", "engine/store", "kernels", "kernels/base",
      "models/divided_kv.h", "models/gguf", "models/model.h"}},
    {"engine/tiers",
     {"engine/config.h", "engine/cost", "engine/kv", "engine/scheduling", "engine/steps",
      "engine/store", "kernels/base"}},
    {"engine/speculation",
     {"engine/config.h", "engine/cost", "engine/kv", "engine/sampling", "engine/scheduling",
      "engine/steps", "kernels/base", "models/tokenizer/tokenizer.h"}},
    {"engine/engine.h",
     {"engine", "engine/config.h", "engine/cost", "engine/kv", "engine/speculation", "kernels",
      "kernels/base", "models/model.h"}},
    {"engine/loop",
     {"engine/cost", "engine/engine.h", "engine/grammar", "engine/kv", "engine/sampling",
      "engine/scheduling", "engine/speculation", "engine/steps", "engine/tiers", "kernels/base"}},

    {"ipc/schema", {"kernels/base"}},
    {"ipc/text", {"ipc/schema", "kernels/base"}},
    {"ipc/files", {"ipc/text", "kernels/base"}},
    {"ipc/wire", {"ipc/files", "ipc/schema", "ipc/text", "kernels/base"}},
    {"ipc/client", {"ipc/files", "ipc/schema", "ipc/wire", "kernels/base"}},
    {"ipc/cli/exit_code.h", {}},
    {"ipc/cli/terminal", {"ipc/cli/exit_code.h", "ipc/schema", "ipc/text", "kernels/base"}},
    {"ipc/cli/connect",
     {"ipc/cli/exit_code.h", "ipc/cli/terminal", "ipc/client", "ipc/files", "ipc/text", "ipc/wire",
      "kernels/base"}},
    {"ipc/cli/answer",
     {"ipc/cli/connect", "ipc/cli/terminal", "ipc/client", "ipc/files", "ipc/schema", "ipc/text",
      "ipc/wire", "kernels/base"}},
    {"ipc/cli/doctor", {"ipc/wire", "kernels/base"}},
    {"ipc/cli/chat",
     {"ipc/cli/answer", "ipc/cli/connect", "ipc/cli/terminal", "ipc/client", "ipc/files",
      "ipc/text", "ipc/wire", "kernels/base"}},
    {"ipc/cli/replay",
     {"ipc/cli/terminal", "ipc/client", "ipc/schema", "ipc/wire", "kernels/base"}},
    {"ipc/cli/verbs",
     {"ipc/cli/answer", "ipc/cli/chat", "ipc/cli/connect", "ipc/cli/doctor", "ipc/cli/exit_code.h",
      "ipc/cli/replay", "ipc/cli/terminal", "ipc/client", "ipc/files", "ipc/schema", "ipc/text",
      "ipc/wire", "kernels/base"}},
    {"ipc/cli/pull",
     {"ipc/cli/exit_code.h", "ipc/cli/terminal", "ipc/files", "ipc/schema", "ipc/text",
      "kernels/base"}},
    {"ipc/cli",
     {"ipc/cli/connect", "ipc/cli/exit_code.h", "ipc/cli/terminal", "ipc/cli/verbs", "ipc/schema",
      "ipc/text", "kernels/base"}},
    {"monitor/snapshot",
     {"ipc/client", "ipc/files", "ipc/schema", "ipc/text", "ipc/wire", "kernels/base"}},
    {"monitor/commands", {"ipc/client", "ipc/files", "ipc/text", "kernels/base"}},
    {"monitor/draw", {"ipc/schema", "kernels/base", "monitor/commands", "monitor/snapshot"}},
    {"monitor/panels", {"ipc/text", "kernels/base", "monitor/draw"}},
    {"monitor/window",
     {"ipc/client", "ipc/text", "kernels/base", "monitor/commands", "monitor/draw",
      "monitor/panels", "monitor/snapshot"}},
    {"monitor",
     {"ipc/client", "ipc/schema", "kernels/base", "monitor/commands", "monitor/snapshot",
      "monitor/window"}},

    {"daemon/worker/observe",
     {"engine/kv", "engine/steps", "ipc/schema", "ipc/text", "kernels/base"}},
    {"daemon/worker/load",
     {"daemon/worker/observe", "engine/cost", "engine/engine.h", "engine/kv", "ipc/files",
      "ipc/schema", "ipc/wire", "kernels", "kernels/base", "kernels/cuda", "kernels/host", "models",
      "models/canvas.h", "models/gguf", "models/model.h", "models/tokenizer/tokenizer.h"}},
    {"daemon/worker/text",
     {"engine", "engine/grammar", "ipc/files", "ipc/schema", "ipc/text", "ipc/wire", "kernels/base",
      "models/answer", "models/gguf", "models/template", "models/tokenizer/tokenizer.h"}},
    {"daemon/worker/serve",
     {"daemon/worker/load",
      "daemon/worker/observe",
      "daemon/worker/text",
      "engine",
      "engine/engine.h",
      "engine/kv",
      "engine/speculation",
      "engine/store",
      "ipc/files",
      "ipc/schema",
      "ipc/text",
      "ipc/wire",
      "kernels/base",
      "models",
      "models/gguf",
      "models/model.h",
      "models/ranking",
      "models/template",
      "models/tokenizer/text",
      "models/tokenizer/tokenizer.h"}},
    {"daemon/worker/tools",
     {"daemon/worker/load",
      "daemon/worker/text",
      "engine",
      "engine/engine.h",
      "engine/kv",
      "engine/speculation",
      "engine/store",
      "ipc/files",
      "ipc/schema",
      "ipc/text",
      "ipc/wire",
      "kernels",
      "kernels/base",
      "kernels/host",
      "models",
      "models/answer",
      "models/convert",
      "models/gguf",
      "models/model.h",
      "models/quantize",
      "models/template",
      "models/tokenizer/tokenizer.h",
      "models/weights"}},
    {"daemon/worker",
     {"daemon/worker/load", "daemon/worker/serve", "daemon/worker/tools", "ipc/schema", "ipc/wire",
      "kernels/base"}},

    {"daemon/http/reasoning_seal.h", {}},
    {"daemon/http/item_page.h", {}},
    {"daemon/http/batch.h", {"daemon/http/item_page.h", "kernels/base"}},
    {"daemon/http/requests",
     {"daemon/http/batch.h", "daemon/http/reasoning_seal.h", "ipc/schema", "ipc/text", "ipc/wire",
      "kernels/base"}},
    {"daemon/http/kept_response.h", {}},
    {"daemon/http/model_traffic.h", {}},
    {"daemon/http/answers",
     {"daemon/http/batch.h", "daemon/http/item_page.h", "daemon/http/kept_response.h",
      "daemon/http/model_traffic.h", "daemon/http/requests", "ipc/files", "ipc/schema", "ipc/text",
      "ipc/wire", "kernels/base"}},
    {"daemon/http",
     {"daemon/http/answers", "daemon/http/batch.h", "daemon/http/kept_response.h",
      "daemon/http/model_traffic.h", "daemon/http/reasoning_seal.h", "daemon/http/requests",
      "ipc/schema", "ipc/wire", "kernels/base"}},
    {"daemon/broker/config",
     {"daemon/http", "daemon/http/requests", "ipc/files", "ipc/schema", "ipc/text", "ipc/wire",
      "kernels/base"}},
    {"daemon/broker/process", {"ipc/files", "kernels/base"}},
    {"daemon/broker/residency",
     {"daemon/broker/config", "daemon/broker/process", "ipc/files", "ipc/schema", "ipc/text",
      "ipc/wire", "kernels/base"}},
    {"daemon/broker/transport",
     {"daemon/broker/config", "daemon/broker/process", "ipc/files", "ipc/schema", "ipc/wire",
      "kernels/base"}},
    {"daemon/broker/remote",
     {"daemon/broker/config", "daemon/http/requests", "ipc/schema", "ipc/text", "ipc/wire",
      "kernels/base"}},
    {"daemon/broker/requests",
     {"daemon/broker/config", "daemon/broker/process", "daemon/broker/remote",
      "daemon/broker/residency", "daemon/broker/transport", "daemon/http/model_traffic.h",
      "ipc/files", "ipc/schema", "ipc/text", "ipc/wire", "kernels/base"}},
    {"daemon/broker/state", {"kernels/base", "kernels/database"}},
    {"daemon/broker/responses",
     {"daemon/broker/process", "daemon/broker/state", "daemon/http/kept_response.h", "kernels/base",
      "kernels/database"}},
    {"daemon/broker/batches",
     {"daemon/broker/process", "daemon/broker/state", "daemon/http/batch.h", "kernels/base"}},
    {"daemon/broker/observe",
     {"daemon/broker/batches", "daemon/broker/config", "daemon/broker/requests",
      "daemon/broker/residency", "daemon/broker/responses", "daemon/broker/transport",
      "daemon/http/model_traffic.h", "ipc/client", "ipc/schema", "kernels/base"}},
    {"daemon/broker",
     {"daemon/broker/batches", "daemon/broker/config", "daemon/broker/observe",
      "daemon/broker/process", "daemon/broker/remote", "daemon/broker/requests",
      "daemon/broker/residency", "daemon/broker/responses", "daemon/broker/transport",
      "daemon/http", "ipc/files", "ipc/schema", "ipc/wire", "kernels/base"}},
};

/// The index in kRooms of the room that contains the file; -1 if none does.
int room_of(const std::string& path) {
  int best = -1;
  size_t length = 0;
  for (size_t i = 0; i < kRooms.size(); ++i) {
    const std::string& name = kRooms[i].name;
    const bool inside = path == name || path.rfind(name + "/", 0) == 0;
    if (inside && name.size() >= length) {
      best = static_cast<int>(i);
      length = name.size();
    }
  }
  return best;
}

/// What a line includes, after the opening character: "<cstdint", "\"kernels/ops.h"; empty for
/// every other line.
std::string included_by(std::string_view line) {
  const auto skip_blanks = [&line] {
    while (!line.empty() && (line.front() == ' ' || line.front() == '\t')) line.remove_prefix(1);
  };
  skip_blanks();
  if (line.empty() || line.front() != '#') return "";
  line.remove_prefix(1);
  skip_blanks();
  constexpr std::string_view kInclude = "include";
  if (line.substr(0, kInclude.size()) != kInclude) return "";
  line.remove_prefix(kInclude.size());
  skip_blanks();
  if (line.empty() || (line.front() != '<' && line.front() != '"')) return "";
  const size_t end = line.find_first_of(">\"", 1);
  return end == std::string_view::npos ? "" : std::string(line.substr(0, end));
}

TEST_CASE("the table of rooms points down") {
  for (size_t i = 0; i < kRooms.size(); ++i) {
    for (const std::string& seen : kRooms[i].may_see) {
      const int place = room_of(seen);
      CHECK_MESSAGE((place >= 0 && place < static_cast<int>(i) && kRooms[place].name == seen),
                    kRooms[i].name << " sees " << seen);
    }
  }
}

TEST_CASE("rooms include what the table allows") {
  const fs::path root = hearth::tests::source_dir();
  int files = 0;
  std::set<std::pair<int, int>> used;
  for (const char* top : {"kernels", "models", "engine", "ipc", "daemon", "monitor"}) {
    if (!fs::exists(root / top)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root / top)) {
      const std::string ext = entry.path().extension().string();
      if (ext != ".h" && ext != ".cpp" && ext != ".cu" && ext != ".cuh") continue;
      const std::string path = fs::relative(entry.path(), root).string();
      const int room = room_of(path);
      REQUIRE_MESSAGE(room >= 0, path << " is in no room of the table");
      ++files;
      std::ifstream in(entry.path());
      std::string line;
      for (int number = 1; std::getline(in, line); ++number) {
        const std::string included = included_by(line);
        if (included.empty()) continue;
        const std::string target = included.substr(1);
        if (included.front() == '<') {
          const bool cuda = target.rfind("cuda", 0) == 0 || target.rfind("cublas", 0) == 0 ||
                            target.rfind("nvml", 0) == 0;
          CHECK_MESSAGE((!cuda || path.rfind("kernels/cuda/", 0) == 0),
                        path << ":" << number << " " << line);
          continue;
        }
        CHECK_MESSAGE(fs::exists(root / target),
                      path << ":" << number << " does not include from the root: " << target);
        const int target_room = room_of(target);
        REQUIRE_MESSAGE(target_room >= 0, target << " is in no room of the table");
        if (target_room == room) continue;
        used.insert({room, target_room});
        const std::vector<std::string>& allowed = kRooms[room].may_see;
        CHECK_MESSAGE(
            std::find(allowed.begin(), allowed.end(), kRooms[target_room].name) != allowed.end(),
            path << ":" << number << " may not include " << target);
      }
    }
  }
  CHECK(files > 10);
  // An unused arrow must leave the table.
  for (size_t i = 0; i < kRooms.size(); ++i) {
    for (const std::string& seen : kRooms[i].may_see) {
      CHECK_MESSAGE(used.count({static_cast<int>(i), room_of(seen)}) == 1,
                    kRooms[i].name << " includes nothing of " << seen);
    }
  }
}

}  // namespace
