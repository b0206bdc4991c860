#include "collectives/nccl/nccl_phases.hpp"

#include "runtime/base/error.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <algorithm>
#include <utility>

namespace ranvier::collectives {

using runtime::Channel;
using runtime::Duration;
using runtime::Transport;

namespace {

constexpr Duration ask_again = std::chrono::microseconds(100);       // polling interval for work of NCCL's threads
constexpr Duration look_for_errors = std::chrono::milliseconds(50);  // interval while operations run

// Index in Channel::control. 0 and 1 belong to the watchdog, 3 and higher to connections (nccl_connections.cpp), 64 to
// apps/job/stop_signals.cpp.
constexpr std::uint32_t order_index = 2;

constexpr std::size_t max_ahead = 2;  // phases per lane: one running, one queued

void queue(runtime::StreamView stream, const std::vector<NcclStep::Move>& moves, runtime::DType dtype) {
  for (const auto& [to, to_runs, from, from_runs, count, adds] : moves) {
    if (adds) {
      add(stream, to, from, dtype, count, to_runs, from_runs);
    } else {
      runtime::copy(stream, to, to_runs, from, from_runs, size_of(dtype), count);
    }
  }
}

/// End of each phase of an operation, as an index of steps. A phase uses one communicator.
std::vector<std::size_t> phase_ends(const std::vector<NcclStep>& steps) {
  std::vector<std::size_t> ends;
  for (std::size_t s = 1; s <= steps.size(); ++s) {
    if (s == steps.size() || steps[s].span != steps[s - 1].span) ends.push_back(s);
  }
  return ends;
}

}  // namespace

NcclPhases::NcclPhases(runtime::EventLoop& loop, Transport& transport, runtime::Device& device,
                       NcclLibrary& library, std::shared_ptr<NcclConnections> connections, std::vector<int> column)
    : loop_(loop),
      transport_(transport),
      gpu_(device),
      library_(library),
      connections_(std::move(connections)),
      column_(std::move(column)) {}

const NcclConnection& NcclPhases::connection(const UnderWay& operation, std::size_t phase) const {
  return connections_->of(operation.team, operation.steps[operation.phases[phase] - 1].span);
}

NcclLane NcclPhases::lane(const UnderWay& operation, std::size_t phase) const {
  return connection(operation, phase).lane;
}

std::string NcclPhases::text_of(const UnderWay& operation) const {
  return fmt::format("{}, by NCCL with {} on {}", operation.what,
                     connections_->ranks_text(connections_->of(operation.team, NcclSpan::team)),
                     gpu_.description());
}

void NcclPhases::start() {
  started_ = true;
  if (!leads() && needs_words()) listen_for_order();
}

void NcclPhases::listen_for_order() {
  transport_.receive(column_.front(), {Channel::control, order_index}, std::as_writable_bytes(std::span(&word_, 1)),
                     [self = shared_from_this()] {
                       if (self->closed()) return;
                       self->order_.push_back(self->word_);
                       self->listen_for_order();
                       self->advance();
                     });
}

/// First rank only: names the next phases, as many as may be pending.
void NcclPhases::name_phases() {
  for (;;) {
    const auto operation = std::find_if(operations_.begin(), operations_.end(),
                                        [this](const UnderWay& each) { return may_be_named(each); });
    if (operation == operations_.end()) break;
    ahead_[static_cast<std::size_t>(lane(*operation, operation->named))].push_back(&*operation);
    ++operation->named;
    const auto message =
        std::make_shared<Word>(Word{static_cast<std::uint32_t>(operation->number), operation->place});
    order_.push_back(*message);
    for (std::size_t row = 1; row < column_.size() && needs_words(); ++row) {
      transport_.send(column_[row], {Channel::control, order_index}, std::as_bytes(std::span(message.get(), 1)),
                      [message] {});
    }
  }
  advance();
}

bool NcclPhases::may_be_named(const UnderWay& operation) const {
  const auto ahead = [&](std::size_t phase) -> const auto& {
    return ahead_[static_cast<std::size_t>(lane(operation, phase))];
  };
  if (operation.named == operation.phases.size()) return false;
  if (!connections_->overlap()) return true;
  if (ahead(operation.named).size() >= max_ahead) return false;
  if (operation.named == 0) return true;
  // The previous phase has started.
  const std::size_t before = operation.named - 1;
  return operation.over > before || (operation.over == before && ahead(before).front() == &operation);
}

void NcclPhases::submit(Operation submitted) {
  expect(started_ && !closed(), "{}: NCCL's communicators are not connected", submitted.what);
  UnderWay operation{std::move(submitted)};
  operation.since = loop_.now();
  operation.place = places_[operation.number]++;
  operation.phases = phase_ends(operation.steps);
  const Word own{static_cast<std::uint32_t>(operation.number), operation.place};
  operations_.push_back(std::move(operation));
  if (leads()) return name_phases();
  if (!needs_words()) order_.push_back(own);
  advance();
}

/// Starts the next phase of the order, if this rank has submitted its operation.
bool NcclPhases::begin_next() {
  if (order_.empty()) return false;
  const Word next = order_.front();
  const auto operation = std::find_if(operations_.begin(), operations_.end(), [&](const UnderWay& each) {
    return static_cast<std::uint32_t>(each.number) == next.number && each.place == next.place;
  });
  if (operation == operations_.end()) return false;
  order_.pop_front();
  const std::size_t phase = operation->begun++;
  if (operation->left) {
    connections_->stream(lane(*operation, phase)).wait(*operation->left);
    spare_events_.push_back(std::move(operation->left));
  }
  issuing_ = operation;
  return true;
}

void NcclPhases::advance() {
  if (advancing_) return;
  advancing_ = true;
  while (!closed() && (issuing_ || begin_next())) {
    const auto operation = *issuing_;
    if (!issue(*operation)) {
      if (!std::exchange(asks_again_, true)) {
        const auto again = [](NcclPhases& self) {
          self.asks_again_ = false;
          self.advance();
        };
        loop_.after(ask_again, unless_closed(weak_from_this(), again));
      }
      break;
    }
    issuing_.reset();
    runtime::Stream& stream = connections_->stream(lane(*operation, operation->begun - 1));
    if (operation->begun < operation->phases.size()) {
      if (spare_events_.empty()) spare_events_.push_back(gpu_.make_event());
      operation->left = std::move(spare_events_.back());
      spare_events_.pop_back();
      operation->left->record(stream);
    }
    const auto over = [operation](NcclPhases& self) { self.phase_over(operation); };
    stream.call_back([&to = loop_, over = unless_closed(weak_from_this(), over)] { to.post(over); });
  }
  advancing_ = false;
  if (!watching_ && on_gpu()) watch();
}

/// Queues the steps of the phase on its stream; returns false while NCCL's threads work on them.
bool NcclPhases::issue(UnderWay& operation) {
  const std::size_t phase = operation.begun - 1;
  const NcclConnection& used = connection(operation, phase);
  const runtime::StreamView stream = connections_->stream(used.lane);
  const std::size_t first = phase == 0 ? 0 : operation.phases[phase - 1];
  const auto checked = [&](NcclLibrary::Result result) { connections_->check(result, used, operation.what); };
  for (;;) {
    // The additions of a step, and the next step, are queued behind the calls of the step.
    if (operation.next_step > first) {
      const NcclStep& last = operation.steps[operation.next_step - 1];
      const NcclLibrary::Result result = library_.status(used.handle);
      if (result == NcclLibrary::in_progress) return false;
      checked(result);
      queue(stream, last.after, operation.dtype);
    }
    if (operation.next_step == operation.phases[phase]) return true;
    const NcclStep& step = operation.steps[operation.next_step++];
    queue(stream, step.before, operation.dtype);
    checked(library_.group_start());
    for (const NcclCall& call : step.calls) checked(library_.run(call, operation.dtype, used.handle, stream));
    checked(library_.group_end());
  }
}

/// Called when the operation's next phase has completed.
void NcclPhases::phase_over(Operations::iterator operation) {
  auto& ahead = ahead_[static_cast<std::size_t>(lane(*operation, operation->over))];
  Operations ended;
  if (++operation->over == operation->phases.size()) {
    ended.splice(ended.end(), operations_, operation);
    // `done` may submit the next hop of an older operation, which is named before a new one.
    std::exchange(operation->done, nullptr)();
  }
  if (!leads() || closed()) return;
  ahead.erase(std::find(ahead.begin(), ahead.end(), &*operation));
  name_phases();
}

/// Polls for NCCL errors while operations wait on the GPU; nothing else would report them.
void NcclPhases::watch() {
  watching_ = true;
  const auto look = [](NcclPhases& self) {
    self.watching_ = false;
    const auto& all = self.operations_;
    const auto first =
        std::find_if(all.begin(), all.end(), [](const UnderWay& operation) { return operation.begun > 0; });
    if (first == all.end()) return;
    if (const auto [failed, result] = self.connections_->failed(); failed != nullptr) {
      // Name the operation that uses the failed communicator. All communicators report errors of peers.
      const auto on_it = std::find_if(all.begin(), all.end(), [&, at = failed](const UnderWay& operation) {
        return operation.begun > operation.over && &self.connection(operation, operation.over) == at;
      });
      self.connections_->check(result, *failed, (on_it == all.end() ? first : on_it)->what);
    }
    self.watch();
  };
  loop_.after(look_for_errors, unless_closed(weak_from_this(), look));
}

std::vector<Communicator::UnderWay> NcclPhases::running(int number) const {
  std::vector<Communicator::UnderWay> all;
  for (const UnderWay& operation : operations_) {
    if (operation.number == number) all.push_back({text_of(operation), operation.since});
  }
  return all;
}

std::vector<Transport::Pending> NcclPhases::waited_for() const {
  std::vector<Transport::Pending> all;
  const auto from = [&](int rank, Duration since) {
    if (rank == transport_.rank()) return;
    all.push_back({true, rank, {Channel::collective, 0}, 0, since});
  };
  std::set<int> waiting;
  for (const UnderWay& operation : operations_) {
    if (operation.begun > 0) {
      for (const int rank : connections_->of(operation.team, NcclSpan::team).ranks) from(rank, operation.since);
    } else if (waiting.insert(operation.number).second) {
      from(column_.front(), operation.since);  // the first rank must name the operation
    }
  }
  return all;
}

bool NcclPhases::on_gpu() const noexcept {
  return std::any_of(operations_.begin(), operations_.end(), [](const auto& each) { return each.begun > 0; });
}

void NcclPhases::free_events() noexcept {
  for (UnderWay& operation : operations_) operation.left.reset();
  spare_events_.clear();
}

}  // namespace ranvier::collectives
