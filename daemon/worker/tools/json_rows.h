#pragma once
// A JSON array with one element per element of a range.

#include "ipc/wire/json.h"

namespace hearth::worker {

template <class Range, class Fn>
ipc::Json json_rows(const Range& range, const Fn& row) {
  ipc::Json out = ipc::Json::array();
  for (const auto& each : range) out.push_back(row(each));
  return out;
}

}  // namespace hearth::worker
