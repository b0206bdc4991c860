// The folder that a run's checkpoints are in (--checkpoint DIR). A checkpoint becomes whole in one moment, when the
// folder that it was written to gets its name; what crashes before leaves the one before as the newest.
//
//   CheckpointFolder folder("checkpoints");
//   folder.lock(job);                               // clears what dead jobs left
//   const auto part = folder.prepare(500, job);     // ranks write their files there and sync them
//   folder.commit(500, job, manifest);
//   folder.prune(3, 10'000);
//
// Names in it: step-00000500, and step-00000500.2 where the step was done again; step-00000600.JOB.part is being
// written; step-00000700.left was written by a run that another one has since left behind, going on from before it,
// and goes when that one has come as far.
//
// All of it blocks. Failures throw ErrorCode::io, or ::data for what is not what it must be. One thread at a time.
#pragma once

#include "offload/checkpoint/manifest.hpp"
#include "offload/checkpoint/storage.hpp"
#include "runtime/atomic_file.hpp"

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
  bool whole = false;   ///< the manifest is right, and each file there with its size; data were not read
  std::string why_not;  ///< "manifest.json: it does not end …"
  bool unread = false;  ///< the storage failed, so it may be whole all the same
};

class CheckpointFolder {
 public:
  using Entry = CheckpointEntry;

  /// Asks for nothing: the folder need not be there. The storage outlives this.
  explicit CheckpointFolder(std::filesystem::path folder, const CheckpointStorage& storage = system_storage());
  /// Gives the lock back.
  ~CheckpointFolder();
  CheckpointFolder(const CheckpointFolder&) = delete;
  CheckpointFolder& operator=(const CheckpointFolder&) = delete;

  /// Makes the folder where it is missing and becomes the only job that writes there, until this goes; then removes
  /// what dead jobs left, whose number leftovers() says. Throws ErrorCode::io, naming the other job's host and process
  /// where there is one.
  void lock(const std::string& job);
  /// Likewise, but says which job has the lock where another one has it; empty: this has it.
  [[nodiscard]] std::string try_lock(const std::string& job);
  [[nodiscard]] int leftovers() const noexcept { return leftovers_; }
  /// Why two jobs in this folder would not notice each other: the file system has no locks. Then leftovers stay.
  [[nodiscard]] const std::string& lock_refused() const noexcept { return lock_refused_; }

  /// For a checkpoint that nothing else comes after: prepare() and commit() ask whether to try again where the system
  /// refuses to make or write what they add. Null, as at first: every refusal is final.
  void insist(runtime::AtomicFile::Retry retry) { retry_ = std::move(retry); }

  /// An empty folder for the files of a checkpoint. What this job did not finish before, of any step, goes.
  [[nodiscard]] std::filesystem::path prepare(std::int64_t step, const std::string& job);

  /// Where that is, on any rank.
  [[nodiscard]] std::filesystem::path part_of(std::int64_t step, const std::string& job) const;
  /// Instead of commit(): removes it with what is in it.
  void give_up(std::int64_t step, const std::string& job) const { remove_tree(part_of(step, job)); }

  /// Makes a checkpoint whole: every file of `manifest` is in prepare()'s folder with its size, and synced. Those of
  /// later steps, from which this run cannot have come, are left behind.
  void commit(std::int64_t step, const std::string& job, const Manifest& manifest);

  /// What goes by the name of a checkpoint, the oldest first.
  [[nodiscard]] std::vector<Entry> list() const;
  /// `passed_over` gets those that are newer and why. Neither looks at data (checkpoint/reader.hpp does).
  [[nodiscard]] std::optional<Entry> newest_whole(std::vector<Entry>* passed_over = nullptr) const;

  /// As open_checkpoint().
  [[nodiscard]] Manifest open(std::int64_t step) const;
  [[nodiscard]] Manifest open(const std::filesystem::path& checkpoint) const;

  /// What prune() removes.
  [[nodiscard]] std::vector<Entry> prunable(int keep, std::int64_t archive_every) const;
  /// Removes whole checkpoints but the newest `keep` (at least one) and those whose step divides by `archive_every`
  /// (0: none), of a step that was done again all but the last, what is not whole and older than those `keep`, and what
  /// was left behind and is not newer than the newest. The steps that went.
  std::vector<std::int64_t> prune(int keep, std::int64_t archive_every);

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return folder_; }

 private:
  struct Name;
  /// Of checkpoints, or of those that were left behind; ascending.
  [[nodiscard]] std::vector<Name> names(bool left = false) const;
  [[nodiscard]] Manifest open(const Name& name) const;
  [[nodiscard]] Entry look_at(const Name& name) const;
  [[nodiscard]] std::vector<std::string> files_in(const std::filesystem::path& folder) const;
  void write_file(const std::filesystem::path& file, const std::string& text) const;
  /// A call's negative errno, or what it returns else, once nobody wants to try it again.
  template <typename Call>
  [[nodiscard]] int patiently(const std::filesystem::path& path, Call&& call) const;
  void sync_folder(const std::filesystem::path& folder) const;
  void rename(const std::filesystem::path& from, const std::filesystem::path& to) const;
  void remove_tree(const std::filesystem::path& folder) const;
  void leave_behind(const Name& name) const;
  void discard(const Name& name) const;
  void make_folders(const std::filesystem::path& folder) const;
  int clear_parts(bool own, const std::string& job) const;

  std::filesystem::path folder_;
  const CheckpointStorage& storage_;
  int lock_ = -1;
  int leftovers_ = 0;
  runtime::AtomicFile::Retry retry_;
  std::string lock_refused_;
  std::set<std::filesystem::path> known_;  // whole, as this has made them
};

/// Of the checkpoint in a folder, if that is whole: the manifest is right, and each file there with its size. Throws
/// ErrorCode::data, or ::io, with why it is not.
[[nodiscard]] Manifest open_checkpoint(const CheckpointStorage& storage, const std::filesystem::path& checkpoint);
/// The same without a look at the files.
[[nodiscard]] Manifest read_manifest(const CheckpointStorage& storage, const std::filesystem::path& checkpoint);

}  // namespace ranvier::offload
