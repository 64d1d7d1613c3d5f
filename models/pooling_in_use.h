#pragma once
// The pooling that is used: that of the model's file, or the mean if the file gives none.

#include <string_view>

#include "models/pooling.h"

namespace hearth::models {

constexpr Pooling pooling_in_use(Pooling in_file) {
  return in_file == Pooling::kNone ? Pooling::kMean : in_file;
}

/// "mean", "cls", "last", "rank"; "" for kNone.
constexpr std::string_view name(Pooling pooling) {
  switch (pooling) {
    case Pooling::kNone: return "";
    case Pooling::kMean: return "mean";
    case Pooling::kCls: return "cls";
    case Pooling::kLast: return "last";
    case Pooling::kRank: return "rank";
  }
  return "";
}

}  // namespace hearth::models
