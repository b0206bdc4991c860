// The training that a run belongs to: the folder of its checkpoints, and the one that the run goes on from, if there is
// one. Found by rank 0, taken over by all, before anything is allocated.
#pragma once

#include "apps/train/files/metrics_file.hpp"
#include "apps/train/rank_run.hpp"
#include "offload/checkpoint/folder.hpp"
#include "offload/checkpoint/reader.hpp"
#include "runtime/error.hpp"

#include <boost/json/object.hpp>

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace ranvier::apps {

class ResumePoint {
 public:
  /// All ranks call it. With --checkpoint: makes the folder and locks it, sees that all ranks have the same one. With
  /// --resume: finds the checkpoint, whose data are looked at as they are loaded, and compares the options with those
  /// that it was taken with. Throws FailedTogether; folders that others use or have filled are left as they are.
  explicit ResumePoint(const RankRun& run);

  /// Whether another checkpoint, or none, may do where one is damaged, as --resume auto has it.
  [[nodiscard]] bool may_pass_over() const noexcept { return run_.options.checkpoint.resume == "auto"; }
  /// All ranks call it, once each has loaded its part or found it damaged. Where any has, goes back to the one before,
  /// says so, and returns true.
  [[nodiscard]] bool pass_over(const std::optional<Error>& damage);
  /// All ranks have loaded all of it.
  void loaded(double seconds);

  /// Where the run begins.
  [[nodiscard]] const RunOrigin& place() const noexcept { return place_; }
  /// That of --checkpoint, which rank 0 has locked; null: none are taken.
  [[nodiscard]] offload::CheckpointFolder* folder() noexcept { return folder_ ? &*folder_ : nullptr; }
  /// Of the checkpoint that it goes on from, until that is loaded; null: the run begins.
  [[nodiscard]] offload::CheckpointReader* reader() noexcept { return reader_ ? &*reader_ : nullptr; }
  /// What a checkpoint of this run says of it, but for what is known only as it is taken. Rank 0.
  [[nodiscard]] const boost::json::object& about() const noexcept { return about_; }
  /// After loaded(), the same on all ranks: whether --init-from has the weights that the training began with.
  [[nodiscard]] bool keeps_base() const noexcept { return keeps_base_; }
  /// What is new for the start to say, in lines. Rank 0.
  [[nodiscard]] std::vector<std::string> take_remarks() noexcept { return std::exchange(remarks_, {}); }

 private:
  void prepare_folder();
  void lock_folder();
  /// What may be gone on from, the newest last; on rank 0. One that was named, or those of a folder.
  [[nodiscard]] std::vector<offload::CheckpointEntry> candidates();
  /// The newest of the candidates that opens, and what follows from it.
  void find();
  /// The newest candidate is damaged.
  void drop_newest();
  /// Opens the checkpoint on all ranks, which must find the same one; false, with a warning by one of them, if it is
  /// damaged.
  [[nodiscard]] bool take(const std::string& checkpoint);
  /// All ranks: whether any has found the checkpoint damaged; then the first of them says so.
  [[nodiscard]] bool is_damaged(const std::optional<Error>& damage, const std::string& checkpoint) const;
  void compare_options();
  void compare_base();
  /// A shorter --sequence-length keeps all positions of --init-from, so that other flags may say less than the states.
  void compare_positions() const;
  void describe_run();
  /// Keeps the name of the training in the folder, or takes the one that is kept there.
  void name_training();

  const RankRun& run_;
  RunOrigin place_;
  std::string base_content_;  // content_of_weights() of Job::untrained; on rank 0
  bool keeps_base_ = true;
  bool changed_precision_ = false;  // since the checkpoint; on rank 0
  std::optional<offload::CheckpointFolder> folder_;
  std::vector<offload::CheckpointEntry> candidates_;  // the newest last, down to the one that is taken; on rank 0
  int passed_over_ = 0;                               // checkpoints that are not whole, or damaged; on rank 0
  std::string why_not_;                               // one of them is not whole
  std::optional<offload::CheckpointReader> reader_;
  std::vector<runtime::ResolvedOption> options_;  // with the data's content; on rank 0
  boost::json::object about_;
  std::vector<std::string> remarks_;
  std::set<std::string> said_;  // about options, which another checkpoint may differ from alike
};

}  // namespace ranvier::apps
