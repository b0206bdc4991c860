#include "actors/schedule/policy.hpp"

#include "runtime/base/error.hpp"
#include "tests/test.hpp"
#include "tests/words.hpp"

using namespace ranvier;
using namespace ranvier::tests;
using actors::Direction;
using actors::next_direction;
using actors::PipelineProgress;
using actors::Policy;

namespace {

/// Order of a stage's passes if every input is always ready. Slots and deferred slots are free only after earlier
/// weight gradients are done.
std::string order(Policy policy, int stage, int stages, int microbatches, int limit, int deferred = 0) {
  std::string done;
  PipelineProgress p{
      .stage = stage, .stages = stages, .microbatches = microbatches, .limit = limit, .deferred_limit = deferred};
  int& through = deferred > 0 ? p.weights : p.backwards;
  while (through < microbatches) {
    p.forward_ready = p.forwards < microbatches && p.forwards - through < limit;
    p.backward_ready = p.backwards < p.forwards && (deferred == 0 || p.backwards - p.weights < deferred);
    p.weights_ready = p.weights < p.backwards;
    switch (next_direction(policy, p)) {
      case Direction::none:
        return done + "!";
      case Direction::forward:
        done += 'F';
        ++p.forwards;
        break;
      case Direction::backward:
        done += 'B';
        ++p.backwards;
        break;
      case Direction::weights:
        done += 'W';
        ++p.weights;
        break;
    }
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

TEST_CASE("1F1B and GPipe wait for the next input even if the other direction could run") {
  PipelineProgress p{.stage = 0, .stages = 2, .microbatches = 4, .limit = 4, .forwards = 2, .backwards = 0};
  p.forward_ready = true;
  CHECK(next_direction(Policy::one_f_one_b, p) == Direction::none);
  CHECK(next_direction(Policy::gpipe, p) == Direction::forward);
  p.forward_ready = false;
  p.backward_ready = true;
  CHECK(next_direction(Policy::gpipe, p) == Direction::none);
}

TEST_CASE("message-driven runs whatever has arrived, gradients first") {
  PipelineProgress p{.stage = 1, .stages = 3, .microbatches = 4, .limit = 3, .forwards = 2, .backwards = 0};
  CHECK(next_direction(Policy::message_driven, p) == Direction::none);
  p.forward_ready = true;
  CHECK(next_direction(Policy::message_driven, p) == Direction::forward);
  p.backward_ready = true;
  CHECK(next_direction(Policy::message_driven, p) == Direction::backward);
}

TEST_CASE("ZB-H1 is 1F1B that defers weight gradients by the number of earlier stages") {
  CHECK(order(Policy::zb_h1, 0, 3, 5, 3, 1) == "FFFBWFBWFBWBWBW");
  CHECK(order(Policy::zb_h1, 1, 3, 5, 3, 2) == "FFBFBWFBWFBWBWW");
  CHECK(order(Policy::zb_h1, 2, 3, 5, 3, 3) == "FBFBFBWFBWFBWWW");
  CHECK(order(Policy::zb_h1, 2, 3, 5, 3, 0) == "FBFBFBFBFB");
}

TEST_CASE("ZB-H1 also completes with limits below its needs") {
  for (int stages = 1; stages <= 5; ++stages)
    for (int stage = 0; stage < stages; ++stage)
      for (int microbatches = 1; microbatches <= 6; ++microbatches)
        for (int limit = 1; limit <= 6; ++limit)
          for (int deferred = 0; deferred <= limit; ++deferred) {
            INFO("stages ", stages, ", stage ", stage, ", microbatches ", microbatches, ", limit ", limit,
                 ", deferred ", deferred);
            const std::string done = order(Policy::zb_h1, stage, stages, microbatches, limit, deferred);
            check_lacks(done, {"!"});
            std::string passes = done;
            std::erase(passes, 'W');
            CHECK(passes == order(Policy::one_f_one_b, stage, stages, microbatches, limit));
          }
}

TEST_CASE("zero-bubble fills the pipeline, then runs gradients first and deferred work last") {
  PipelineProgress p{
      .stage = 1, .stages = 3, .microbatches = 8, .limit = 3, .forwards = 2, .backwards = 1, .deferred_limit = 2};
  CHECK(next_direction(Policy::zero_bubble, p) == Direction::none);
  p.weights_ready = true;
  CHECK(next_direction(Policy::zero_bubble, p) == Direction::weights);
  p.backward_ready = true;
  CHECK(next_direction(Policy::zero_bubble, p) == Direction::backward);
  p.forward_ready = true;
  CHECK(next_direction(Policy::zero_bubble, p) == Direction::forward);
  p.forwards = 3;  // more than 1F1B has in flight
  CHECK(next_direction(Policy::zero_bubble, p) == Direction::backward);
  p.backward_ready = false;
  CHECK(next_direction(Policy::zero_bubble, p) == Direction::forward);
  p.forwards = 4;  // and more than one beyond it
  CHECK(next_direction(Policy::zero_bubble, p) == Direction::weights);
  p.weights_ready = false;
  CHECK(next_direction(Policy::zero_bubble, p) == Direction::none);
  p.limit = 4;  // more than the number of stages
  CHECK(next_direction(Policy::zero_bubble, p) == Direction::forward);
}

TEST_CASE(
    "zero-bubble keeps weight gradients for the idle time after its last gradient while the pipeline drains") {
  PipelineProgress p{.stage = 3,
                     .stages = 5,
                     .microbatches = 8,
                     .limit = 5,
                     .forwards = 8,
                     .backwards = 6,
                     .deferred_limit = 4,
                     .weights = 4,
                     .weights_ready = true};
  CHECK(next_direction(Policy::zero_bubble, p) == Direction::none);
  p.backward_ready = true;
  CHECK(next_direction(Policy::zero_bubble, p) == Direction::backward);
  p.backward_ready = false;
  p.weights = 3;  // too many for that time
  CHECK(next_direction(Policy::zero_bubble, p) == Direction::weights);
  p.weights = 4;
  p.forwards = 7;  // the next forward pass needs the slot
  CHECK(next_direction(Policy::zero_bubble, p) == Direction::weights);
  p.forwards = p.backwards = 8;  // no further gradient comes
  CHECK(next_direction(Policy::zero_bubble, p) == Direction::weights);
}

TEST_CASE("zero-bubble never deadlocks, however few slots and deferred slots there are") {
  // All stages of a pipeline in turn, each of which immediately runs its next pass.
  for (int stages = 1; stages <= 5; ++stages)
    for (int microbatches = 1; microbatches <= 7; ++microbatches)
      for (int limit = 1; limit <= 7; ++limit)
        for (int deferred = 1; deferred <= limit; ++deferred) {
          INFO("stages ", stages, ", microbatches ", microbatches, ", limit ", limit, ", deferred ", deferred);
          std::vector<PipelineProgress> all;
          for (int s = 0; s < stages; ++s)
            all.push_back({.stage = s,
                           .stages = stages,
                           .microbatches = microbatches,
                           .limit = limit,
                           .deferred_limit = deferred});
          for (bool moved = true; moved;) {
            moved = false;
            for (int s = 0; s < stages; ++s) {
              PipelineProgress& p = all[std::size_t(s)];
              const int come = s == 0 ? microbatches : all[std::size_t(s) - 1].forwards;
              const int back = s + 1 == stages ? p.forwards : all[std::size_t(s) + 1].backwards;
              p.forward_ready = p.forwards < come && p.forwards - p.weights < limit;
              p.backward_ready = p.backwards < back && p.backwards - p.weights < deferred;
              p.weights_ready = p.weights < p.backwards;
              const Direction direction = next_direction(Policy::zero_bubble, p);
              moved = moved || direction != Direction::none;
              p.forwards += direction == Direction::forward;
              p.backwards += direction == Direction::backward;
              p.weights += direction == Direction::weights;
            }
          }
          for (const PipelineProgress& p : all) CHECK(p.weights == microbatches);
        }
}

TEST_CASE("a schedule is found by its name") {
  for (const Policy policy :
       {Policy::message_driven, Policy::one_f_one_b, Policy::gpipe, Policy::zero_bubble, Policy::zb_h1})
    CHECK(actors::policy_from(to_string(policy)) == policy);
}

TEST_CASE("an unknown schedule is refused with the names of the known ones") {
  CHECK_THROWS_WITH_AS((void)actors::policy_from("zigzag"),
                       doctest::Contains("message-driven, 1f1b, gpipe, zero-bubble or zb-h1"), Error);
}
