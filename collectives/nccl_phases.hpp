// The operations of one rank's column by NCCL, phase by phase: the stages of an operation that share a communicator are
// a phase, and an event orders it after the one before it, which may be on the other lane. So one operation is inside
// the nodes while another one is between them (MiCS §3.3, PaRO §3.3).
//
// NCCL's kernels wait on the GPU for those of the other ranks, so ranks that begin two operations in different orders
// may wait for ever. README.md ("The order of NCCL's calls") says how all ranks get one order, and why it ends.
//
// Nothing here waits: what NCCL does in threads of its own, and errors that it meets later, is asked for by timers.
// Loop thread only.
#pragma once

#include "collectives/nccl_connections.hpp"

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
    int number = 0;  ///< of its communicator
    TeamKind team = TeamKind::column;
    std::string what;              ///< for people
    std::vector<NcclStep> stages;  ///< at least one
    runtime::DType dtype = runtime::DType::f32;
    runtime::Handler done;
  };

  /// All outlive it but for its own handlers, which do nothing once it is closed. `column`: MPI ranks, by row; the
  /// first one says which phase comes next.
  NcclPhases(runtime::EventLoop& loop, runtime::Transport& transport, runtime::Device& device, NcclLibrary& library,
             std::shared_ptr<NcclConnections> connections, std::vector<int> column);

  /// Before start(): a communicator that operations may be of.
  void add_communicator(int number) { numbers_.insert(number); }
  /// Once the connections are made.
  void start();

  /// Calls `done` on the loop when the operation is over on this rank.
  void submit(Operation operation);

  [[nodiscard]] std::vector<Communicator::UnderWay> running(int number) const;
  /// As NcclColumn::waited_for().
  [[nodiscard]] std::vector<runtime::Transport::Pending> waited_for() const;
  /// Whether something is on the GPU.
  [[nodiscard]] bool on_gpu() const noexcept;

  /// No handler does anything from now on.
  void close() noexcept { closed_ = true; }
  /// After close(), before the streams go.
  void free_events() noexcept;

 private:
  using Lane = NcclLane;

  struct UnderWay : Operation {
    runtime::Duration since{};
    std::uint32_t place = 0;               ///< among those of its communicator
    std::vector<std::size_t> phases = {};  ///< the stage behind each of them
    std::size_t named = 0;                 ///< phases; on the first rank
    std::size_t begun = 0;                 ///< phases, of which the last one may not be on its stream as a whole
    std::size_t over = 0;                  ///< phases
    std::size_t next_stage = 0;
    std::unique_ptr<runtime::Event> left = {};  ///< the last phase that is on its stream, where another one follows
  };
  using Operations = std::list<UnderWay>;

  /// Which phase comes next, as it travels: the next one of that operation.
  struct Word {
    std::uint32_t number = 0;  ///< of the communicator
    std::uint32_t place = 0;   ///< of the operation, among those of the communicator
  };

  [[nodiscard]] bool leads() const noexcept { return column_.front() == transport_.rank(); }
  /// Otherwise this rank's own order is everybody's. The same on all ranks.
  [[nodiscard]] bool needs_words() const noexcept { return numbers_.size() > 1 || connections_->hierarchical(); }
  [[nodiscard]] const NcclConnection& connection(const UnderWay& operation, std::size_t phase) const;
  [[nodiscard]] Lane lane(const UnderWay& operation, std::size_t phase) const;
  [[nodiscard]] std::string text_of(const UnderWay& operation) const;

  void listen_for_order();
  void name_phases();
  [[nodiscard]] bool may_be_named(const UnderWay& operation) const;
  void advance();
  [[nodiscard]] bool begin_next();
  [[nodiscard]] bool issue(UnderWay& operation);
  void launch(const NcclConnection& connection, const std::vector<NcclCall>& calls, const UnderWay& operation,
              runtime::StreamView stream);
  void phase_over(Operations::iterator operation);
  void watch();

  /// Calls `function` later unless this is gone or closed by then.
  template <typename Function>
  void later(runtime::Duration delay, Function function);

  runtime::EventLoop& loop_;
  runtime::Transport& transport_;
  runtime::Device& gpu_;
  NcclLibrary& library_;
  std::shared_ptr<NcclConnections> connections_;
  std::vector<int> column_;
  bool started_ = false;
  bool closed_ = false;
  bool watching_ = false;
  bool asks_again_ = false;
  bool advancing_ = false;

  std::vector<std::unique_ptr<runtime::Event>> spare_events_;
  std::set<int> numbers_;                        ///< of communicators
  std::map<int, std::uint32_t> places_;          ///< of the next operation, by number
  Operations operations_;                        ///< that are not over, in the order in which they were submitted
  std::deque<Word> order_;                       ///< of the phases that come next
  std::optional<Operations::iterator> issuing_;  ///< its last begun phase is not on the stream as a whole
  Word word_;                                    ///< what the next message of the first rank is received into
  /// On the first rank, by lane: phases that were named and are not over.
  std::array<std::deque<const UnderWay*>, nccl_lanes> ahead_;
};

}  // namespace ranvier::collectives
