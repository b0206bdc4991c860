// A real file system with the faults that a test requests.
#pragma once

#include "offload/file_system.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace ranvier::offload::tests {

/// Fault of a request, instead of or in addition to the system's result.
struct Fault {
  std::optional<std::int64_t> result;       ///< completes with this without being submitted
  std::optional<std::size_t> shortened_to;  ///< only this many bytes are requested
};

/// Record of the queue's requests. Read it after the tier is destroyed.
struct QueueLog {
  std::size_t requests = 0;
  std::size_t outstanding = 0;
  std::size_t max_outstanding = 0;
  std::size_t faults = 0;
};

struct Faults {
  std::function<Fault(const IoRequest&)> on_request;  ///< called by the tier's thread
  std::function<void()> on_submit;                    ///< called by the tier's thread before each submission
  QueueLog* log = nullptr;
  std::optional<std::int64_t> free_bytes;
  int uring_refused = 0;  ///< errno
  int direct_open_refused = 0;
  int direct_write_refused = 0;
  int allocate_refused = 0;
};

class FaultyQueue final : public IoQueue {
 public:
  FaultyQueue(std::unique_ptr<IoQueue> real, const Faults& faults) : real_(std::move(real)), faults_(faults) {}

  void submit(std::span<const IoRequest> requests) override {
    if (faults_.on_submit) faults_.on_submit();
    std::vector<IoRequest> passed;
    for (IoRequest request : requests) {
      if (faults_.log != nullptr) {
        ++faults_.log->requests;
        faults_.log->max_outstanding = std::max(faults_.log->max_outstanding, ++faults_.log->outstanding);
      }
      const Fault fault = faults_.on_request ? faults_.on_request(request) : Fault{};
      if (faults_.log != nullptr && (fault.result || fault.shortened_to)) ++faults_.log->faults;
      if (fault.result) {
        untried_.push_back({request.id, *fault.result});
      } else {
        request.bytes = fault.shortened_to.value_or(request.bytes);
        passed.push_back(request);
      }
    }
    if (!passed.empty()) real_->submit(passed);
    if (!untried_.empty()) real_->wake();
  }

  void wait(std::vector<IoCompletion>& completed) override {
    real_->wait(completed);
    completed.insert(completed.end(), untried_.begin(), untried_.end());
    untried_.clear();
    if (faults_.log != nullptr) faults_.log->outstanding -= completed.size();
  }

  void wake() override { real_->wake(); }

 private:
  std::unique_ptr<IoQueue> real_;
  const Faults faults_;
  std::vector<IoCompletion> untried_;
};

class FaultyFileSystem final : public FileSystem {
 public:
  explicit FaultyFileSystem(Faults faults) : faults_(std::move(faults)) {}

  std::int64_t free_bytes(const std::filesystem::path& folder) const override {
    return faults_.free_bytes ? *faults_.free_bytes : FileSystem::free_bytes(folder);
  }
  int open(const std::filesystem::path& file, bool direct) const override {
    if (direct && faults_.direct_open_refused != 0) return -faults_.direct_open_refused;
    direct_ = direct;
    return FileSystem::open(file, direct);
  }
  int allocate(int file, std::uint64_t bytes) const override {
    return faults_.allocate_refused != 0 ? -faults_.allocate_refused : FileSystem::allocate(file, bytes);
  }
  std::int64_t write(int file, std::uint64_t offset, std::span<const std::byte> from) const override {
    if (direct_ && faults_.direct_write_refused != 0) return -faults_.direct_write_refused;
    return FileSystem::write(file, offset, from);
  }
  UringOutcome make_queue(int depth, bool uring) const override {
    UringOutcome outcome = FileSystem::make_queue(depth, uring && faults_.uring_refused == 0);
    if (uring && faults_.uring_refused != 0) outcome.error = faults_.uring_refused;
    outcome.queue = std::make_unique<FaultyQueue>(std::move(outcome.queue), faults_);
    return outcome;
  }

 private:
  const Faults faults_;
  mutable bool direct_ = false;
};

}  // namespace ranvier::offload::tests
