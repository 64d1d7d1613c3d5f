#include "daemon/worker/text/kept_marks.h"

#include <doctest/doctest.h>

namespace hearth::worker {
namespace {

using ipc::Json;

TEST_CASE("cache markers are removed from a conversation, and invalid ones are named") {
  Json conversation = Json::parse(R"({"tools":[{"name":"f","cache_keep_s":60}],
      "messages":[{"role":"system","content":"ab","cache_keep_s":3600,"cache_keep_bytes":1},
                  {"role":"user","content":"c","cache_keep_s":0},
                  {"role":"user","content":"d","cache_keep_s":5}]})");
  const Result<std::vector<KeepMark>> marks = take_marks(conversation);
  REQUIRE(marks.ok());
  REQUIRE(marks->size() == 3);
  CHECK((*marks)[0].message == -1);
  CHECK((*marks)[0].seconds == 60);
  CHECK((*marks)[1].message == 0);
  CHECK((*marks)[1].bytes == 1);
  CHECK((*marks)[2].message == 2);
  CHECK((*marks)[2].bytes == std::string::npos);
  CHECK(conversation.dump() ==
        R"({"tools":[{"name":"f"}],"messages":[{"role":"system","content":"ab"},)"
        R"({"role":"user","content":"c"},{"role":"user","content":"d"}]})");

  const auto refused = [](const char* message) {
    Json bad = {{"messages", Json::array({Json::parse(message)})}};
    const Result<std::vector<KeepMark>> taken = take_marks(bad);
    REQUIRE_FALSE(taken.ok());
    CHECK(taken.error().field == "messages");
    return taken.error().message;
  };
  CHECK(refused(R"({"content":"a","cache_keep_s":-1})") ==
        "messages[0].cache_keep_s: met -1, want an integer from 0 to 2592000");
  CHECK(refused(R"({"content":"a","cache_keep_s":"1h"})").find("a string") != std::string::npos);
  CHECK(refused(R"({"content":"a","cache_keep_bytes":1})").find("without cache_keep_s") !=
        std::string::npos);
  CHECK(refused(R"({"content":[],"cache_keep_s":1,"cache_keep_bytes":1})").find("without a text") !=
        std::string::npos);
  Json many = {{"messages", Json::array()}};
  for (int i = 0; i < 5; ++i) many["messages"].push_back({{"role", "user"}, {"cache_keep_s", 1}});
  CHECK_FALSE(take_marks(many).ok());
}

TEST_CASE("text after a marker is changed for the probe, and nothing else changes") {
  const Json conversation = Json::parse(R"({"messages":[{"role":"system","content":"Be kind."},
      {"role":"user","content":"<b> Zz9 \u00e4","tool_call_id":"call1","name":""},
      {"role":"tool","content":[{"type":"text","text":"y"}],"n":1}]})");
  CHECK(changed_behind(conversation, {0, std::string::npos, 1})["messages"] == Json::parse(R"([
      {"role":"system","content":"Be kind."},
      {"role":"user","content":"x<c> Aa0 \u00e4","tool_call_id":"call1","name":""},
      {"role":"tool","content":[{"type":"text","text":"z"}],"n":1}])"));
  CHECK(changed_behind(conversation, {-1, std::string::npos, 1})["messages"][0]["content"] ==
        "Cf ljoe.");
  CHECK(changed_behind(conversation, {2, std::string::npos, 1}) == conversation);
  const auto cut = [&](size_t bytes) {
    return changed_behind(conversation, {1, bytes, 1})["messages"][1]["content"];
  };
  CHECK(cut(4) == "<b> Aa0 \u00e4");
  CHECK(cut(9) == "<b> Zz9 x\u00e4");  // in the middle of a character: in front of it
  CHECK(cut(10) == conversation["messages"][1]["content"]);
  CHECK(cut(1000) == conversation["messages"][1]["content"]);
}

}  // namespace
}  // namespace hearth::worker
