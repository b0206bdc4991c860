// Folder of a run's checkpoints (`checkpoint` DIR; names in README.md). A checkpoint becomes complete atomically, when
// its folder is renamed. All calls block and throw ErrorCode::io, or ::data for invalid content. One thread at a time.
//
//   CheckpointFolder folder("checkpoints");
//   folder.lock(job);                               // removes leftovers of dead jobs
//   const auto part = folder.prepare(500, job);     // ranks write their files there and sync them
//   folder.commit(500, job, manifest);
//   folder.prune(3, 10'000);
#pragma once

#include "offload/checkpoint/manifest.hpp"
#include "offload/file_system.hpp"
#include "runtime/files/atomic_file.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace ranvier::offload {

struct CheckpointEntry {
  std::int64_t step = 0;
  std::filesystem::path path;
  std::int64_t again = 1;  ///< version of a repeated step
  bool whole = false;      ///< the manifest is valid, and each file has its size; data was not read
  std::string why_not;     ///< reason: "manifest.json: no checksum …"
  bool unread = false;     ///< the storage failed, so it may be complete
};

class CheckpointFolder {
 public:
  /// The folder need not exist. The storage must outlive this.
  explicit CheckpointFolder(std::filesystem::path folder, const FileSystem& storage = system_storage());
  /// Releases the lock.
  ~CheckpointFolder();
  CheckpointFolder(const CheckpointFolder&) = delete;
  CheckpointFolder& operator=(const CheckpointFolder&) = delete;

  /// Creates the folder if missing, and locks it until destruction, so that no other job writes there. Then removes
  /// leftovers of dead jobs; leftovers() counts them. Throws ErrorCode::io, naming host and process of the other job.
  void lock(const std::string& job);
  /// Like lock(), but returns the job that holds the lock; empty: this one.
  [[nodiscard]] std::string try_lock(const std::string& job);
  [[nodiscard]] int leftovers() const noexcept { return leftovers_; }
  /// Reason if the file system has no locks, so two jobs would not notice each other; then leftovers stay.
  [[nodiscard]] const std::string& lock_refused() const noexcept { return lock_refused_; }

  /// For the last checkpoint of a run: prepare() and commit() call `retry` if creating or writing fails. Null
  /// (default): every failure is final.
  void insist(runtime::AtomicFile::Retry retry) { retry_ = std::move(retry); }

  /// Creates an empty folder for a checkpoint. Removes unfinished checkpoints of this job.
  [[nodiscard]] std::filesystem::path prepare(std::int64_t step, const std::string& job);

  /// Path of that folder, on any rank.
  [[nodiscard]] std::filesystem::path part_of(std::int64_t step, const std::string& job) const;
  /// Removes that folder; replaces commit().
  void give_up(std::int64_t step, const std::string& job) const { remove_tree(part_of(step, job)); }

  /// Completes a checkpoint: prepare()'s folder must contain every file of `manifest`, with its size and synced.
  /// Marks checkpoints of later steps as abandoned, since this run cannot descend from them.
  void commit(std::int64_t step, const std::string& job, const Manifest& manifest);

  /// Everything named like a checkpoint, the oldest first.
  [[nodiscard]] std::vector<CheckpointEntry> list() const;
  /// Newest complete checkpoint. `passed_over` gets newer ones with reasons. Data is not read (see
  /// checkpoint/reader.hpp).
  [[nodiscard]] std::optional<CheckpointEntry> newest_whole(
      std::vector<CheckpointEntry>* passed_over = nullptr) const;

  /// Checkpoints that prune() would remove.
  [[nodiscard]] std::vector<CheckpointEntry> prunable(int keep, std::int64_t archive_every) const;
  /// Removes complete checkpoints except the newest `keep` (at least one) and steps divisible by `archive_every` (0:
  /// none). Also removes all but the last version of a repeated step, incomplete ones older than those kept, and
  /// abandoned ones not newer than the newest. Returns the removed steps.
  std::vector<std::int64_t> prune(int keep, std::int64_t archive_every);

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return folder_; }

 private:
  /// Checkpoints, or abandoned ones, by their names only; ascending.
  [[nodiscard]] std::vector<CheckpointEntry> names(bool left = false) const;
  /// Sets whether the checkpoint is complete, and returns that.
  bool look_at(CheckpointEntry& entry) const;
  [[nodiscard]] std::vector<std::string> files_in(const std::filesystem::path& folder) const;
  void write_file(const std::filesystem::path& file, const std::string& text) const;
  /// Result of a call after retries: its value or negative errno.
  template <typename Call>
  [[nodiscard]] int patiently(const std::filesystem::path& path, Call&& call) const;
  void sync_folder(const std::filesystem::path& folder) const;
  void rename(const std::filesystem::path& from, const std::filesystem::path& to) const;
  void remove_tree(const std::filesystem::path& folder) const;
  void leave_behind(const std::filesystem::path& checkpoint) const;
  void discard(const CheckpointEntry& entry) const;
  void make_folders(const std::filesystem::path& folder) const;
  int clear_parts(bool own, const std::string& job) const;

  std::filesystem::path folder_;
  const FileSystem& storage_;
  int lock_ = -1;
  int leftovers_ = 0;
  runtime::AtomicFile::Retry retry_;
  std::string lock_refused_;
  std::set<std::filesystem::path> known_;  // complete ones that this object created
};

/// Manifest of a complete checkpoint: the manifest is valid, and each file has its size. Throws ErrorCode::data or
/// ::io with the reason otherwise.
[[nodiscard]] Manifest open_checkpoint(const FileSystem& storage, const std::filesystem::path& checkpoint);
/// Like open_checkpoint(), without checking the files.
[[nodiscard]] Manifest read_manifest(const FileSystem& storage, const std::filesystem::path& checkpoint);

}  // namespace ranvier::offload
