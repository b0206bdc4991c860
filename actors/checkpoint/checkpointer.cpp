#include "actors/checkpoint/checkpointer.hpp"

#include "runtime/base/error.hpp"
#include "runtime/liveness/time_limits.hpp"

#include <algorithm>
#include <array>
#include <exception>
#include <utility>

namespace ranvier::actors {

using runtime::Channel;
using runtime::Tag;

namespace {

constexpr Tag go_tag{Channel::checkpoint, 0};
constexpr Tag header_tag{Channel::checkpoint, 1};
constexpr Tag share_tag{Channel::checkpoint, 2};

template <typename Container>
std::span<std::byte> bytes_of(Container& container) {
  return std::as_writable_bytes(std::span(container.data(), container.size()));
}

}  // namespace

Checkpointer::Checkpointer(const RankContext& context, Snapshot& snapshot, Optimizer& optimizer,
                           std::function<std::vector<StateScalar>()> scalars)
    : context_(&context),
      snapshot_(&snapshot),
      optimizer_(&optimizer),
      scalars_(std::move(scalars)),
      gate_(context.loop) {
  if (context.transport.rank() == 0)
    files_ = context.host.make_stream("checkpoint files", runtime::StreamWidth::one);
}

std::vector<Wait> Checkpointer::waits() const {
  std::vector<Wait> all;
  if (!current_) return all;
  if (context_->transport.rank() != 0 && current_->opened == Target::awaited) {
    all.push_back({.what = fmt::format("the folder for the checkpoint of step {}", current_->step),
                   .rank = 0,
                   .since = current_->began});
  }
  for (std::size_t rank = 1; rank < reports_.size(); ++rank) {
    if (reports_[rank] != nullptr) continue;
    all.push_back({.what = fmt::format("its share of the checkpoint of step {}", current_->step),
                   .rank = static_cast<int>(rank),
                   .since = current_->began});
  }
  return all;
}

std::string Checkpointer::details() const {
  if (!current_) return {};
  return fmt::format("of step {}, {}", current_->step, current_->copied ? "being committed" : "being copied");
}

void Checkpointer::start(std::int64_t step) {
  for (Series& series : series_) {
    series.step = step;
    series.at = context_->loop.now();
  }
}

int Checkpointer::wish(std::int64_t step) const {
  if (context_->transport.rank() != 0 || current_) return 0;
  // A series that is due by step number goes first, and the one with the longest interval first of all, so that it gets
  // exactly its step.
  int wished = 0;
  std::int64_t seldom = -1;
  for (std::size_t s = 0; s < series_.size(); ++s) {
    const auto& [options, last, at] = series_[s];
    const bool by_steps = series_[s].due_by_steps(step);
    const bool by_time =
        options.period > runtime::Duration{} && context_->loop.now() - at >= options.period && step > last;
    if (const std::int64_t every = by_steps ? options.every : 0; (by_steps || by_time) && every >= seldom) {
      seldom = every;
      wished = static_cast<int>(s) + 1;
    }
  }
  return wished;
}

void Checkpointer::take(int series, std::int64_t step) { begin(static_cast<std::size_t>(series - 1), step); }

void Checkpointer::begin(std::size_t number, std::int64_t step) {
  // Rank 0 requests a checkpoint only after all ranks have finished the previous one.
  expect(!current_, "checkpoint of step {} starts before checkpoint {} has ended", step,
         current_ ? current_->step : 0);
  Series& series = series_[number];
  series.step = step;
  series.at = context_->loop.now();
  current_ = {.series = number,
              .step = step,
              .scalars = scalars_(),
              .began = series.at,
              .waited_before = snapshot_->waited()};
  gate_.shut();
  if (last_step_) target().is_last();
  if (context_->transport.rank() == 0) {
    reports_.assign(static_cast<std::size_t>(context_->transport.ranks()), nullptr);
    for (int rank = 1; rank < context_->transport.ranks(); ++rank) receive(rank);
    target().begin(step);
    on_host(
        "the folder for step", [step](CheckpointTarget& target) { target.prepare(step); },
        [this](std::string failure) { prepared(std::move(failure)); });
  } else {
    const auto is_prepared = std::make_shared<std::int64_t>();
    context_->transport.receive(0, go_tag, std::as_writable_bytes(std::span(is_prepared.get(), 1)),
                                [this, is_prepared] { open(*is_prepared != 0); });
  }
  optimizer_->when_stored([this] {
    snapshot_->begin(series_[current_->series].options.selection, gate_, [this] {
      current_->copied = true;
      close_if_due();
    });
  });
}

void Checkpointer::on_host(const char* what, std::function<void(CheckpointTarget&)> work,
                           std::function<void(std::string)> done) {
  const auto failure = std::make_shared<std::string>();
  files_->launch([target = &target(), work = std::move(work), failure](runtime::ComputePool&) {
    try {
      work(*target);
    } catch (const std::exception& error) {
      *failure = error.what();
    }
  });
  context_->loop.after_work(
      *files_, {.part = name(), .text = what, .number = current_->step, .patience = runtime::checkpoint_patience},
      [failure, done = std::move(done)] { done(*failure); });
}

void Checkpointer::prepared(std::string failure) {
  current_->not_prepared = std::move(failure);
  const auto is_prepared = std::make_shared<std::int64_t>(current_->not_prepared.empty());
  for (int rank = 1; rank < context_->transport.ranks(); ++rank) {
    ++sends_;
    context_->transport.send(rank, go_tag, std::as_bytes(std::span(is_prepared.get(), 1)),
                             [this, is_prepared] { sent(); });
  }
  open(*is_prepared != 0);
}

void Checkpointer::open(bool is_prepared) {
  if (!is_prepared) {
    current_->opened = Target::refused;
    gate_.open(nullptr, 0);
    return close_if_due();
  }
  target().open(current_->step, [this] {
    current_->opened = Target::open;
    const double rate = series_[current_->series].options.bytes_per_second;
    gate_.open(&target(), last_step_ ? 0 : rate);
    close_if_due();
  });
}

void Checkpointer::close_if_due() {
  if (!current_->copied || current_->opened == Target::awaited) return;
  if (current_->opened == Target::refused) return closed({});
  target().close([this](CheckpointShare share) { closed(std::move(share)); });
}

void Checkpointer::closed(CheckpointShare share) {
  const auto leaving = std::make_shared<Report>();
  leaving->share = std::move(share);
  const std::array<runtime::ConstBytes, 2> ranges = {leaving->share.data, bytes_of(leaving->share.failure)};
  leaving->header = {.waited = snapshot_->waited() - current_->waited_before,
                     .bytes = leaving->share.bytes,
                     .data_bytes = ranges[0].size(),
                     .failure_bytes = ranges[1].size()};
  if (context_->transport.rank() == 0) return arrived(0, leaving);
  ++sends_;
  context_->transport.send(0, header_tag, std::as_bytes(std::span(&leaving->header, 1)),
                           [this, leaving] { sent(); });
  if (!ranges[0].empty() || !ranges[1].empty()) {
    ++sends_;
    context_->transport.send(0, share_tag, ranges, [this, leaving] { sent(); });
  }
  over();
}

void Checkpointer::sent() {
  --sends_;
  if (last_step_ && !current_) take_last();
}

void Checkpointer::receive(int rank) {
  const auto arriving = std::make_shared<Report>();
  const auto header = std::as_writable_bytes(std::span(&arriving->header, 1));
  context_->transport.receive(rank, header_tag, header, [this, rank, arriving] {
    auto& [announced, share] = *arriving;
    share.bytes = announced.bytes;
    share.data.resize(announced.data_bytes);
    share.failure.resize(announced.failure_bytes);
    if (share.data.empty() && share.failure.empty()) return arrived(rank, arriving);
    const std::array<runtime::Bytes, 2> ranges = {share.data, bytes_of(share.failure)};
    context_->transport.receive(rank, share_tag, ranges, [this, rank, arriving] { arrived(rank, arriving); });
  });
}

void Checkpointer::arrived(int rank, const std::shared_ptr<Report>& report) {
  reports_[static_cast<std::size_t>(rank)] = report;
  if (std::string& failure = report->share.failure; !failure.empty())
    failure = fmt::format("rank {}: {}", rank, failure);
  if (std::ranges::count(reports_, nullptr) == 0) commit();
}

void Checkpointer::commit() {
  const auto shares = std::make_shared<std::vector<CheckpointShare>>();
  std::string failure = current_->not_prepared;
  for (const auto& report : reports_) {
    const CheckpointShare& share = shares->emplace_back(std::move(report->share));
    if (failure.empty()) failure = share.failure;
    current_->bytes += share.bytes;
    current_->max_waited = std::max(current_->max_waited, report->header.waited);
  }
  if (!failure.empty()) return fail_with(std::move(failure));
  const auto warning = std::make_shared<std::string>();
  on_host(
      "the commit of step",
      [this, shares, warning](CheckpointTarget& target) {
        *warning = target.commit(current_->step, current_->scalars, *shares);
      },
      [this, warning](std::string problem) {
        if (!problem.empty()) return fail_with(std::move(problem));
        conclude({}, *warning);
      });
}

void Checkpointer::fail_with(std::string failure) {
  on_host(
      "the cleanup of step", [this](CheckpointTarget& target) { target.discard(current_->step); },
      [this, failure = std::move(failure)](const std::string&) { conclude(failure, {}); });
}

void Checkpointer::conclude(std::string failure, std::string warning) {
  const auto& tell = series_[current_->series].options.result;
  if (tell) {
    tell({.step = current_->step,
          .last = last_step_ == current_->step,
          .bytes = current_->bytes,
          .seconds = runtime::seconds(context_->loop.now() - current_->began),
          .waited_seconds = runtime::seconds(current_->max_waited),
          .failure = std::move(failure),
          .warning = std::move(warning)});
  }
  over();
}

void Checkpointer::over() {
  current_.reset();
  if (last_step_) take_last();
}

void Checkpointer::finish(std::optional<std::int64_t> step, runtime::Handler done) {
  last_step_ = step.value_or(0);  // 0: nothing to save
  finished_ = std::move(done);
  gate_.hurry();
  if (!current_) take_last();
}

void Checkpointer::take_last() {
  for (std::size_t s = 0; s < series_.size(); ++s) {
    const Series& series = series_[s];
    const bool wanted = series.options.at_end ? series.step < *last_step_ : series.due_by_steps(*last_step_);
    if (wanted) return begin(s, *last_step_);
  }
  if (sends_ == 0) std::exchange(finished_, nullptr)();
}

}  // namespace ranvier::actors
