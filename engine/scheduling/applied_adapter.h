#pragma once
// An adapter of a live request.

#include <compare>
#include <cstdint>
#include <memory>
#include <string>

namespace hearth::engine {

/// An adapter in the device's memory (engine/steps/adapter_pool.h).
struct LoadedAdapter {
  std::string name;    ///< of its file when it was loaded
  std::string digest;  ///< of its file's content
  int32_t number = 0;  ///< models::Model::add_adapter
  uint64_t bytes = 0;
};

/// Owned together with the pool, which removes an adapter that no request holds.
struct AppliedAdapter {
  std::shared_ptr<const LoadedAdapter> adapter;
  float scale = 1;  ///< not 0

  bool operator==(const AppliedAdapter&) const = default;
  /// An order in which rows with the same adapters are next to each other.
  std::partial_ordering operator<=>(const AppliedAdapter& other) const {
    const auto numbers = adapter->number <=> other.adapter->number;
    return numbers != 0 ? numbers : scale <=> other.scale;
  }
};

}  // namespace hearth::engine
