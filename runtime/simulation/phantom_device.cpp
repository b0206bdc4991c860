#include "runtime/simulation/phantom_device.hpp"

#include "runtime/base/arithmetic.hpp"
#include "runtime/base/error.hpp"
#include "runtime/device/arena.hpp"
#include "runtime/device/memory_limit.hpp"
#include "runtime/files/xxh3.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <deque>
#include <random>
#include <unordered_map>
#include <utility>
#include <vector>

namespace ranvier::runtime {

PhantomSpace::~PhantomSpace() {
  if (unreachable_ != nullptr) munmap(unreachable_, unreachable_bytes);
}

namespace {

std::byte* map(std::size_t bytes, int protection) {
  void* const data = mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED)
    fail(ErrorCode::memory, "the system refused {} of addresses for a phantom device: {}", format_bytes(bytes),
         std::strerror(errno));
  return static_cast<std::byte*>(data);
}

}  // namespace

std::byte* PhantomSpace::unreachable() {
  if (unreachable_ == nullptr) unreachable_ = map(unreachable_bytes, PROT_NONE);
  return unreachable_;
}

namespace {

class PhantomStream;

/// Nanoseconds of work: alone on the node, and with all its cores busy; and bytes to copy over the host link.
struct WorkTime {
  double alone = 0, crowded = 0;
  CopyDirection direction = CopyDirection::none;
  double link_bytes = 0;

  WorkTime& operator+=(const WorkTime& more) {
    alone += more.alone;
    crowded += more.crowded;
    return *this;
  }
};

/// One record of an event.
struct Mark {
  bool reached = false;
  std::vector<PhantomStream*> waiting;
};

class PhantomEvent final : public Event {
 public:
  void record(StreamView stream) override;
  [[nodiscard]] bool reached() const override { return mark_ == nullptr || mark_->reached; }

  [[nodiscard]] const std::shared_ptr<Mark>& mark() const noexcept { return mark_; }

 private:
  std::shared_ptr<Mark> mark_;
};

class ComputingPhantom final : public PhantomDevice {
 public:
  ComputingPhantom(VirtualTime& time, VirtualCores& cores, PhantomSpace& space, const PhantomDeviceOptions& options)
      : time_(time), cores_(cores), space_(space), options_(options), random_(options.seed) {
    expect(options.costs != nullptr, "a phantom device has no costs");
    const double variance = std::log1p(options.jitter * options.jitter);
    jitter_ = std::lognormal_distribution<double>(-variance / 2, std::sqrt(variance));
    min_jitter_ = min_jitter(options.jitter);
  }

  [[nodiscard]] DeviceKind kind() const noexcept override { return DeviceKind::phantom; }
  [[nodiscard]] std::string description() const override {
    return fmt::format("phantom, {} thread{}", threads(), threads() == 1 ? "" : "s");
  }
  [[nodiscard]] int threads() const noexcept override { return options_.threads; }
  [[nodiscard]] std::size_t used_bytes() const noexcept override { return *used_; }
  [[nodiscard]] std::size_t budget_bytes() const noexcept override { return options_.budget_bytes; }
  [[nodiscard]] bool apart() const noexcept override { return options_.apart; }
  [[nodiscard]] bool host_reaches(const void* address) const override {
    if (!options_.apart) return true;
    const std::byte* const begin = space_.unreachable();
    return address < begin || address >= begin + PhantomSpace::unreachable_bytes;
  }
  [[nodiscard]] Buffer allocate(std::size_t bytes, MemorySpace space) override;
  [[nodiscard]] std::unique_ptr<Stream> make_stream(std::string name, StreamWidth width) override;
  [[nodiscard]] std::unique_ptr<Event> make_event() override { return std::make_unique<PhantomEvent>(); }
  [[nodiscard]] std::unique_ptr<Device> make_host_device(int threads) const override {
    PhantomDeviceOptions host = options_;
    host.apart = false;
    host.threads = threads;
    host.budget_bytes = std::numeric_limits<std::size_t>::max();
    host.costs = options_.host_costs != nullptr ? options_.host_costs : options_.costs;
    host.seed = ~options_.seed;
    return std::make_unique<ComputingPhantom>(time_, cores_, space_, host);
  }
  [[nodiscard]] Duration busy() const noexcept override { return busy_; }
  [[nodiscard]] HostLinkBytes host_link_bytes() const noexcept override { return link_bytes_; }
  void hold(Duration until) override {
    const Duration from = std::max(time_.now(), held_until_);
    if (until <= from) return;
    stretch_ += until - from;
    held_until_ = until;
  }
  /// Returns and clears the delay of work that is under way or starts now.
  [[nodiscard]] Duration take_stretch() { return std::exchange(stretch_, Duration{}); }
  /// Called when work starts: only the rest of hold() delays it.
  void begin_stretch() { stretch_ = std::max(Duration{}, held_until_ - time_.now()); }

  /// End of a copy that starts now: the host link has one at a time per direction, in the order of the starts.
  [[nodiscard]] Duration end_of_copy(CopyDirection direction, Duration takes) {
    Duration& free = direction == CopyDirection::to_host ? to_host_free_ : to_device_free_;
    return free = std::max(free, time_.now()) + takes;
  }

  /// Time of work on a device with slowness 1 and without jitter.
  [[nodiscard]] WorkTime usual_time(const WorkCost& cost, bool whole) const {
    const bool narrow = !whole && options_.narrow_costs != nullptr;
    const CostModel& costs = *(narrow ? options_.narrow_costs : options_.costs);
    const auto time = static_cast<double>(costs.duration(cost).count());
    return {.alone = time,
            .crowded = options_.crowding ? time * options_.crowding(cost) : time,
            .direction = cost.direction,
            .link_bytes = cost.direction == CopyDirection::none ? 0 : cost.bytes};
  }
  [[nodiscard]] WorkTime time_of(const WorkTime& usual) {
    double slowness = options_.slowness;
    if (options_.jitter > 0) slowness *= std::max(min_jitter_, jitter_(random_));
    return {.alone = usual.alone * slowness,
            .crowded = usual.crowded * slowness,
            .direction = usual.direction,
            .link_bytes = usual.link_bytes};
  }

 private:
  friend class PhantomStream;

  VirtualTime& time_;
  VirtualCores& cores_;
  PhantomSpace& space_;
  PhantomDeviceOptions options_;
  std::mt19937_64 random_;
  std::lognormal_distribution<double> jitter_;
  double min_jitter_ = 1;
  std::shared_ptr<std::size_t> used_ = std::make_shared<std::size_t>(0);
  std::size_t next_ = 0;  // offset of the next allocation in the unreachable range
  Duration busy_{};
  Duration to_device_free_{}, to_host_free_{};  // times when the host link is free
  HostLinkBytes link_bytes_;
  Duration held_until_{}, stretch_{};  // wide stream only
};

class PhantomStream final : public Stream {
 public:
  PhantomStream(ComputingPhantom& device, std::string name, StreamWidth width)
      : Stream(device, std::move(name), width), device_(device) {}

  void launch(Work) override {
    fail(ErrorCode::internal,
         "stream '{}' of a phantom device has work without a cost, so its duration is unknown; launch the work "
         "with a WorkCost",
         name());
  }
  void launch(const WorkCost& cost, Work) override;
  /// Replays recorded work times of the key: calls that queue work are the largest cost of the simulation.
  void repeat(std::span<const std::uint64_t> key, const std::function<void()>& queue) override;
  [[nodiscard]] GraphStats graph_stats() const override { return graph_stats_; }
  void call_back(std::function<void()> function) override;
  void wait(const Event& event) override;
  void synchronize() override {}  // unused in training steps; afterwards the result does not matter

  void mark(const std::shared_ptr<Mark>& mark);
  /// Continues after a mark that was reached.
  void wake();

 private:
  struct Item {
    enum class Kind { work, call, mark, wait } kind;
    WorkTime time;
    std::function<void()> call;
    std::shared_ptr<Mark> mark;
  };

  struct KeyHash {
    std::size_t operator()(const std::vector<std::uint64_t>& key) const noexcept {
      return static_cast<std::size_t>(xxh3(std::as_bytes(std::span(key))));
    }
  };

  [[nodiscard]] bool idle() const noexcept { return !running_ && items_.empty(); }
  void add(const WorkTime& usual);
  void run();
  void begin(const WorkTime& time);
  void stretch();
  void end();
  static void reach(const std::shared_ptr<Mark>& mark);

  ComputingPhantom& device_;
  std::deque<Item> items_;
  /// True while work is under way or run() handles an item.
  bool running_ = false;
  std::unordered_map<std::vector<std::uint64_t>, std::vector<WorkTime>, KeyHash> kept_;  // times of work, by key
  std::vector<std::uint64_t> key_;                                                       // key to look up
  std::vector<WorkTime>* keeps_ = nullptr;  // recording of the current repeat() call
  GraphStats graph_stats_;
};

void PhantomEvent::record(StreamView stream) {
  auto* const phantom = dynamic_cast<PhantomStream*>(&stream.stream());
  expect(phantom != nullptr, "an event of a phantom device is recorded on stream {} of another kind of device",
         stream.name());
  mark_ = std::make_shared<Mark>();
  phantom->mark(mark_);
}

void PhantomStream::launch(const WorkCost& cost, Work) {
  const WorkTime usual = device_.usual_time(cost, whole());
  if (keeps_ != nullptr) keeps_->push_back(usual);
  add(usual);
}

void PhantomStream::repeat(std::span<const std::uint64_t> key, const std::function<void()>& queue) {
  key_.assign(key.begin(), key.end());
  if (const auto known = kept_.find(key_); known != kept_.end()) {
    ++graph_stats_.replayed;
    for (const WorkTime& usual : known->second) add(usual);
    return;
  }
  ++graph_stats_.queued;
  std::vector<WorkTime> times;
  keeps_ = &times;
  try {
    queue();
  } catch (...) {
    keeps_ = nullptr;
    throw;
  }
  keeps_ = nullptr;
  kept_.emplace(key_, std::move(times));
  graph_stats_.kept = kept_.size();
}

void PhantomStream::add(const WorkTime& usual) {
  count_done();
  const WorkTime time = device_.time_of(usual);
  if (time.direction == CopyDirection::to_device) device_.link_bytes_.to_device += time.link_bytes;
  if (time.direction == CopyDirection::to_host) device_.link_bytes_.to_host += time.link_bytes;
  if (time.alone <= 0) return;
  const auto joins = [&](const Item& last) {
    return last.kind == Item::Kind::work && last.time.direction == CopyDirection::none &&
           time.direction == CopyDirection::none;
  };
  if (!items_.empty() && joins(items_.back())) {
    items_.back().time += time;
  } else if (idle()) {
    begin(time);
  } else {
    items_.push_back({.kind = Item::Kind::work, .time = time, .call = {}, .mark = {}});
  }
}

void PhantomStream::call_back(std::function<void()> function) {
  count_done();
  if (idle()) return function();
  items_.push_back({.kind = Item::Kind::call, .call = std::move(function), .mark = {}});
}

void PhantomStream::mark(const std::shared_ptr<Mark>& mark) {
  if (idle()) return reach(mark);
  items_.push_back({.kind = Item::Kind::mark, .call = {}, .mark = mark});
}

void PhantomStream::wait(const Event& event) {
  const auto* const phantom = dynamic_cast<const PhantomEvent*>(&event);
  expect(phantom != nullptr, "stream {} waits for an event of another kind of device", name());
  if (phantom->reached()) return;
  const bool was_idle = idle();
  items_.push_back({.kind = Item::Kind::wait, .call = {}, .mark = phantom->mark()});
  if (was_idle) run();
}

void PhantomStream::begin(const WorkTime& time) {
  running_ = true;
  const int threads = device_.apart() ? 0 : whole() ? device_.threads() : 1;
  const Duration began = device_.time_.now();
  if (whole()) device_.begin_stretch();
  const VirtualCores::Work work{Duration(std::llround(time.alone)), Duration(std::llround(time.crowded))};
  auto done = [this, began] {
    if (!whole()) return end();
    device_.busy_ += device_.time_.now() - began;
    stretch();
  };
  if (time.direction == CopyDirection::none) return device_.cores_.run(work, threads, std::move(done));
  device_.time_.at(device_.end_of_copy(time.direction, work.alone), std::move(done));
}

/// Ends work once no hold() delays it any longer.
void PhantomStream::stretch() {
  const Duration held = device_.take_stretch();
  if (held == Duration{}) return end();
  device_.time_.at(device_.time_.now() + held, [this] { stretch(); });
}

void PhantomStream::end() {
  running_ = false;
  run();
}

void PhantomStream::wake() {
  if (!running_) run();
}

void PhantomStream::run() {
  while (!items_.empty()) {
    if (items_.front().kind == Item::Kind::wait && !items_.front().mark->reached) {
      items_.front().mark->waiting.push_back(this);
      return;
    }
    const Item item = std::move(items_.front());
    items_.pop_front();
    switch (item.kind) {
      case Item::Kind::work:
        return begin(item.time);
      case Item::Kind::call:
        running_ = true;  // the callback may queue more
        item.call();
        running_ = false;
        break;
      case Item::Kind::mark:
        running_ = true;
        reach(item.mark);
        running_ = false;
        break;
      case Item::Kind::wait:
        break;
    }
  }
}

void PhantomStream::reach(const std::shared_ptr<Mark>& mark) {
  mark->reached = true;
  for (PhantomStream* const stream : std::exchange(mark->waiting, {})) stream->wake();
}

Buffer ComputingPhantom::allocate(std::size_t bytes, MemorySpace space) {
  if (bytes == 0) return {};
  const bool counts = space == MemorySpace::device;
  if (counts && (*used_ > options_.budget_bytes || bytes > options_.budget_bytes - *used_))
    refuse_allocation(bytes, *used_, options_.budget_bytes);
  const bool far = counts && options_.apart;
  std::byte* data = nullptr;
  if (far) {
    constexpr std::size_t page_bytes = 4096;
    const std::size_t rounded = round_up(bytes, page_bytes);
    if (rounded > PhantomSpace::unreachable_bytes - next_)
      fail(ErrorCode::memory, "{} of device memory requested, but a phantom device has {} of addresses",
           format_bytes(bytes), format_bytes(PhantomSpace::unreachable_bytes));
    data = space_.unreachable() + next_;
    next_ += rounded;
  } else {
    data = map(bytes, PROT_READ | PROT_WRITE);  // zeros that take physical memory only when written
  }
  if (counts) *used_ += bytes;
  return Buffer(data, bytes, [far, counts, used = used_](std::byte* released, std::size_t size) {
    if (!far) munmap(released, size);
    if (counts) *used -= size;
  });
}

std::unique_ptr<Stream> ComputingPhantom::make_stream(std::string name, StreamWidth width) {
  return std::make_unique<PhantomStream>(*this, std::move(name), width);
}

}  // namespace

double min_jitter(double jitter) {
  const double variance = std::log1p(jitter * jitter);
  return std::exp(-variance / 2 - 3 * std::sqrt(variance));
}

std::unique_ptr<PhantomDevice> make_phantom_device(VirtualTime& time, VirtualCores& cores, PhantomSpace& space,
                                                   const PhantomDeviceOptions& options) {
  return std::make_unique<ComputingPhantom>(time, cores, space, options);
}

namespace {

/// Device without memory and events, whose only stream records costs.
class CostRecorder final : public Device, public Stream {
 public:
  explicit CostRecorder(const RecordedDevice& device) : Stream(*this, "costs", StreamWidth::one), device_(device) {}

  [[nodiscard]] const std::vector<WorkCost>& costs() const { return costs_; }

  [[nodiscard]] DeviceKind kind() const noexcept override { return DeviceKind::phantom; }
  [[nodiscard]] std::string description() const override { return name(); }
  [[nodiscard]] int threads() const noexcept override { return device_.threads; }
  [[nodiscard]] std::size_t used_bytes() const noexcept override { return 0; }
  [[nodiscard]] std::size_t budget_bytes() const noexcept override { return 0; }
  [[nodiscard]] bool apart() const noexcept override { return device_.apart; }
  [[nodiscard]] bool host_reaches(const void* address) const override { return device_.host_reaches(address); }
  [[nodiscard]] Buffer allocate(std::size_t, MemorySpace) override { refuse(); }
  [[nodiscard]] std::unique_ptr<Stream> make_stream(std::string, StreamWidth) override { refuse(); }
  [[nodiscard]] std::unique_ptr<Event> make_event() override { refuse(); }

  void launch(Work) override { fail(ErrorCode::internal, "work of a profile states no cost"); }
  void launch(const WorkCost& cost, Work) override { costs_.push_back(cost); }
  void call_back(std::function<void()> function) override { function(); }
  void wait(const Event&) override {}
  void synchronize() override {}

 private:
  [[noreturn]] static void refuse() { fail(ErrorCode::internal, "a cost recorder has only one stream"); }

  const RecordedDevice& device_;
  std::vector<WorkCost> costs_;
};

}  // namespace

std::vector<WorkCost> costs_of(const RecordedDevice& device, const std::function<void(StreamView)>& queue) {
  CostRecorder recorder(device);
  queue(recorder);
  return recorder.costs();
}

}  // namespace ranvier::runtime
