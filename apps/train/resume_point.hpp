// Checkpoint folder of a run and the checkpoint that it resumes from, if any. Rank 0 finds them; all ranks adopt them
// before memory is allocated. Loop thread only, before the loop runs.
#pragma once

#include "actors/checkpoint/checkpoint_source.hpp"
#include "apps/files/metrics_file.hpp"
#include "apps/job/rank_run.hpp"
#include "offload/checkpoint/folder.hpp"
#include "offload/checkpoint/reader.hpp"
#include "runtime/base/error.hpp"

#include <boost/json/object.hpp>

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace ranvier::apps {

class ResumePoint {
 public:
  /// All ranks call it. With --checkpoint: creates and locks the folder, and checks that all ranks have the same one.
  /// With --resume: finds the checkpoint and compares its options with this run's; its data are verified while they are
  /// loaded. Throws FailedTogether; folders of other jobs stay unchanged.
  explicit ResumePoint(const RankRun& run);

  /// Whether an older checkpoint may replace a damaged one (--resume auto).
  [[nodiscard]] bool may_pass_over() const noexcept { return run_.options.checkpoint.resume == "auto"; }
  /// All ranks call it after each has loaded its states or found damage. If any rank found damage, prints a warning,
  /// goes back to the checkpoint before and returns true.
  [[nodiscard]] bool pass_over(const std::optional<Error>& damage);
  /// All ranks call it after the checkpoint is loaded. `seconds`: duration of the load, for the startup output.
  void loaded(double seconds);

  /// Identity of the job and the step at which this run starts.
  [[nodiscard]] const RunOrigin& place() const noexcept { return place_; }
  /// Folder of --checkpoint, locked by rank 0; null without --checkpoint.
  [[nodiscard]] offload::CheckpointFolder* folder() noexcept { return folder_ ? &*folder_ : nullptr; }
  /// Reader of the checkpoint to resume from; null if the run starts from scratch, and after loaded().
  [[nodiscard]] offload::CheckpointReader* reader() noexcept { return reader_ ? &*reader_ : nullptr; }
  /// Start of the optimizer's moments: at the checkpoint's, or at zero for another update rule.
  [[nodiscard]] actors::CheckpointSource::Moments moments() const noexcept { return moments_; }
  /// Manifest entries that describe this run, without those known only when a checkpoint is taken. Rank 0.
  [[nodiscard]] const boost::json::object& about() const noexcept { return about_; }
  /// After loaded(), the same on all ranks: whether --init-from has the initial weights of the job's first run.
  [[nodiscard]] bool keeps_base() const noexcept { return keeps_base_; }
  /// Takes new lines for the startup output. Rank 0.
  [[nodiscard]] std::vector<std::string> take_remarks() noexcept { return std::exchange(remarks_, {}); }

 private:
  void prepare_folder();
  void lock_folder();
  /// Checkpoints to resume from, newest last: the given one, or all complete ones of a folder. Rank 0.
  [[nodiscard]] std::vector<offload::CheckpointEntry> candidates();
  /// Opens the newest undamaged candidate, and sets place_.
  void find();
  /// Removes the newest candidate, which is damaged.
  void drop_newest();
  /// Opens the checkpoint on all ranks, which must find the same one. Returns false if it is damaged; one rank prints a
  /// warning.
  [[nodiscard]] bool take(const std::string& checkpoint);
  /// Whether any rank found damage; the first such rank prints a warning. All ranks call it.
  [[nodiscard]] bool is_damaged(const std::optional<Error>& damage, const std::string& checkpoint) const;
  void compare_options();
  void compare_base();
  /// Compares the numbers of learned positions. They may exceed --sequence-length, since all positions of --init-from
  /// are kept.
  void compare_positions() const;
  void describe_run();
  /// Reads the job's name from the folder, or writes it there.
  void name_training();

  const RankRun& run_;
  RunOrigin place_;
  std::string base_content_;  // content_of_weights() of Job::untrained; rank 0
  bool keeps_base_ = true;
  actors::CheckpointSource::Moments moments_ = actors::CheckpointSource::Moments::saved;
  bool changed_precision_ = false;  // differs from the checkpoint; rank 0
  std::optional<offload::CheckpointFolder> folder_;
  std::vector<offload::CheckpointEntry> candidates_;  // newest last, without skipped ones; rank 0
  int passed_over_ = 0;                               // skipped checkpoints: incomplete or damaged; rank 0
  std::string why_not_;                               // reason why one of them is incomplete
  std::optional<offload::CheckpointReader> reader_;
  std::vector<ResolvedOption> options_;  // with the data's fingerprint; rank 0
  boost::json::object about_;
  std::vector<std::string> remarks_;
  std::set<std::string> said_;  // lines about options, to print each once for several checkpoints
};

}  // namespace ranvier::apps
