// Operations of several parts that all members of a team run, and their memory: jobs in one process.
#pragma once

#include "collectives/communicators/communicator.hpp"
#include "collectives/plans/algorithms.hpp"
#include "runtime/loop/event_loop.hpp"
#include "tests/collectives/reference.hpp"
#include "tests/test.hpp"

namespace ranvier::test {

struct Call {
  Collective collective = Collective::all_gather;
  std::vector<std::size_t> lengths;   ///< length of a piece, for each part
  std::vector<GappedRuns> runs = {};  ///< run layout of each part; empty: all are contiguous

  [[nodiscard]] GappedRuns runs_of(std::size_t part) const { return runs.empty() ? GappedRuns{} : runs[part]; }
};

/// The operations that all members of a team run.
struct Program {
  Topology topology = Topology::regular(1, 1);
  collectives::PlanChoice choice;
  DType dtype = DType::f32;
  int places = 1;  ///< buffers for staging, if plans run the operations
  std::vector<Call> calls;

  [[nodiscard]] int ranks() const { return topology.ranks(); }

  [[nodiscard]] std::vector<collectives::OperationShape> shapes() const {
    std::vector<collectives::OperationShape> all;
    for (const Call& call : calls) {
      collectives::OperationShape shape{call.collective, {}, dtype};
      for (std::size_t part = 0; part < call.lengths.size(); ++part) {
        shape.parts.push_back(call.lengths[part] * static_cast<std::size_t>(ranks()));
        if (!call.runs.empty()) shape.runs.push_back(call.runs[part].run);
      }
      all.push_back(shape);
    }
    return all;
  }

  [[nodiscard]] Case case_of(const Call& call, std::size_t part) const {
    return {call.collective, choice.algorithm_of(call.collective).name, topology,
            call.lengths[part] * static_cast<std::size_t>(ranks())};
  }
};

enum class Numbers { any, whole };  ///< sums of small integers are the same in any order

/// Memory of all members for a program's calls, with random numbers. The program must outlive it.
template <typename T>
class ProgramMemory {
 public:
  ProgramMemory(const Program& program, std::mt19937_64& random, Numbers numbers = Numbers::any)
      : program_(&program),
        left_(static_cast<std::size_t>(program.ranks()), program.calls.size()),
        starts_(static_cast<std::size_t>(program.ranks())) {
    for (const Call& call : program.calls) {
      auto& parts = before_.emplace_back();
      auto& places = memory_.emplace_back();
      for (std::size_t part = 0; part < call.lengths.size(); ++part) {
        parts.push_back(random_buffers<T>(program.case_of(call, part), random));
        for (auto& values : parts.back()) {
          if (numbers == Numbers::any) continue;
          for (T& value : values) value = number<T>(static_cast<double>(random() % 16));
        }
        auto& of_ranks = places.emplace_back();
        for (const auto& values : parts.back()) of_ranks.emplace_back(values, call.runs_of(part), random);
      }
    }
  }

  /// Starts a member's call; its loop stops when all of them are done.
  void start(std::size_t number, int member, collectives::Communicator& communicator, runtime::EventLoop& loop) {
    const auto me = static_cast<std::size_t>(member);
    starts_[me] = true;
    communicator.run(program_->calls[number].collective, operands(number, me), program_->dtype,
                     fmt::format("call {}", number), [this, me, &loop] {
                       CHECK(!starts_[me]);
                       if (--left_[me] == 0) loop.stop();
                     });
    starts_[me] = false;
  }
  /// Posts all calls of a member to its loop.
  void post(int member, collectives::Communicator& communicator, runtime::EventLoop& loop) {
    for (std::size_t number = 0; number < memory_.size(); ++number)
      loop.post([this, number, member, &communicator, &loop] { start(number, member, communicator, loop); });
  }

  /// Checks after all calls that every member (or `only` this one) has the bits of the algorithms' order of summation,
  /// and that the gaps between runs are unchanged.
  void check(std::optional<int> only = {}) const {
    for (std::size_t number = 0; number < memory_.size(); ++number)
      for (std::size_t part = 0; part < memory_[number].size(); ++part) {
        const Case c = program_->case_of(program_->calls[number], part);
        const auto expected = promised(c, before_[number][part]);
        std::vector<std::vector<T>> after;
        for (const InRuns<T>& of_rank : memory_[number][part]) {
          after.push_back(of_rank.values());
          CHECK(of_rank.gaps_untouched());
        }
        for (int rank = 0; rank < program_->ranks(); ++rank)
          if (only.value_or(rank) == rank) CHECK(as_promised(c, expected, after, rank));
      }
  }

 private:
  /// Parts of a member's call.
  [[nodiscard]] std::vector<collectives::Communicator::Operand> operands(std::size_t number, std::size_t me) {
    std::vector<collectives::Communicator::Operand> parts;
    for (std::size_t part = 0; part < memory_[number].size(); ++part) {
      const GappedRuns runs = program_->calls[number].runs_of(part);
      parts.push_back(
          {memory_[number][part][me].data(), before_[number][part][me].size(), runs.run, runs.stride()});
    }
    return parts;
  }

  const Program* program_;
  std::vector<std::size_t> left_;                                 // unfinished calls, by rank
  std::vector<bool> starts_;                                      // whether a call is being started, by rank
  std::vector<std::vector<std::vector<std::vector<T>>>> before_;  // [call][part][rank]
  std::vector<std::vector<std::vector<InRuns<T>>>> memory_;       // [call][part][rank]
};

}  // namespace ranvier::test
