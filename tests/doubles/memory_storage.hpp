// Files in memory with a disk's behavior at a power failure. Each unsynced call, on names as well as data, may be lost
// independently, and the last writes may be torn. Also refuses any call that a test selects.
#pragma once

#include "offload/file_system.hpp"
#include "tests/doubles/faulty_file_system.hpp"

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace ranvier::offload::tests {

class MemoryStorage final : public FileSystem {
 public:
  /// A call that changes something, or makes it durable.
  struct Change {
    enum class Kind : std::uint8_t { name, write, resize, sync };
    Kind kind = Kind::sync;
    int inode = 0;         ///< file or folder that it changes
    std::string from, to;  ///< names removed and added, if any
    int named = 0;         ///< the inode that `to` names
    std::uint64_t offset = 0;
    std::string data;
    std::uint64_t bytes = 0;
  };

  MemoryStorage() { inodes_[root].folder = true; }

  /// Called before each call, with its name and path ("sync", "/DIR/step-00000500/manifest.json"). If it returns a
  /// negative errno, the call returns that without doing anything.
  std::function<int(const std::string& call, const std::filesystem::path& path)> refuse;
  /// Faults of reads and writes that are submitted as requests.
  Faults faults;

  [[nodiscard]] std::vector<Change> changes() const {
    const std::lock_guard lock(mutex_);
    return changes_;
  }

  /// Contents after a power failure that follows `changes`. For each unsynced change, by its index, `survives` returns
  /// the fraction that reached the disk: 0 nothing, 1 all, between them a part of its bytes.
  [[nodiscard]] static std::unique_ptr<MemoryStorage> after_crash(
      std::span<const Change> changes, const std::function<double(std::size_t)>& survives) {
    auto storage = std::make_unique<MemoryStorage>();
    std::map<int, std::size_t> synced;  // index of the last sync
    for (std::size_t i = 0; i < changes.size(); ++i)
      if (changes[i].kind == Change::Kind::sync) synced[changes[i].inode] = i;
    for (std::size_t i = 0; i < changes.size(); ++i) {
      const auto found = synced.find(changes[i].inode);
      const double share = found != synced.end() && i < found->second ? 1 : survives(i);
      if (share > 0) storage->apply(changes[i], share);
    }
    return storage;
  }

  /// Changes a file's contents directly, as disk damage would.
  void damage(const std::filesystem::path& file, const std::function<void(std::string& content)>& change) {
    const std::lock_guard lock(mutex_);
    change(inodes_.at(find(file)).content);
  }

  // Calls of programs.
  int open(const std::filesystem::path& file, bool direct) const override {
    return open_file("open", file, true, direct);
  }
  int open_to_read(const std::filesystem::path& file, bool direct) const override {
    return open_file("open_to_read", file, false, direct);
  }
  int open_folder(const std::filesystem::path& folder) const override {
    return open_file("open_folder", folder, false, false);
  }
  int allocate(int file, std::uint64_t bytes) const override { return resize("allocate", file, bytes); }
  int truncate(int file, std::uint64_t bytes) const override { return resize("truncate", file, bytes); }
  int close(int file) const override {
    const std::lock_guard lock(mutex_);
    if (const int refused = ask("close", path_of(file)); refused < 0) return refused;
    if (locked_by_.erase(file) > 0) locked_.erase(open_.at(file).inode);
    open_.erase(file);
    return 0;
  }
  std::int64_t read(int file, std::uint64_t offset, std::span<std::byte> to) const override {
    const std::lock_guard lock(mutex_);
    if (const int refused = ask("read", path_of(file)); refused < 0) return refused;
    const std::string& content = inodes_.at(open_.at(file).inode).content;
    const std::size_t count =
        offset < content.size() ? std::min<std::size_t>(to.size(), content.size() - offset) : std::size_t{0};
    std::copy_n(reinterpret_cast<const std::byte*>(content.data()) + std::min<std::size_t>(offset, content.size()),
                count, to.begin());
    return static_cast<std::int64_t>(count);
  }
  std::int64_t write(int file, std::uint64_t offset, std::span<const std::byte> from) const override {
    const std::lock_guard lock(mutex_);
    if (const int refused = ask("write", path_of(file)); refused < 0) return refused;
    Change change{.kind = Change::Kind::write, .inode = open_.at(file).inode, .offset = offset};
    change.data.assign(reinterpret_cast<const char*>(from.data()), from.size());
    record(std::move(change));
    return static_cast<std::int64_t>(from.size());
  }
  int sync(int file) const override {
    const std::lock_guard lock(mutex_);
    if (const int refused = ask("sync", path_of(file)); refused < 0) return refused;
    record({.kind = Change::Kind::sync, .inode = open_.at(file).inode});
    return 0;
  }
  int lock(int file) const override {
    const std::lock_guard lock(mutex_);
    if (const int refused = ask("lock", path_of(file)); refused < 0) return refused;
    if (!locked_.insert(open_.at(file).inode).second) return -EWOULDBLOCK;
    locked_by_.insert(file);
    return 0;
  }
  int make_folder(const std::filesystem::path& folder) const override {
    const std::lock_guard lock(mutex_);
    if (const int refused = ask("make_folder", folder); refused < 0) return refused;
    const int parent = find(folder.parent_path());
    if (parent < 0) return -ENOENT;
    if (find(folder) >= 0) return -EEXIST;
    const int made = make(true);
    record({.kind = Change::Kind::name, .inode = parent, .to = folder.filename(), .named = made});
    return 0;
  }
  int rename(const std::filesystem::path& from, const std::filesystem::path& to) const override {
    const std::lock_guard lock(mutex_);
    if (const int refused = ask("rename", from); refused < 0) return refused;
    const int parent = find(from.parent_path()), moved = find(from), there = find(to);
    if (moved < 0) return -ENOENT;
    if (parent != find(to.parent_path())) return -EXDEV;
    if (there >= 0 && !inodes_[there].names.empty()) return -ENOTEMPTY;
    record({.kind = Change::Kind::name,
            .inode = parent,
            .from = from.filename(),
            .to = to.filename(),
            .named = moved});
    return 0;
  }
  int remove(const std::filesystem::path& file) const override { return remove("remove", file, false); }
  int remove_folder(const std::filesystem::path& folder) const override {
    return remove("remove_folder", folder, true);
  }
  int list(const std::filesystem::path& folder, std::vector<std::string>& names) const override {
    const std::lock_guard lock(mutex_);
    if (const int refused = ask("list", folder); refused < 0) return refused;
    const int inode = find(folder);
    if (inode < 0) return -ENOENT;
    for (const auto& [name, named] : inodes_[inode].names) names.push_back(name);
    return 0;
  }
  std::int64_t size(const std::filesystem::path& file) const override {
    const std::lock_guard lock(mutex_);
    if (const int refused = ask("size", file); refused < 0) return refused;
    const int inode = find(file);
    if (inode < 0) return -ENOENT;
    return inodes_[inode].folder ? -EINVAL : static_cast<std::int64_t>(inodes_[inode].content.size());
  }
  std::int64_t free_bytes(const std::filesystem::path&) const override {
    return faults.free_bytes.value_or(1 << 30);
  }
  UringOutcome make_queue(int, bool) const override {
    return {std::make_unique<FaultyQueue>(std::make_unique<Queue>(*this), faults), 0};
  }

 private:
  static constexpr int root = 1;

  struct Inode {
    bool folder = false;
    std::map<std::string, int> names;
    std::string content;
  };
  struct Opened {
    int inode = 0;
    std::filesystem::path path;
  };

  /// Carries requests out as they are submitted.
  class Queue final : public IoQueue {
   public:
    explicit Queue(const MemoryStorage& storage) : storage_(storage) {}
    void submit(std::span<const IoRequest> requests) override {
      for (const IoRequest& request : requests) {
        const std::span bytes(request.data, request.bytes);
        completed_.push_back({request.id, request.kind == IoKind::read
                                              ? storage_.read(request.file, request.offset, bytes)
                                              : storage_.write(request.file, request.offset, bytes)});
      }
    }
    void wait(std::vector<IoCompletion>& completed) override {
      std::unique_lock lock(mutex_);
      if (completed_.empty()) changed_.wait(lock, [this] { return woken_; });
      woken_ = false;
      completed.insert(completed.end(), completed_.begin(), completed_.end());
      completed_.clear();
    }
    void wake() override {
      {
        const std::lock_guard lock(mutex_);
        woken_ = true;
      }
      changed_.notify_one();
    }

   private:
    const MemoryStorage& storage_;
    std::vector<IoCompletion> completed_;
    std::mutex mutex_;
    std::condition_variable changed_;
    bool woken_ = false;
  };

  [[nodiscard]] int ask(const char* call, const std::filesystem::path& path) const {
    return refuse ? refuse(call, path) : 0;
  }
  [[nodiscard]] std::filesystem::path path_of(int file) const { return open_.at(file).path; }
  [[nodiscard]] int find(const std::filesystem::path& path) const {
    int inode = root;
    for (const auto& part : path.relative_path()) {
      const auto& names = inodes_.at(inode).names;
      const auto found = names.find(part.string());
      if (found == names.end()) return -1;
      inode = found->second;
    }
    return inode;
  }
  int make(bool folder) const {
    const int made = inodes_.rbegin()->first + 1;
    inodes_[made].folder = folder;
    return made;
  }
  int open_file(const char* call, const std::filesystem::path& path, bool makes, bool direct) const {
    const std::lock_guard lock(mutex_);
    if (const int refused = ask(call, path); refused < 0) return refused;
    if (direct && faults.direct_open_refused != 0) return -faults.direct_open_refused;
    int inode = find(path);
    if (inode < 0) {
      const int parent = find(path.parent_path());
      if (!makes || parent < 0) return -ENOENT;
      inode = make(false);
      record({.kind = Change::Kind::name, .inode = parent, .to = path.filename(), .named = inode});
    }
    open_[++last_descriptor_] = {inode, path};
    return last_descriptor_;
  }
  int resize(const char* call, int file, std::uint64_t bytes) const {
    const std::lock_guard lock(mutex_);
    if (const int refused = ask(call, path_of(file)); refused < 0) return refused;
    record({.kind = Change::Kind::resize, .inode = open_.at(file).inode, .bytes = bytes});
    return 0;
  }
  int remove(const char* call, const std::filesystem::path& path, bool folder) const {
    const std::lock_guard lock(mutex_);
    if (const int refused = ask(call, path); refused < 0) return refused;
    const int inode = find(path);
    if (inode < 0) return -ENOENT;
    if (inodes_[inode].folder != folder) return folder ? -ENOTDIR : -EISDIR;
    if (!inodes_[inode].names.empty()) return -ENOTEMPTY;
    record({.kind = Change::Kind::name, .inode = find(path.parent_path()), .from = path.filename()});
    return 0;
  }
  void record(Change change) const {
    if (change.kind == Change::Kind::name && change.named > 0) change.bytes = inodes_[change.named].folder ? 1 : 0;
    apply(change, 1);
    changes_.push_back(std::move(change));
  }
  void apply(const Change& change, double share) const {
    Inode& inode = inodes_[change.inode];
    switch (change.kind) {
      case Change::Kind::name:
        inode.folder = true;
        if (!change.from.empty()) inode.names.erase(change.from);
        if (change.to.empty()) break;
        inode.names[change.to] = change.named;
        inodes_[change.named].folder = change.bytes == 1;
        break;
      case Change::Kind::write: {
        const auto count = static_cast<std::size_t>(share * static_cast<double>(change.data.size()));
        if (inode.content.size() < change.offset + count) inode.content.resize(change.offset + count);
        inode.content.replace(change.offset, count, change.data, 0, count);
        break;
      }
      case Change::Kind::resize:
        inode.content.resize(change.bytes);
        break;
      case Change::Kind::sync:
        break;
    }
  }

  mutable std::mutex mutex_;
  mutable std::map<int, Inode> inodes_;
  mutable std::map<int, Opened> open_;
  mutable std::set<int> locked_, locked_by_;  // inodes, descriptors
  mutable int last_descriptor_ = 2;
  mutable std::vector<Change> changes_;
};

}  // namespace ranvier::offload::tests
