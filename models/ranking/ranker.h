#pragma once
// A model that scores how well a document answers a query (a reranker): the form in which it reads
// the pair, and the classifier of one of its rows.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/result.h"
#include "models/pooling.h"
#include "models/ranking/classifier.h"
#include "models/tokenizer/tokenizer.h"

namespace hearth::models {

class GgufFile;

/// Immutable.
class Ranker {
 public:
  /// Null if the file's pooling is not "rank". kCorrupt names an ill-shaped tensor; kUnsupported
  /// names what is missing: the classifier, the form of pairs, or token types in pairs.
  static Result<std::shared_ptr<const Ranker>> load(const GgufFile& file,
                                                    const Tokenizer& tokenizer);

  /// The pair as the model reads it: BOS, query, end, document, end; or the file's template. Words
  /// never become control tokens.
  std::vector<int32_t> tokens(const Tokenizer& tokenizer, std::string_view query,
                              std::string_view document, EncodePause* pause) const;

  /// Which row of the pair is scored.
  Pooling row() const { return row_; }
  const Classifier& classifier() const { return classifier_; }

 private:
  Result<void> load_form(const GgufFile& file, const Tokenizer& tokenizer);

  Classifier classifier_;
  Pooling row_ = Pooling::kCls;
  std::optional<int32_t> end_{};     ///< of each text
  bool doubled_ = false;             ///< two of them between the texts
  std::vector<std::string> form_{};  ///< the template's texts around the places
  std::vector<bool> places_{};       ///< between them: whether it is the query's
};

}  // namespace hearth::models
