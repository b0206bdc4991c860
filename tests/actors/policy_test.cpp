#include "actors/pipeline/policy.hpp"

#include "runtime/error.hpp"

#include <doctest/doctest.h>

#include <string>

using namespace ranvier;
using actors::Direction;
using actors::next_direction;
using actors::PipelineProgress;
using actors::Policy;

namespace {

/// What a stage does if whatever it wants next is always there.
std::string order(Policy policy, int stage, int stages, int microbatches, int limit) {
  std::string done;
  PipelineProgress p{.stage = stage, .stages = stages, .microbatches = microbatches, .limit = limit};
  while (p.backwards < microbatches) {
    p.forward_ready = p.forwards < microbatches && p.forwards - p.backwards < limit;
    p.backward_ready = p.backwards < p.forwards;
    const Direction direction = next_direction(policy, p);
    if (direction == Direction::none) return done + "!";
    done += direction == Direction::forward ? 'F' : 'B';
    ++(direction == Direction::forward ? p.forwards : p.backwards);
  }
  return done;
}

}  // namespace

TEST_CASE("1F1B fills the pipeline, alternates and drains") {
  CHECK(order(Policy::one_f_one_b, 0, 3, 5, 3) == "FFFBFBFBBB");
  CHECK(order(Policy::one_f_one_b, 1, 3, 5, 3) == "FFBFBFBFBB");
  CHECK(order(Policy::one_f_one_b, 2, 3, 5, 3) == "FBFBFBFBFB");
}

TEST_CASE("1F1B keeps no more in flight than the pipeline limit") {
  CHECK(order(Policy::one_f_one_b, 0, 4, 3, 1) == "FBFBFB");
  CHECK(order(Policy::one_f_one_b, 0, 4, 4, 2) == "FFBFBFBB");
}

TEST_CASE("GPipe runs all forward passes first, in waves of the pipeline limit") {
  CHECK(order(Policy::gpipe, 0, 2, 3, 3) == "FFFBBB");
  CHECK(order(Policy::gpipe, 0, 2, 5, 2) == "FFBBFFBBFB");
}

TEST_CASE("1F1B and GPipe wait for what is next even if the other direction could go") {
  PipelineProgress p{.stage = 0, .stages = 2, .microbatches = 4, .limit = 4, .forwards = 2, .backwards = 0};
  p.forward_ready = true;
  CHECK(next_direction(Policy::one_f_one_b, p) == Direction::none);
  CHECK(next_direction(Policy::gpipe, p) == Direction::forward);
  p.forward_ready = false;
  p.backward_ready = true;
  CHECK(next_direction(Policy::gpipe, p) == Direction::none);
}

TEST_CASE("message-driven runs whatever arrived, gradients first") {
  PipelineProgress p{.stage = 1, .stages = 3, .microbatches = 4, .limit = 3, .forwards = 2, .backwards = 0};
  CHECK(next_direction(Policy::message_driven, p) == Direction::none);
  p.forward_ready = true;
  CHECK(next_direction(Policy::message_driven, p) == Direction::forward);
  p.backward_ready = true;
  CHECK(next_direction(Policy::message_driven, p) == Direction::backward);
}

TEST_CASE("a policy that does not exist is refused with the ones that do") {
  CHECK_THROWS_WITH_AS((void)actors::policy_from("zigzag"), doctest::Contains("message-driven, 1f1b or gpipe"),
                       Error);
}
