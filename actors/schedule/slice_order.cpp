#include "actors/schedule/slice_order.hpp"

#include <algorithm>

namespace ranvier::actors {

SlicePass SliceOrder::at(bool forward, int number) const {
  const int before = number / (group * chunks) * group;  // microbatches of previous groups
  const int size = std::min(group, microbatches - before);
  const int in_group = number - before * chunks;
  const int turn = in_group / size;
  return {forward ? turn : chunks - 1 - turn, before + in_group % size};
}

int SliceOrder::number_of(bool forward, const SlicePass& pass) const {
  const int before = pass.microbatch / group * group;
  const int size = std::min(group, microbatches - before);
  const int turn = forward ? pass.chunk : chunks - 1 - pass.chunk;
  return before * chunks + turn * size + pass.microbatch - before;
}

int chunk_group(Policy policy, int stages, int limit) { return policy == Policy::gpipe ? limit : stages; }

std::optional<int> next_chunk(const SliceOrder& order, bool forward, std::span<const NextPass> chunks, bool fixed) {
  if (chunks.size() == 1)
    return chunks[0].ready && chunks[0].microbatch < order.microbatches ? std::optional(0) : std::nullopt;
  std::optional<int> first;
  int first_number = 0;
  for (std::size_t c = 0; c < chunks.size(); ++c) {
    const int chunk = static_cast<int>(c);
    if (chunks[c].microbatch >= order.microbatches || (!fixed && !chunks[c].ready)) continue;
    const int number = order.number_of(forward, {chunk, chunks[c].microbatch});
    if (first && first_number < number) continue;
    first = chunk;
    first_number = number;
  }
  return first && chunks[static_cast<std::size_t>(*first)].ready ? first : std::nullopt;
}

std::vector<int> slice_slots(Policy policy, int stage, int stages, int chunks, int microbatches, int limit) {
  const bool free = messages_decide(policy);
  if (chunks == 1 || policy == Policy::gpipe || (free && limit > 0)) {
    const int wanted = limit > 0 ? limit : policy == Policy::gpipe ? microbatches : stages;
    return std::vector<int>(static_cast<std::size_t>(chunks), std::min(wanted, microbatches));
  }
  PipelineProgress progress{.stage = defers_weights(policy) ? 0 : stage,
                            .stages = stages,
                            .chunks = chunks,
                            .microbatches = microbatches,
                            .limit = microbatches,
                            .forward_ready = true,
                            .backward_ready = true};
  const SliceOrder order{chunks, microbatches, chunk_group(policy, stages, microbatches)};
  std::vector<int> in_flight(static_cast<std::size_t>(chunks), 0);
  std::vector<int> most(in_flight.size(), free ? std::min(stages, microbatches) : 0);
  while (progress.backwards < order.passes()) {
    const bool forward = next_direction(Policy::one_f_one_b, progress) == Direction::forward;
    const SlicePass pass = order.at(forward, forward ? progress.forwards++ : progress.backwards++);
    const auto c = static_cast<std::size_t>(pass.chunk);
    in_flight[c] += forward ? 1 : -1;
    most[c] = std::max(most[c], in_flight[c]);
  }
  return most;
}

}  // namespace ranvier::actors
