// NCCL of all ranks of a simulation, over host memory: the functions that NcclColumn calls, without a GPU. It is as
// strict as real NCCL. Communicators are non-blocking: a group's launches reach the stream after some polls; no other
// call on the communicator is allowed before. A stream's work waits for earlier work, and a collective for all its
// ranks, so operations in different orders deadlock. A GPU runs a few kernels at a time; it starts them in launch order
// if NCCL keeps that, or else as they come.
//
// Sums are added around a ring from the rank after the element's owner, which is the order of the ring's plan if the
// ranks are in one row.
#pragma once

#include "collectives/nccl/nccl_library.hpp"
#include "runtime/base/error.hpp"
#include "runtime/device/device.hpp"
#include "tests/collectives/reference.hpp"
#include "tests/doubles/forwarding.hpp"

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace ranvier::test {

using collectives::NcclLibrary;

class NcclWorld;

/// Work that is done when `left` of it is 0; `begin` is called when all earlier work is done.
struct WaitingKernel {
  std::function<void()> begin;
  std::size_t left = 0;
  bool begun = false;
};

/// An inline device whose streams may have to wait, on the thread of the simulation.
class WaitingGpu final : public tests::ForwardingDevice {
 public:
  explicit WaitingGpu(NcclWorld& world) : ForwardingDevice(runtime::make_inline_device()), world_(world) {}

  [[nodiscard]] std::unique_ptr<runtime::Stream> make_stream(std::string name, runtime::StreamWidth width) override;
  [[nodiscard]] std::unique_ptr<runtime::Event> make_event() override;

  std::vector<std::size_t> launches;  ///< elements of the first call of each launch, in order

 private:
  friend class WaitingStream;

  /// Returns whether a kernel that NCCL launched on this GPU may start.
  [[nodiscard]] bool may_begin(const WaitingKernel& kernel);

  NcclWorld& world_;
  std::deque<std::shared_ptr<WaitingKernel>> launched_;  // unfinished kernels, in the order of the calls
};

class WaitingEvent final : public runtime::Event {
 public:
  void record(runtime::StreamView stream) override;
  [[nodiscard]] bool reached() const override { return !last_ || *last_; }

 private:
  friend class WaitingStream;
  std::shared_ptr<bool> last_;
};

class WaitingStream final : public runtime::Stream {
 public:
  WaitingStream(WaitingGpu& gpu, std::string name, runtime::StreamWidth width);
  ~WaitingStream() override;

  void launch(Work work) override;
  void call_back(std::function<void()> function) override;
  void wait(const runtime::Event& event) override;
  void synchronize() override;

  void enqueue(std::shared_ptr<WaitingKernel> kernel);
  /// Runs all work that can run; returns true if there was any.
  bool progress();

 private:
  friend class WaitingEvent;
  struct Item {
    std::shared_ptr<WaitingKernel> kernel;  // or
    std::shared_ptr<bool> passed;           // or
    std::function<void()> function;
  };
  void push(Item item);

  WaitingGpu& gpu_;
  std::unique_ptr<runtime::Stream> inner_;
  std::deque<Item> items_;
};

class NcclWorld {
 public:
  explicit NcclWorld(std::uint64_t seed) : random_(seed) {}

  struct Call : collectives::NcclCall {
    runtime::DType dtype = runtime::DType::f32;
    WaitingKernel* kernel = nullptr;  ///< kept by its endpoint
  };

  struct Clique;
  struct Endpoint {
    Clique* clique = nullptr;
    int rank = 0;
    WaitingStream* stream = nullptr;  ///< stream of the launched work
    WaitingGpu* gpu = nullptr;
    NcclLibrary::Result error = NcclLibrary::success;
    int questions = 0;  ///< remaining polls until the launch is on the stream
    std::shared_ptr<WaitingKernel> launched;
    std::size_t collectives = 0;
    std::vector<std::shared_ptr<WaitingKernel>> kernels;
  };
  struct Clique {
    int ranks = 0;
    std::uint64_t number = 0;
    std::vector<Endpoint*> members;
    std::map<std::size_t, std::map<int, Call>> meetings;              ///< by number and rank
    std::map<std::pair<int, int>, std::deque<Call>> sends, receives;  ///< by source and destination
  };

  /// Record of events, for checks.
  int groups = 0, calls = 0, closed = 0, aborted = 0;
  std::vector<int> sizes;  ///< ranks of each communicator, once each, in the order of connection

  bool keeps_launch_order = true;
  bool sums_alike = true;  ///< otherwise each communicator has its own order of summation
  std::size_t room = 2;    ///< capacity for concurrent NCCL kernels per GPU
  /// Called when all ranks have reached a collective, with the function that ends it; null: it takes no time.
  std::function<void(std::function<void()>)> takes_time = {};

  std::unique_ptr<runtime::Device> make_gpu() { return std::make_unique<WaitingGpu>(*this); }
  std::unique_ptr<NcclLibrary> make_library();

  void settle() {
    if (std::exchange(settling_, true)) return;
    for (bool moved = true; moved;) {
      moved = false;
      // Whichever stream comes first takes the remaining capacity.
      std::vector<WaitingStream*> streams = streams_;
      std::shuffle(streams.begin(), streams.end(), random_);
      for (WaitingStream* stream : streams) moved = stream->progress() || moved;
    }
    settling_ = false;
  }
  void begin(Endpoint& endpoint, const Call& call);

  int questions() { return static_cast<int>(random_() % 3); }

  std::vector<WaitingStream*> streams_;
  std::map<std::uint64_t, Clique> cliques;
  std::uint64_t ids = 0;

 private:
  void meet(Clique& clique, std::map<int, Call>& calls);
  template <typename T>
  void compute(const Clique& clique, std::map<int, Call>& calls);

  std::mt19937_64 random_;
  bool settling_ = false;
};

inline std::unique_ptr<runtime::Stream> WaitingGpu::make_stream(std::string name, runtime::StreamWidth width) {
  return std::make_unique<WaitingStream>(*this, std::move(name), width);
}
inline std::unique_ptr<runtime::Event> WaitingGpu::make_event() { return std::make_unique<WaitingEvent>(); }
inline bool WaitingGpu::may_begin(const WaitingKernel& kernel) {
  std::erase_if(launched_, [](const auto& each) { return each->begun && each->left == 0; });
  std::size_t running = 0;
  for (const auto& each : launched_) {
    if (world_.keeps_launch_order && each.get() == &kernel) break;
    if (world_.keeps_launch_order && !each->begun) return false;
    running += each->begun;
  }
  return running < world_.room;
}

inline void WaitingEvent::record(runtime::StreamView stream) {
  auto* waiting = dynamic_cast<WaitingStream*>(&stream.stream());
  expect(waiting != nullptr, "an event is recorded on stream {} of another kind of device", stream.name());
  last_ = std::make_shared<bool>(false);
  waiting->push({.function = [passed = last_] { *passed = true; }});
}

inline WaitingStream::WaitingStream(WaitingGpu& gpu, std::string name, runtime::StreamWidth width)
    : Stream(gpu, name, width), gpu_(gpu), inner_(gpu.ForwardingDevice::make_stream(std::move(name), width)) {
  gpu_.world_.streams_.push_back(this);
}
inline WaitingStream::~WaitingStream() { std::erase(gpu_.world_.streams_, this); }

inline void WaitingStream::push(Item item) {
  items_.push_back(std::move(item));
  gpu_.world_.settle();
}
inline void WaitingStream::launch(Work work) {
  push({.function = [this, work = std::move(work)] { inner_->launch(work); }});
}
inline void WaitingStream::call_back(std::function<void()> function) { push({.function = std::move(function)}); }
inline void WaitingStream::wait(const runtime::Event& event) {
  if (const auto last = dynamic_cast<const WaitingEvent&>(event).last_) push({.passed = last});
}
inline void WaitingStream::enqueue(std::shared_ptr<WaitingKernel> kernel) {
  gpu_.launched_.push_back(kernel);
  push({.kernel = std::move(kernel)});
}
inline void WaitingStream::synchronize() {
  gpu_.world_.settle();
  expect(items_.empty(), "waiting for stream {} would never end", name());
}
inline bool WaitingStream::progress() {
  bool moved = false;
  while (!items_.empty()) {
    Item& item = items_.front();
    if (item.function) {
      const std::function<void()> function = std::move(item.function);
      items_.pop_front();
      function();
    } else if (item.passed != nullptr) {
      if (!*item.passed) return moved;
      items_.pop_front();
    } else {
      const auto kernel = item.kernel;
      if (!kernel->begun) {
        if (!gpu_.may_begin(*kernel)) return moved;
        kernel->begun = moved = true;
        kernel->begin();
      }
      if (kernel->left > 0) return moved;
      items_.pop_front();
    }
    moved = true;
  }
  return moved;
}

inline void NcclWorld::begin(Endpoint& endpoint, const Call& call) {
  Clique& clique = *endpoint.clique;
  if (call.kind == Call::Kind::send || call.kind == Call::Kind::receive) {
    const bool sends = call.kind == Call::Kind::send;
    const std::pair way = sends ? std::pair(endpoint.rank, call.peer) : std::pair(call.peer, endpoint.rank);
    (sends ? clique.sends : clique.receives)[way].push_back(call);
    auto& from = clique.sends[way];
    auto& to = clique.receives[way];
    while (!from.empty() && !to.empty()) {
      expect(from.front().count == to.front().count && from.front().dtype == to.front().dtype,
             "NCCL's rank {} sends {} elements to rank {}, which receives {}", way.first, from.front().count,
             way.second, to.front().count);
      std::memcpy(to.front().to, from.front().from, from.front().count * size_of(from.front().dtype));
      --from.front().kernel->left;
      --to.front().kernel->left;
      from.pop_front();
      to.pop_front();
    }
    return;
  }
  const std::size_t number = endpoint.collectives++;
  auto& meeting = clique.meetings[number];
  meeting.emplace(endpoint.rank, call);
  if (static_cast<int>(meeting.size()) < clique.ranks) return;
  meet(clique, meeting);
  clique.meetings.erase(number);
}

inline void NcclWorld::meet(Clique& clique, std::map<int, Call>& of_ranks) {
  const Call& first = of_ranks.at(0);
  for (const auto& [rank, call] : of_ranks)
    expect(call.kind == first.kind && call.count == first.count && call.dtype == first.dtype &&
               call.peer == first.peer,
           "NCCL's ranks 0 and {} call different collectives", rank);
  with_number_type(first.dtype, [&](auto type) { compute<decltype(type)>(clique, of_ranks); });
  std::vector<WaitingKernel*> kernels;
  for (auto& [rank, call] : of_ranks) kernels.push_back(call.kernel);
  const auto over = [this, kernels] {
    for (WaitingKernel* kernel : kernels)
      if (kernel->left > 0) --kernel->left;  // not aborted
    settle();
  };
  if (takes_time) return takes_time(over);
  over();
}

template <typename T>
void NcclWorld::compute(const Clique& clique, std::map<int, Call>& of_ranks) {
  using Kind = Call::Kind;
  const Call& first = of_ranks.at(0);
  const auto ranks = static_cast<std::size_t>(clique.ranks);
  const std::size_t count = first.count;
  const bool scatters = first.kind == Kind::reduce_scatter;
  std::vector<T> result(first.kind == Kind::all_gather || scatters ? count * ranks : count);
  std::vector<const T*> from;
  for (const auto& [rank, call] : of_ranks) from.push_back(reinterpret_cast<const T*>(call.from));
  const auto in = [&](std::size_t rank, std::size_t i) { return from[rank][i]; };
  for (std::size_t i = 0; i < result.size(); ++i) {
    if (first.kind == Kind::all_gather) {
      result[i] = in(i / count, i % count);
    } else if (first.kind == Kind::broadcast) {
      result[i] = in(static_cast<std::size_t>(first.peer), i);
    } else {
      Values<T> values;
      for (std::size_t rank = 0; rank < ranks; ++rank) values.push_back(in(rank, i));
      const std::size_t owner = first.kind == Kind::reduce ? static_cast<std::size_t>(first.peer)
                                : scatters                 ? i / count
                                                           : i * ranks / count;
      const std::size_t from_behind = sums_alike ? owner : (owner + clique.number) % ranks;
      result[i] = ranks == 1 ? values[0] : sum_round_ring(values, static_cast<int>(from_behind));
    }
  }
  for (auto& [rank, call] : of_ranks) {
    if (first.kind == Kind::reduce && rank != first.peer) continue;
    const std::size_t begin = scatters ? static_cast<std::size_t>(rank) * count : 0;
    std::copy_n(result.begin() + static_cast<std::ptrdiff_t>(begin), scatters ? count : result.size(),
                reinterpret_cast<T*>(call.to));
  }
}

/// The NCCL of one rank.
class WorldNccl final : public NcclLibrary {
 public:
  explicit WorldNccl(NcclWorld& world) : world_(world) {}

  [[nodiscard]] int version() const override { return 22809; }
  [[nodiscard]] Result make_id(Id& id) override {
    const std::uint64_t made = ++world_.ids;
    std::memcpy(id.bytes.data(), &made, sizeof made);
    return success;
  }
  [[nodiscard]] bool keeps_launch_order() const override { return world_.keeps_launch_order; }
  [[nodiscard]] Result connect(Handle& handle, const Id& id, int ranks, int rank,
                               runtime::StreamView stream) override {
    std::uint64_t known = 0;
    std::memcpy(&known, id.bytes.data(), sizeof known);
    const auto [found, is_new] = world_.cliques.try_emplace(known);
    NcclWorld::Clique& clique = found->second;
    if (is_new) {
      clique.ranks = ranks;
      clique.number = known;
      world_.sizes.push_back(ranks);
    }
    expect(clique.ranks == ranks, "a communicator of {} ranks is connected as one of {}", clique.ranks, ranks);
    auto& made = endpoints_.emplace_back();
    made = {.clique = &clique, .rank = rank, .stream = nullptr, .gpu = &dynamic_cast<WaitingGpu&>(stream.device())};
    clique.members.push_back(&made);
    handle = &made;
    return in_progress;
  }
  [[nodiscard]] Result status(Handle handle) override {
    NcclWorld::Endpoint& endpoint = of(handle);
    if (endpoint.error != success) return endpoint.error;
    if (static_cast<int>(endpoint.clique->members.size()) < endpoint.clique->ranks) return in_progress;
    if (endpoint.launched) {
      if (endpoint.questions-- > 0) return in_progress;
      endpoint.stream->enqueue(std::exchange(endpoint.launched, nullptr));
    }
    return success;
  }
  void close(Handle) noexcept override { ++world_.closed; }
  void abort(Handle handle) noexcept override {
    ++world_.aborted;
    for (const auto& kernel : of(handle).kernels) {  // ends, regardless of its progress
      kernel->begun = true;
      kernel->left = 0;
    }
    world_.settle();
  }
  [[nodiscard]] std::string describe(Result result, Handle) const override {
    return result == remote_error ? "remote process exited or there was a network error" : "some error";
  }
  [[nodiscard]] Result group_start() override {
    expect(!in_group_, "groups are inside each other");
    in_group_ = true;
    return success;
  }
  [[nodiscard]] Result group_end() override {
    in_group_ = false;
    expect(grouped_ != nullptr, "a group is empty");
    NcclWorld::Endpoint& endpoint = *std::exchange(grouped_, nullptr);
    ++world_.groups;
    const auto kernel = std::make_shared<WaitingKernel>();
    kernel->left = calls_.size();
    endpoint.gpu->launches.push_back(calls_.front().count);
    for (NcclWorld::Call& call : calls_) call.kernel = kernel.get();
    kernel->begin = [this, &endpoint, calls = std::exchange(calls_, {})] {
      for (const NcclWorld::Call& call : calls) world_.begin(endpoint, call);
    };
    endpoint.kernels.push_back(kernel);
    endpoint.launched = kernel;
    endpoint.questions = world_.questions();
    return in_progress;
  }

  [[nodiscard]] Result run(const collectives::NcclCall& call, DType dtype, Handle handle,
                           runtime::StreamView stream) override {
    NcclWorld::Endpoint& endpoint = of(handle);
    expect(in_group_, "a call outside a group");
    expect(static_cast<int>(endpoint.clique->members.size()) == endpoint.clique->ranks && !endpoint.launched,
           "a call while the communicator is in progress");
    expect(grouped_ == nullptr || grouped_ == &endpoint, "a group of two communicators");
    auto* const waiting = dynamic_cast<WaitingStream*>(&stream.stream());
    expect(waiting != nullptr && &waiting->device() == endpoint.gpu, "a call on a stream of another GPU");
    expect(grouped_ == nullptr || endpoint.stream == waiting, "a group on two streams");
    endpoint.stream = waiting;
    expect(call.count > 0, "a call without elements");
    grouped_ = &endpoint;
    calls_.push_back({call, dtype});
    ++world_.calls;
    return success;
  }

  /// Makes every communicator of this rank report this result.
  void break_with(Result error) {
    for (NcclWorld::Endpoint& endpoint : endpoints_) endpoint.error = error;
  }

 private:
  static NcclWorld::Endpoint& of(Handle handle) { return *static_cast<NcclWorld::Endpoint*>(handle); }

  NcclWorld& world_;
  std::list<NcclWorld::Endpoint> endpoints_;
  bool in_group_ = false;
  NcclWorld::Endpoint* grouped_ = nullptr;
  std::vector<NcclWorld::Call> calls_;
};

inline std::unique_ptr<NcclLibrary> NcclWorld::make_library() { return std::make_unique<WorldNccl>(*this); }

}  // namespace ranvier::test
