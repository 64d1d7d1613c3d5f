#include "ipc/text/adapter_names.h"

#include <doctest/doctest.h>

#include <string>

namespace hearth::ipc {
namespace {

using Choices = std::vector<AdapterChoice>;

Error refused(const std::string& text) {
  INFO(text);
  const Result<Choices> parsed = parse_adapters(text);
  REQUIRE_FALSE(parsed.ok());
  CHECK(parsed.error().code == ErrorCode::kInvalidArgument);
  CHECK(parsed.error().field == "adapter");
  return parsed.error();
}

TEST_CASE("adapter names: one, several, with scales and without") {
  CHECK(parse_adapters("").value().empty());
  CHECK(parse_adapters("style").value() == Choices{{"style", 1}});
  CHECK(parse_adapters("style=0.5").value() == Choices{{"style", 0.5f}});
  CHECK(parse_adapters("a=-2,b c,d=1e-3").value() == Choices{{"a", -2}, {"b c", 1}, {"d", 1e-3f}});
  CHECK(parse_adapters("x=y=0").value() == Choices{{"x=y", 0}});
  CHECK(parse_adapters("a,a").value().size() == 2);
}

TEST_CASE("adapter names: the part that is wrong is named") {
  CHECK(refused("=1").message == "adapter: met \"=1\", want NAME or NAME=SCALE");
  CHECK(refused(",").message == "adapter: met \"\", want NAME or NAME=SCALE");
  CHECK(refused("a,").message == "adapter: met \"\", want NAME or NAME=SCALE");
  CHECK(refused("a,,b").message == "adapter: met \"\", want NAME or NAME=SCALE");
  CHECK(refused("a=").message == "adapter: met \"a=\", want a scale of -100 to 100 after =");
  for (const char* scale : {"a=x", "a=1x", "a=inf", "a=nan", "a=101", "a=-1e30", "a= 1", "a=+1"}) {
    CHECK(refused(scale).message.find("want a scale of -100 to 100") != std::string::npos);
  }
  CHECK(refused("a,b,c,d,e").message.find("want at most 4 names") != std::string::npos);
  CHECK(refused(std::string("\xff=")).message.find('\xff') == std::string::npos);
}

}  // namespace
}  // namespace hearth::ipc
