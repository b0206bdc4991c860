#include "runtime/trace/trace.hpp"

#include "runtime/base/error.hpp"
#include "runtime/base/names.hpp"
#include "runtime/trace/profiler_ranges.hpp"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

namespace ranvier::runtime {

namespace {

constexpr std::size_t lanes = 5;
constexpr int rows_per_lane = 100;
// Spans are recorded shortly after they end. If this many in a row ended before a time, all older ones did, too.
constexpr int enough_older = 256;

const char* to_string(Trace::Lane lane) noexcept {
  return enum_name<Trace::Lane::steps>(lane, {"compute", "communicate", "loop", "files", "steps"});
}

std::string name_of(SpanKind kind, int index) {
  return index < 0 ? std::string(to_string(kind)) : fmt::format("{} {}", to_string(kind), index);
}

/// "forward 3"; in a validation "validation forward 3".
std::string name_of(const Trace::Span& span) {
  const std::string name = name_of(span.kind, span.index);
  if (span.activity == SpanKind::step || span.lane == Trace::Lane::steps) return name;
  return fmt::format("{} {}", to_string(span.activity), name);
}

}  // namespace

const char* to_string(SpanKind kind) noexcept {
  return enum_name<SpanKind::other>(
      kind, {"forward", "backward", "weights", "optimizer", "gather", "reduce", "send", "receive", "wait", "load",
             "step", "validation", "sampling", "check", "other"});
}

Trace::Trace(int rank, const Clock& clock, std::size_t capacity)
    : rank_(rank), clock_(&clock), start_(clock.now()), capacity_(capacity) {
  expect(capacity >= 1, "a trace of {} spans", capacity);
  ring_.reserve(capacity);  // growing would copy spans under the lock; unused pages take no memory
}

std::int64_t Trace::step() const {
  const std::lock_guard lock(mutex_);
  return step_;
}

void Trace::add(SpanKind kind, Lane lane, Duration begin, Duration end, int index) {
  if (profiler::attached()) {
    const std::chrono::duration<double, std::milli> took = end - begin;
    profiler::mark(fmt::format("{}, {:.3f} ms", name_of(kind, index), took.count()));
  }
  record(kind, lane, begin, end, index);
}

void Trace::record(SpanKind kind, Lane lane, Duration begin, Duration end, int index) {
  const std::lock_guard lock(mutex_);
  const Span span{kind, lane, index, (begin - start_).count(), (end - start_).count(), step_, activity_};
  auto& covered = covered_until_ns_[static_cast<std::size_t>(kind)];
  const std::int64_t begin_ns = std::max(span.begin_ns, covered);
  if (span.end_ns > begin_ns) {
    seconds_[static_cast<std::size_t>(kind)] += static_cast<double>(span.end_ns - begin_ns) * 1e-9;
    covered = span.end_ns;
  }
  if (lane == Lane::files && span.end_ns > files_until_ns_) {
    const std::int64_t from_ns = std::max(span.begin_ns, files_until_ns_);
    files_alone_seconds_ += static_cast<double>(span.end_ns - from_ns - computed_ns(from_ns, span.end_ns)) * 1e-9;
    files_until_ns_ = span.end_ns;
  }
  if (ring_.size() < capacity_) {
    ring_.push_back(span);
  } else {
    ring_[next_] = span;
    next_ = (next_ + 1) % capacity_;
  }
}

std::int64_t Trace::computed_ns(std::int64_t from_ns, std::int64_t to_ns) const {
  std::int64_t until_ns = std::min(to_ns, runs_since_ns_);  // everything from here to to_ns counts as computed
  std::int64_t computed = to_ns - std::max(from_ns, until_ns);
  int older = 0;
  for (std::size_t i = 0; i < ring_.size() && older < enough_older && until_ns > from_ns; ++i) {
    const Span& span = ring_[(next_ + ring_.size() - 1 - i) % ring_.size()];
    older = span.end_ns <= from_ns ? older + 1 : 0;
    if (span.lane != Lane::compute) continue;
    const std::int64_t begin = std::max(span.begin_ns, from_ns), end = std::min(span.end_ns, until_ns);
    if (end <= begin) continue;
    computed += end - begin;
    until_ns = begin;
  }
  return computed;
}

void Trace::set_activity(SpanKind activity, std::int64_t step) {
  const std::lock_guard lock(mutex_);
  activity_ = activity;
  step_ = static_cast<std::int32_t>(step);
}

void Trace::begin(StreamView stream, SpanKind kind, int index) {
  auto began = std::make_shared<Duration>();
  const std::uint64_t range = profiler::attached() ? profiler::begin_range(name_of(kind, index)) : 0;
  {
    const std::lock_guard lock(mutex_);
    open_.push_back({stream, kind, index, began, range});
  }
  stream.call_back([this, began] {
    const std::lock_guard lock(mutex_);
    *began = now();
    if (running_++ == 0) runs_since_ns_ = (*began - start_).count();
  });
}

void Trace::end(StreamView stream, SpanKind kind, Lane lane, int index) {
  std::shared_ptr<Duration> began;
  std::uint64_t range = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto matching = std::find_if(open_.rbegin(), open_.rend(), [&](const Open& open) {
      return open.stream == stream && open.kind == kind && open.index == index;
    });
    expect(matching != open_.rend(), "the trace has no open span {} {} on stream {}", to_string(kind), index,
           stream.name());
    began = std::move(matching->began);
    range = matching->profiler_range;
    open_.erase(std::next(matching).base());
  }
  if (profiler::attached()) profiler::end_range(range);
  stream.call_back([this, began, kind, lane, index] {
    record(kind, lane, *began, now(), index);
    const std::lock_guard lock(mutex_);
    if (--running_ == 0) runs_since_ns_ = not_running;
  });
}

double Trace::seconds(SpanKind kind) const {
  const std::lock_guard lock(mutex_);
  return seconds_[static_cast<std::size_t>(kind)];
}

double Trace::seconds_of_files_alone() const {
  const std::lock_guard lock(mutex_);
  return files_alone_seconds_;
}

void Trace::restart() {
  const std::lock_guard lock(mutex_);
  start_ = now();
  ring_.clear();
  next_ = 0;
  seconds_.fill(0);
  covered_until_ns_.fill(0);
  files_until_ns_ = 0;
  files_alone_seconds_ = 0;
}

std::vector<Trace::Span> Trace::spans() const {
  const std::lock_guard lock(mutex_);
  std::vector<Span> oldest_first(ring_.begin() + static_cast<std::ptrdiff_t>(next_), ring_.end());
  oldest_first.insert(oldest_first.end(), ring_.begin(), ring_.begin() + static_cast<std::ptrdiff_t>(next_));
  return oldest_first;
}

std::vector<Trace::Span> Trace::longest_between(std::int64_t from_ns, std::int64_t to_ns, std::size_t most) const {
  std::vector<Span> found;
  {
    const std::lock_guard lock(mutex_);
    int older = 0;
    for (std::size_t i = 0; i < ring_.size() && older < enough_older; ++i) {
      const Span& span = ring_[(next_ + ring_.size() - 1 - i) % ring_.size()];
      older = span.end_ns <= from_ns ? older + 1 : 0;
      if (span.end_ns > from_ns && span.begin_ns < to_ns) found.push_back(span);
    }
  }
  if (found.size() > most) {
    std::nth_element(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(most), found.end(),
                     [](const Span& a, const Span& b) { return a.end_ns - a.begin_ns > b.end_ns - b.begin_ns; });
    found.resize(most);
  }
  std::sort(found.begin(), found.end(), [](const Span& a, const Span& b) { return a.begin_ns < b.begin_ns; });
  return found;
}

std::int64_t Trace::elapsed_ns() const {
  const std::lock_guard lock(mutex_);
  return (now() - start_).count();
}

std::string Trace::tail(std::size_t count) const {
  const auto all = spans();
  std::string text;
  for (std::size_t i = all.size() - std::min(count, all.size()); i < all.size(); ++i)
    fmt::format_to(std::back_inserter(text), "{:12.6f} s  {:10.3f} ms  step {}  {:<11}  {}\n",
                   static_cast<double>(all[i].begin_ns) * 1e-9,
                   static_cast<double>(all[i].end_ns - all[i].begin_ns) * 1e-6, all[i].step, to_string(all[i].lane),
                   name_of(all[i]));
  return text;
}

std::string Trace::chrome_events(std::size_t newest) const {
  auto all = spans();
  std::stable_sort(all.begin(), all.end(), [](const Span& a, const Span& b) { return a.begin_ns < b.begin_ns; });
  if (all.size() > newest) all.erase(all.begin(), all.end() - static_cast<std::ptrdiff_t>(newest));

  // The format forbids overlapping spans in a row, so concurrent messages get rows below each other.
  std::array<std::vector<std::int64_t>, lanes> row_ends;
  std::string events =
      fmt::format(R"({{"ph":"M","name":"process_name","pid":{0},"args":{{"name":"rank {0}"}}}})", rank_);
  const auto append = std::back_inserter(events);
  for (const Span& span : all) {
    const auto lane = static_cast<std::size_t>(span.lane);
    auto& ends = row_ends[lane];
    const auto free_row =
        std::find_if(ends.begin(), ends.end(), [&](std::int64_t end) { return end <= span.begin_ns; });
    const auto row = free_row - ends.begin();
    const int thread = static_cast<int>(lane) * rows_per_lane + static_cast<int>(row);
    if (free_row == ends.end()) {
      ends.push_back(span.end_ns);
      fmt::format_to(append,
                     ",\n"
                     R"({{"ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":"{}"}}}})",
                     rank_, thread,
                     row == 0 ? to_string(span.lane) : fmt::format("{} {}", to_string(span.lane), row + 1));
    } else {
      *free_row = span.end_ns;
    }
    fmt::format_to(append,
                   ",\n"
                   R"({{"ph":"X","name":"{}","cat":"{}","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},)"
                   R"("args":{{"step":{}}}}})",
                   name_of(span), to_string(span.kind), rank_, thread, static_cast<double>(span.begin_ns) * 1e-3,
                   static_cast<double>(span.end_ns - span.begin_ns) * 1e-3, span.step);
  }
  return events;
}

void write_trace_file(const std::filesystem::path& path, std::span<const std::string> events,
                      AtomicFile::Retry retry) {
  AtomicFile file(path, std::move(retry));
  const auto append = [&file](std::string_view text) { file.append(text.data(), text.size()); };
  std::string_view before = "{\"traceEvents\":[\n";
  for (const std::string& rank : events) {
    if (rank.empty()) continue;
    append(before);
    append(rank);
    before = ",\n";
  }
  if (before != ",\n") append(before);
  append("\n]}\n");
  file.commit();
}

}  // namespace ranvier::runtime
