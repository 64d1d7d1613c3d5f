#pragma once
// Tests that need something this machine may lack are shown as skipped, with the reason.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

/// Ends the running test case; ctest shows it as skipped.
#define HEARTH_SKIP(reason)                    \
  do {                                         \
    std::printf("[hearth-skip] %s\n", reason); \
    return;                                    \
  } while (false)

/// The same without a GPU; with HEARTH_REQUIRE_DEVICE=1, which tests/cuda/run_on_device.sh
/// sets, the case fails instead.
#define HEARTH_SKIP_WITHOUT_DEVICE(reason)                                                      \
  do {                                                                                          \
    REQUIRE_MESSAGE(!::hearth::tests::device_required(), "a device is required: " << (reason)); \
    HEARTH_SKIP(reason);                                                                        \
  } while (false)

namespace hearth::tests {

inline bool device_required() {
  const char* required = std::getenv("HEARTH_REQUIRE_DEVICE");
  return required != nullptr && *required == '1';
}

/// A file below HEARTH_TEST_DATA (real models, tokenizers, corpus), or an empty path if the
/// variable is unset or the file missing: then use HEARTH_SKIP.
inline std::filesystem::path test_data(const std::string& relative) {
  const char* root = std::getenv("HEARTH_TEST_DATA");
  if (root == nullptr || *root == '\0') return {};
  std::filesystem::path path = std::filesystem::path(root) / relative;
  return std::filesystem::exists(path) ? path : std::filesystem::path{};
}

/// Counts are reduced by default and full with HEARTH_TEST_FULL=1 (tests/run.sh --full).
inline bool full_counts() {
  const char* full = std::getenv("HEARTH_TEST_FULL");
  return full != nullptr && *full == '1';
}

/// Whether this program was built with AddressSanitizer: some tests then do less, as the released
/// build does all of it and `--full` both.
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

/// First of the seeds that random tests try in addition to their fixed ones; 0: none. .ci/run sets
/// HEARTH_NIGHT_SEED to the date, so that each night tries others.
inline uint64_t night_seed() {
  const char* night = std::getenv("HEARTH_NIGHT_SEED");
  return night != nullptr ? std::strtoull(night, nullptr, 10) * 100'000 : 0;
}

}  // namespace hearth::tests
