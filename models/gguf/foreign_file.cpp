#include "models/gguf/foreign_file.h"

#include <algorithm>
#include <string_view>

#include "kernels/base/chars.h"

namespace hearth::models {
namespace {

constexpr size_t kHead = 512;

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = ascii_lower(c);
  return out;
}

}  // namespace

std::string describe_foreign_file(std::span<const std::byte> content) {
  if (content.empty()) return "the file is empty: a download that did not begin? Fetch it again";
  const std::string_view all(reinterpret_cast<const char*>(content.data()),
                             std::min(content.size(), kHead));
  std::string_view head = all;
  if (head.starts_with("\xEF\xBB\xBF")) head.remove_prefix(3);
  head.remove_prefix(std::min(head.find_first_not_of(" \t\r\n"), head.size()));
  const std::string text = lower(head);
  if (text.starts_with("<!doctype html") || text.starts_with("<html")) {
    return "this is a web page (HTML), not a model file: fetch the file itself; on Hugging Face by "
           "its address with /resolve/ instead of /blob/, or by hearth pull hf:OWNER/REPO/FILE";
  }
  if (text.starts_with("version https://git-lfs")) {
    return "this is a Git LFS pointer, not the file that it stands for: git lfs pull fetches that, "
           "or hearth pull";
  }
  if (all.starts_with("PK\x03\x04")) {
    return "this is a zip archive (PyTorch weights are such), not a GGUF file: fetch the model as "
           "GGUF, or as safetensors and use hearth convert";
  }
  if (all.size() > 9 && all[8] == '{' && all.substr(4, 4) == std::string_view("\0\0\0\0", 4)) {
    return "this is a safetensors file: hearth convert FOLDER OUT.gguf makes a model file of it "
           "and "
           "of the config.json and tokenizer.json next to it";
  }
  if (text.starts_with('<') || text.starts_with('{')) {
    return "this is text, perhaps what a server answered instead of the file: fetch it again";
  }
  if (std::ranges::all_of(all, [](char c) { return c == '\0'; })) {
    return "the file begins with zeros: a download that was not finished? Fetch it again";
  }
  return "";
}

}  // namespace hearth::models
