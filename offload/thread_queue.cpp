#include "offload/io_queue.hpp"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

namespace ranvier::offload {
namespace {

constexpr int max_threads = 16;

std::int64_t perform(const IoRequest& request) {
  const auto offset = static_cast<off_t>(request.offset);
  const ssize_t count = request.kind == IoKind::read ? ::pread(request.file, request.data, request.bytes, offset)
                                                     : ::pwrite(request.file, request.data, request.bytes, offset);
  return count < 0 ? -errno : count;
}

class ThreadQueue final : public IoQueue {
 public:
  explicit ThreadQueue(int threads) {
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([this] { serve(); });
      pthread_setname_np(threads_.back().native_handle(), "file I/O");
    }
  }

  ~ThreadQueue() override {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    arrived_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  void submit(std::span<const IoRequest> requests) override {
    {
      const std::lock_guard lock(mutex_);
      requests_.insert(requests_.end(), requests.begin(), requests.end());
    }
    arrived_.notify_all();
  }

  void wait(std::vector<IoCompletion>& completed) override {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return woken_ || !completed_.empty(); });
    woken_ = false;
    completed.insert(completed.end(), completed_.begin(), completed_.end());
    completed_.clear();
  }

  void wake() override {
    {
      const std::lock_guard lock(mutex_);
      woken_ = true;
    }
    done_.notify_one();
  }

 private:
  void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      arrived_.wait(lock, [this] { return closing_ || !requests_.empty(); });
      if (requests_.empty()) return;
      const IoRequest request = requests_.front();
      requests_.pop_front();
      lock.unlock();
      const IoCompletion completion{request.id, perform(request)};
      lock.lock();
      completed_.push_back(completion);
      done_.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable arrived_, done_;
  std::deque<IoRequest> requests_;
  std::vector<IoCompletion> completed_;
  bool woken_ = false;
  bool closing_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<IoQueue> make_thread_queue(int depth) {
  return std::make_unique<ThreadQueue>(std::clamp(depth, 1, max_threads));
}

}  // namespace ranvier::offload
