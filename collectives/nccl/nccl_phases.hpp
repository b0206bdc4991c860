// Runs the NCCL operations of one rank's column phase by phase. Steps that share a communicator form a phase; an
// event orders it after the previous phase, possibly on the other lane. So one operation runs inside the nodes while
// another runs between them (MiCS §3.3, PaRO §3.3).
//
// NCCL's kernels wait on the GPU for other ranks, so ranks that start two operations in different orders may
// deadlock. README.md ("The order of NCCL's calls") explains how all ranks get the same order.
//
// Nothing here blocks: timers poll NCCL's threads and late errors. Loop thread only.
#pragma once

#include "collectives/nccl/nccl_connections.hpp"

#include <array>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace ranvier::collectives {

class NcclPhases final : public std::enable_shared_from_this<NcclPhases> {
 public:
  struct Operation {
    int number = 0;  ///< number of its communicator
    TeamKind team = TeamKind::column;
    std::string what;             ///< description for the user
    std::vector<NcclStep> steps;  ///< at least one
    runtime::DType dtype = runtime::DType::f32;
    runtime::Handler done;
  };

  /// All arguments must outlive it, except for its own handlers, which do nothing after closing. `column`: MPI ranks,
  /// by row; the first one decides the order of phases.
  NcclPhases(runtime::EventLoop& loop, runtime::Transport& transport, runtime::Device& device, NcclLibrary& library,
             std::shared_ptr<NcclConnections> connections, std::vector<int> column);

  /// Call before start(): a communicator that operations may use.
  void add_communicator(int number) { numbers_.insert(number); }
  /// Call after the connections exist.
  void start();

  /// Calls `done` on the loop when the operation is finished on this rank.
  void submit(Operation operation);

  [[nodiscard]] std::vector<Communicator::UnderWay> running(int number) const;
  /// Like NcclColumn::waited_for().
  [[nodiscard]] std::vector<runtime::Transport::Pending> waited_for() const;
  /// Whether an operation is on the GPU.
  [[nodiscard]] bool on_gpu() const noexcept;

  /// Handlers do nothing once the connections are closed.
  [[nodiscard]] bool closed() const noexcept { return connections_->closed(); }
  /// Call after closing the connections, before their streams are freed.
  void free_events() noexcept;

 private:
  struct UnderWay : Operation {
    runtime::Duration since{};
    std::uint32_t place = 0;               ///< index among the operations of its communicator
    std::vector<std::size_t> phases = {};  ///< end of each phase in the steps
    std::size_t named = 0;                 ///< announced phases; on the first rank
    std::size_t begun = 0;                 ///< started phases; the last one may not be completely on its stream
    std::size_t over = 0;                  ///< finished phases
    std::size_t next_step = 0;
    std::unique_ptr<runtime::Event> left = {};  ///< end of the last phase on its stream, if another phase follows
  };
  using Operations = std::list<UnderWay>;

  /// Message that announces the next phase: the next one of that operation.
  struct Word {
    std::uint32_t number = 0;  ///< number of the communicator
    std::uint32_t place = 0;   ///< index of the operation in its communicator
  };

  [[nodiscard]] bool leads() const noexcept { return column_.front() == transport_.rank(); }
  /// Whether phases are announced; otherwise all ranks have the same order anyway. The same on all ranks.
  [[nodiscard]] bool needs_words() const noexcept { return numbers_.size() > 1 || connections_->hierarchical(); }
  [[nodiscard]] const NcclConnection& connection(const UnderWay& operation, std::size_t phase) const;
  [[nodiscard]] NcclLane lane(const UnderWay& operation, std::size_t phase) const;
  [[nodiscard]] std::string text_of(const UnderWay& operation) const;

  void listen_for_order();
  void name_phases();
  [[nodiscard]] bool may_be_named(const UnderWay& operation) const;
  void advance();
  [[nodiscard]] bool begin_next();
  [[nodiscard]] bool issue(UnderWay& operation);
  void phase_over(Operations::iterator operation);
  void watch();

  runtime::EventLoop& loop_;
  runtime::Transport& transport_;
  runtime::Device& gpu_;
  NcclLibrary& library_;
  std::shared_ptr<NcclConnections> connections_;
  std::vector<int> column_;
  bool started_ = false;
  bool watching_ = false;
  bool asks_again_ = false;
  bool advancing_ = false;

  std::vector<std::unique_ptr<runtime::Event>> spare_events_;
  std::set<int> numbers_;                ///< numbers of communicators
  std::map<int, std::uint32_t> places_;  ///< index of the next operation, by number
  Operations operations_;                ///< unfinished operations in the order of submission
  std::deque<Word> order_;               ///< next phases in order
  std::optional<Operations::iterator>
      issuing_;  ///< operation whose last started phase is not completely on the stream
  Word word_;    ///< receive buffer for messages of the first rank
  /// On the first rank, by lane: announced, unfinished phases.
  std::array<std::deque<const UnderWay*>, nccl_lanes> ahead_;
};

}  // namespace ranvier::collectives
