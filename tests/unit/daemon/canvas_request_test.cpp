#include "daemon/worker/serve/canvas_request.h"

#include <doctest/doctest.h>

#include "tests/unit/daemon/prep_fixture.h"

namespace hearth::worker {
namespace {

TEST_CASE("a canvas has the request's steps, blocks and rule, else the model's") {
  Fixture f;
  ipc::WorkerRequest in = Fixture::request("the abc");
  CHECK_FALSE(f.good(in).canvas);
  in.generate().steps = 3;
  CHECK(f.bad(in).field == "steps");
  CHECK(f.bad(in).code == ErrorCode::kUnsupported);
  f.model.canvas = {.mask_token = 4, .steps = 6, .block_length = 5};
  CHECK(f.good(in).canvas->steps == 3);
  CHECK(f.good(in).canvas->block_length == 5);
  CHECK(f.good(in).canvas->remasking == models::Remasking::kConfidence);
  in.generate().steps = 0;
  in.generate().block_length = 100;
  in.generate().remasking = "margin";
  CHECK(f.good(in).canvas->steps == 6);
  CHECK(f.good(in).canvas->block_length == 8);  // no longer than the canvas
  CHECK(f.good(in).canvas->remasking == models::Remasking::kMargin);
  // A model without its own: one pass for each token, one block.
  f.model.canvas = {.mask_token = 4};
  in.generate().block_length = 0;
  CHECK(f.good(in).canvas->steps == 8);
  CHECK(f.good(in).canvas->block_length == 8);
  in.generate().logprobs = 0;
  CHECK(f.bad(in).field == "logprobs");
  in.generate().logprobs = -1;
  in.generate().regex = "a";
  CHECK(f.bad(in).field == "regex");
}

}  // namespace
}  // namespace hearth::worker
