// Thread behind a stream: handles pushed items one after another, in the order of the pushes.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <pthread.h>

namespace ranvier::runtime {

/// `push` may be called by any thread; `handle` runs on the worker's thread and must not throw. The destructor
/// handles all queued items first, so declare the worker as the last member of its owner.
template <class Item>
class OrderedWorker {
 public:
  /// The system shows the first 15 characters of `name` as the thread's name.
  OrderedWorker(const std::string& name, std::function<void(Item&)> handle)
      : handle_(std::move(handle)), thread_([this] { serve(); }) {
    pthread_setname_np(thread_.native_handle(), name.substr(0, 15).c_str());
  }

  ~OrderedWorker() {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    arrived_.notify_one();
    thread_.join();
  }
  OrderedWorker(const OrderedWorker&) = delete;
  OrderedWorker& operator=(const OrderedWorker&) = delete;

  void push(Item item) {
    bool was_empty = false;
    {
      const std::lock_guard lock(mutex_);
      was_empty = queue_.empty();
      queue_.push_back(std::move(item));
    }
    if (was_empty) arrived_.notify_one();
  }

 private:
  void serve() {
    std::vector<Item> batch;
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        arrived_.wait(lock, [this] { return closing_ || !queue_.empty(); });
        if (queue_.empty()) return;
        batch.swap(queue_);
      }
      for (Item& item : batch) {
        handle_(item);
        item = Item{};  // releases the item's resources in order, too
      }
      batch.clear();
    }
  }

  const std::function<void(Item&)> handle_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<Item> queue_;
  bool closing_ = false;
  std::thread thread_;  // last member: it uses all the others
};

}  // namespace ranvier::runtime
