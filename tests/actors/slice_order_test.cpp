#include "actors/schedule/slice_balance.hpp"
#include "actors/schedule/slice_order.hpp"
#include "tests/test.hpp"

using namespace ranvier::actors;

namespace {

std::string text_of(const SliceOrder& order, bool forward) {
  std::string text;
  for (int number = 0; number < order.passes(); ++number) {
    const SlicePass pass = order.at(forward, number);
    text += std::to_string(pass.microbatch) + static_cast<char>('a' + pass.chunk) + ' ';
  }
  return text;
}

/// All passes of a stage in the order of interleaved 1F1B.
std::string schedule_of(int stage, int stages, int chunks, int microbatches) {
  const SliceOrder order{chunks, microbatches, stages};
  PipelineProgress p{.stage = stage,
                     .stages = stages,
                     .chunks = chunks,
                     .microbatches = microbatches,
                     .limit = microbatches,
                     .forward_ready = true,
                     .backward_ready = true};
  std::string text;
  while (p.backwards < order.passes()) {
    const bool forward = next_direction(Policy::one_f_one_b, p) == Direction::forward;
    const SlicePass pass = order.at(forward, forward ? p.forwards++ : p.backwards++);
    text += (forward ? 'F' : 'B') + std::to_string(pass.microbatch) + static_cast<char>('a' + pass.chunk) + ' ';
  }
  return text;
}

}  // namespace

TEST_CASE("chunks go round the stages, and no two messages of a channel to a rank have one index") {
  for (const int stages : {1, 2, 3, 5}) {
    for (const int chunks : {1, 2, 4}) {
      const SliceMap map{stages, chunks};
      CHECK(map.slices() == stages * chunks);
      for (int slice = 0; slice < map.slices(); ++slice) {
        CHECK(map.slice_of(map.stage_of(slice), map.chunk_of(slice)) == slice);
        CHECK(map.stage_of(slice) == slice % stages);
      }
      for (int stage = 0; stage < stages; ++stage) {
        std::set<int> indexes;
        for (int chunk = 0; chunk < chunks; ++chunk) {
          for (int m = 0; m < 7; ++m) indexes.insert(map.message_index(m, map.slice_of(stage, chunk)));
        }
        CHECK(indexes.size() == std::size_t(7 * chunks));
        CHECK(*indexes.rbegin() < 7 * chunks);
      }
    }
  }
  CHECK(SliceMap{4, 1}.message_index(9, 3) == 9);
}

TEST_CASE("groups of microbatches pass chunk after chunk, forwards from the first and backwards from the last") {
  CHECK(text_of({2, 5, 2}, true) == "0a 1a 0b 1b 2a 3a 2b 3b 4a 4b ");
  CHECK(text_of({2, 5, 2}, false) == "0b 1b 0a 1a 2b 3b 2a 3a 4b 4a ");
  CHECK(text_of({3, 2, 4}, true) == "0a 1a 0b 1b 0c 1c ");
  CHECK(text_of({1, 3, 2}, false) == "0a 1a 2a ");
  for (const int chunks : {1, 2, 3, 4}) {
    for (const int group : {1, 2, 3, 8}) {
      for (const int microbatches : {1, 2, 5, 8, 13}) {
        const SliceOrder order{chunks, microbatches, group};
        for (const bool forward : {true, false}) {
          std::vector<int> next(std::size_t(chunks), 0);
          for (int number = 0; number < order.passes(); ++number) {
            const SlicePass pass = order.at(forward, number);
            CHECK(order.number_of(forward, pass) == number);
            CHECK(pass.microbatch == next[std::size_t(pass.chunk)]++);  // each chunk in the order of microbatches
          }
          CHECK(std::all_of(next.begin(), next.end(), [&](int through) { return through == microbatches; }));
        }
      }
    }
  }
}

TEST_CASE("1F1B with chunks is Narayanan's schedule") {
  // Figure 4 there, for fewer stages: the last stage has one group through all chunks but the last before it
  // alternates.
  CHECK(schedule_of(1, 2, 2, 4) == "F0a F1a F0b B0b F1b B1b F2a B0a F3a B1a F2b B2b F3b B3b B2a B3a ");
  CHECK(schedule_of(0, 2, 2, 4) == "F0a F1a F0b F1b F2a B0b F3a B1b F2b B0a F3b B1a B2b B3b B2a B3a ");
}

TEST_CASE("the first ready chunk in the order comes next, or none before its turn") {
  const SliceOrder order{2, 4, 2};
  const auto of = [&](bool forward, std::array<NextPass, 2> chunks, bool fixed) {
    return next_chunk(order, forward, chunks, fixed).value_or(-1);
  };
  // Forwards 2a comes after 0b.
  CHECK(of(true, {NextPass{2, true}, NextPass{0, true}}, true) == 1);
  CHECK(of(true, {NextPass{2, true}, NextPass{0, false}}, true) == -1);
  CHECK(of(true, {NextPass{2, true}, NextPass{0, false}}, false) == 0);
  CHECK(of(true, {NextPass{2, false}, NextPass{0, false}}, false) == -1);
  // Backwards 2b comes after 1a.
  CHECK(of(false, {NextPass{1, true}, NextPass{2, true}}, false) == 0);
  CHECK(of(false, {NextPass{1, false}, NextPass{2, true}}, false) == 1);
  CHECK(of(false, {NextPass{1, false}, NextPass{2, true}}, true) == -1);
  // A chunk that is finished.
  CHECK(of(true, {NextPass{4, true}, NextPass{3, true}}, false) == 1);
  CHECK(of(true, {NextPass{4, true}, NextPass{4, true}}, true) == -1);
}

TEST_CASE("chunks have the number of slots that the order of their passes needs") {
  using Slots = std::vector<int>;
  // A stage has 1F1B's warm-up and the next pass in flight at a time.
  for (const int stages : {2, 3, 4, 8}) {
    for (const int chunks : {2, 3, 4}) {
      for (int stage = 0; stage < stages; ++stage) {
        const int microbatches = 4 * stages;
        const Slots slots = slice_slots(Policy::one_f_one_b, stage, stages, chunks, microbatches, 0);
        const int warm_up = (chunks - 1) * stages + 2 * (stages - 1 - stage);
        CHECK(std::accumulate(slots.begin(), slots.end(), 0) >= warm_up + 1);
        CHECK(*std::max_element(slots.begin(), slots.end()) <= 2 * stages);
        const Slots free = slice_slots(Policy::message_driven, stage, stages, chunks, microbatches, 0);
        for (std::size_t c = 0; c < slots.size(); ++c) CHECK(free[c] == std::max(slots[c], stages));
      }
    }
  }
  CHECK(slice_slots(Policy::one_f_one_b, 0, 4, 2, 16, 0) == Slots{8, 4});
  CHECK(slice_slots(Policy::one_f_one_b, 3, 4, 2, 16, 0) == Slots{5, 1});
  CHECK(slice_slots(Policy::message_driven, 3, 4, 2, 16, 0) == Slots{5, 4});
  CHECK(slice_slots(Policy::message_driven, 3, 4, 2, 16, 6) == Slots{6, 6});
  CHECK(slice_slots(Policy::zero_bubble, 3, 4, 2, 16, 0) == Slots{8, 4});
  CHECK(slice_slots(Policy::zero_bubble, 3, 4, 2, 16, 6) == Slots{6, 6});
  CHECK(slice_slots(Policy::message_driven, 3, 4, 2, 3, 0) == Slots{3, 3});
  CHECK(slice_slots(Policy::gpipe, 1, 4, 3, 16, 0) == Slots{16, 16, 16});
  CHECK(slice_slots(Policy::gpipe, 1, 4, 3, 16, 2) == Slots{2, 2, 2});
}
