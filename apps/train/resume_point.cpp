#include "apps/train/resume_point.hpp"

#include "apps/files/file_agreement.hpp"
#include "apps/options/flag_groups.hpp"
#include "apps/options/option_effects.hpp"
#include "apps/program/agreement.hpp"
#include "apps/program/build_info.hpp"
#include "apps/program/flag_names.hpp"
#include "apps/view/history.hpp"
#include "models/families/model.hpp"
#include "runtime/base/console.hpp"
#include "runtime/device/arena.hpp"
#include "runtime/files/atomic_file.hpp"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

namespace ranvier::apps {
namespace {

namespace fs = std::filesystem;
using offload::CheckpointEntry;

}  // namespace

ResumePoint::ResumePoint(const RankRun& run) : run_(run) {
  const CheckpointOptions& options = run.options.checkpoint;
  place_.init_from = run.options.run.init_from;
  if (options.folder.empty() && !options.resumes()) return;
  if (!options.folder.empty()) prepare_folder();
  on_rank_0(run.session, [&] {
    describe_run();
    if (run_.job.untrained) place_.init_content = base_content_ = content_of_weights(run_.job.untrained->path());
  });
  if (options.resumes()) {
    on_rank_0(run.session, [&] { candidates_ = candidates(); });
    find();
  }
  on_rank_0(run.session, [&] { name_training(); });
}

void ResumePoint::name_training() {
  const CheckpointOptions& options = run_.options.checkpoint;
  if (!options.folder.empty()) {
    const fs::path file = fs::path(options.folder) / "training";
    std::string begun;
    std::getline(std::ifstream(file), begun);
    // A job that was killed before its first checkpoint starts from scratch under the same name.
    if (place_.training.empty()) place_.training = options.resume == "auto" && !begun.empty() ? begun : run_.id;
    if (begun != place_.training) runtime::write_file(file, place_.training);
  }
  about_["training"] = place_.training;
  about_["init-from"] = place_.init_from;
  about_["init-from content"] = place_.init_content;
}

void ResumePoint::prepare_folder() {
  const CheckpointOptions& options = run_.options.checkpoint;
  const fs::path folder = options.folder;
  offload::CheckpointFolder& mine = folder_.emplace(folder);
  on_rank_0(run_.session, [&] {
    lock_folder();
    if (!mine.lock_refused().empty()) remarks_.push_back("warning: " + mine.lock_refused());
    if (mine.leftovers() > 0)
      remarks_.push_back(fmt::format("removed from --checkpoint {}: {} unfinished checkpoint{} of dead jobs",
                                     options.folder, mine.leftovers(), mine.leftovers() > 1 ? "s" : ""));
    if (options.resumes()) return;
    if (const auto there = mine.list(); !there.empty())
      reject(
          "--checkpoint {} has checkpoints of an earlier run, the newest of step {}; add --resume auto or use "
          "another folder",
          options.folder, there.back().step);
  });
  on_all_ranks(run_.session, [&] {
    std::ifstream lock(folder / "lock");
    const std::string text{std::istreambuf_iterator<char>(lock), {}};
    if (text.find(run_.id) == std::string::npos)
      fail(ErrorCode::io,
           "--checkpoint {} on rank {} is not the folder of rank 0; use a folder that all nodes share",
           options.folder, run_.session.rank());
  });
}

/// With --resume auto, waits for the lock: a network file system may keep a killed job's lock for a while.
void ResumePoint::lock_folder() {
  const CheckpointOptions& options = run_.options.checkpoint;
  const std::chrono::duration<double> patience(2 * run_.options.run.timeout_seconds);
  const auto until = std::chrono::steady_clock::now() + patience;
  for (bool said = false; options.resume == "auto" && std::chrono::steady_clock::now() < until; said = true) {
    const std::string holder = folder_->try_lock(run_.id);
    if (holder.empty()) return;
    run_.watch.moved();  // this wait has its own limit
    if (!said)
      runtime::print_stderr(
          fmt::format("ranvier: --checkpoint {} is used by another job: {}; waiting for its end, at most {:g} s\n",
                      options.folder, holder, patience.count()));
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
  }
  folder_->lock(run_.id);
}

std::vector<CheckpointEntry> ResumePoint::candidates() {
  const CheckpointOptions& options = run_.options.checkpoint;
  const bool automatic = options.resume == "auto";
  fs::path path = automatic ? options.folder : options.resume;
  if (!path.has_filename()) path = path.parent_path();  // path "DIR/step-00000500/"
  if (!automatic && !fs::is_directory(path))
    fail(ErrorCode::data,
         "--resume {} {}; use the DIR of --checkpoint, or one checkpoint in it, such as DIR/step-00000500",
         options.resume, fs::exists(path) ? "is not a folder" : "does not exist");
  if (!automatic && fs::exists(path / offload::Manifest::file_name)) return {{.path = path, .whole = true}};
  std::vector<CheckpointEntry> whole;
  for (CheckpointEntry& entry : offload::CheckpointFolder(path).list()) {
    if (entry.unread)
      fail(ErrorCode::io,
           "{}; this checkpoint may be complete; check the disk, or choose a checkpoint with --resume PATH",
           entry.why_not);
    if (entry.whole) {
      whole.push_back(std::move(entry));
    } else {
      remarks_.push_back(fmt::format("skipped {}: {}", entry.path.string(), entry.why_not));
      why_not_ = entry.why_not;
      ++passed_over_;
    }
  }
  if (const auto& rollback = run_.options.trainer.rollback)
    std::erase_if(whole, [&](const CheckpointEntry& entry) { return entry.step > rollback->newest_step; });
  if (whole.empty() && !automatic)
    fail(ErrorCode::data,
         "--resume {} has no complete checkpoint{}; use the path of a complete checkpoint, or of a folder with one",
         options.resume, why_not_.empty() ? "" : " (" + why_not_ + ")");
  return whole;
}

void ResumePoint::find() {
  const CheckpointOptions& options = run_.options.checkpoint;
  for (;;) {
    const std::string newest = candidates_.empty() ? "" : candidates_.back().path.string();
    const std::string next = broadcast_text(run_.session, newest);
    if (next.empty() || take(next)) break;
    drop_newest();
  }
  place_ = {};
  place_.init_from = run_.options.run.init_from;
  place_.init_content = base_content_;
  if (!reader_) {
    if (const auto& rollback = run_.options.trainer.rollback)
      on_all_ranks(run_.session, [&] {
        fail(ErrorCode::numeric,
             "--bad-steps rollback: {} has no complete checkpoint of step {} or earlier; lower "
             "--checkpoint-every or use --bad-steps skip",
             options.folder, rollback->newest_step);
      });
    on_rank_0(run_.session, [&] {
      if (passed_over_ > 0)
        fail(ErrorCode::data,
             "--resume auto: none of the {} checkpoints in {} is complete{}; restore a checkpoint, or move all of "
             "them elsewhere to start from scratch",
             passed_over_, options.folder, why_not_.empty() ? "" : " (" + why_not_ + ")");
      remarks_.push_back(fmt::format("--resume auto: no checkpoint in {}; starting from scratch", options.folder));
    });
    return;
  }
  const offload::Manifest& manifest = reader_->manifest();
  place_.step = manifest.step;
  place_.checkpoint = reader_->path().string();
  place_.training = text_of(manifest.about, "training");
  if (manifest.about.contains("init-from")) place_.init_from = text_of(manifest.about, "init-from");
  place_.init_content = text_of(manifest.about, "init-from content");
  if (const std::string& given = run_.options.run.init_from; !given.empty() && given != place_.init_from) {
    std::string line =
        fmt::format("--init-from {}: the weights come from {}, whose first run started with {}", given,
                    place_.checkpoint, place_.init_from.empty() ? "random weights" : place_.init_from);
    if (run_.speaks() && said_.insert(line).second) remarks_.push_back(std::move(line));
  }
  compare_options();
}

void ResumePoint::drop_newest() {
  if (candidates_.empty()) return;  // other ranks than 0
  candidates_.pop_back();
  ++passed_over_;
}

bool ResumePoint::take(const std::string& checkpoint) {
  std::optional<Error> damage;
  on_all_ranks(run_.session, [&] {
    try {
      reader_.emplace(checkpoint, offload::CheckpointReaderOptions{.check_files = run_.speaks()});
    } catch (const Error& error) {
      if (!may_pass_over() || error.code() != ErrorCode::data) throw;
      damage = error;
    }
  });
  if (is_damaged(damage, checkpoint)) {
    reader_.reset();
    return false;
  }
  const std::string mine = fmt::format("{:016x}", reader_->manifest().sum);
  const std::string of_rank_0 = broadcast_text(run_.session, mine);
  on_all_ranks(run_.session, [&] {
    if (mine != of_rank_0)
      fail(ErrorCode::data,
           "{} differs between rank {} and rank 0 (manifest checksums {} and {}); use a folder that all nodes "
           "share, or identical copies",
           checkpoint, run_.session.rank(), mine, of_rank_0);
  });
  return true;
}

bool ResumePoint::is_damaged(const std::optional<Error>& damage, const std::string& checkpoint) const {
  const int ranks = run_.session.ranks();
  const auto first = static_cast<int>(run_.session.smallest(damage ? run_.session.rank() : ranks));
  if (first == run_.session.rank())
    runtime::print_stderr(fmt::format("ranvier: warning: skipped {}: {}\n", checkpoint, message_of(*damage)));
  return first < ranks;
}

bool ResumePoint::pass_over(const std::optional<Error>& damage) {
  if (!reader_ || !is_damaged(damage, place_.checkpoint)) return false;
  reader_.reset();
  drop_newest();
  find();
  on_rank_0(run_.session, [&] { name_training(); });
  return true;
}

void ResumePoint::loaded(double seconds) {
  if (!reader_) return;
  const std::uint64_t bytes = reader_->manifest().data_bytes();
  reader_.reset();
  compare_base();
  if (!run_.speaks()) return;
  const std::string others =
      candidates_.size() > 1 ? fmt::format(", the newest of {} complete ones", candidates_.size()) : "";
  remarks_.push_back(fmt::format("resumed from {}{}: step {} is done, read and verified {} in {:.2f} s",
                                 place_.checkpoint, others, place_.step, runtime::format_bytes(bytes), seconds));
}

void ResumePoint::compare_base() {
  // Values rounded to another type never match the file again, in later runs either.
  if (changed_precision_) about_["init-from content"] = place_.init_content = "";
  const bool same = !base_content_.empty() && base_content_ == place_.init_content;
  keeps_base_ = !broadcast_text(run_.session, same ? "same" : "").empty();
  const RunOptions& run = run_.options.run;
  const models::Architecture& model = run_.job.architecture;
  if (keeps_base_ || !run_.speaks() || run.save.empty() || run_.options.model.adapts() ||
      place_.init_from.empty() || model.trained_parameters() == model.parameters())
    return;
  remarks_.push_back(
      fmt::format("note: frozen tensors will be saved as fp32, converted from the checkpoint's {} values: {}; "
                  "add --init-from with the initial weights to save them unchanged",
                  to_string(model.precision.compute),
                  run.init_from.empty()         ? "--init-from is missing"
                  : changed_precision_          ? "--precision has changed"
                  : place_.init_content.empty() ? "the checkpoint does not identify the weights of --init-from"
                                                : "--init-from has other weights"));
}

void ResumePoint::compare_options() {
  using Moments = actors::CheckpointSource::Moments;
  bool are_new = false;
  on_rank_0(run_.session, [&] {
    const auto* saved = object_of(reader_->manifest().about, "options");
    if (saved == nullptr) return;
    const auto changes = changed_options(*saved, options_, models::learns_positions(run_.options.model.sizes));
    changed_precision_ =
        std::ranges::any_of(changes, [](const ChangedOption& change) { return change.flag == "precision"; });
    for (std::string& line : accept_changes(changes, run_.options.checkpoint.resume_with, place_.checkpoint))
      if (said_.insert(line).second) remarks_.push_back(std::move(line));
    are_new = are_moments_new(changes, options_);
    if (std::string line = "the optimizer's moments start at zero, not at the checkpoint's";
        are_new && said_.insert(line).second)
      remarks_.push_back(std::move(line));
    compare_positions();
  });
  moments_ = broadcast_text(run_.session, are_new ? "new" : "").empty() ? Moments::saved : Moments::zero;
}

void ResumePoint::compare_positions() const {
  const std::string saved = text_of(reader_->manifest().about, "config");
  if (saved.empty() || run_.job.config.empty()) return;
  const auto positions_in = [&](const std::string& config) {
    const models::ModelSizes sizes =
        models::parse_model_config(config, fs::path(place_.checkpoint) / "config.json").sizes;
    return models::learns_positions(sizes) ? models::value_of(sizes, models::Size::sequence_length) : 0;
  };
  const int before = positions_in(saved), now = positions_in(run_.job.config);
  if (before != now)
    fail(ErrorCode::data, "{} has {} learned positions, and the model has {}; {}", place_.checkpoint, before, now,
         before > now ? "add --init-from with the initial weights"
                      : "remove --init-from and set the model's sizes by flags");
}

void ResumePoint::describe_run() {
  options_ = resolved(run_.options);
  if (!encodes_text(run_.options.data))
    std::erase_if(options_, [](const ResolvedOption& each) { return each.name == special_tokens_option; });
  options_.push_back({.concern = "Model",
                      .name = computation_option,
                      .value = models::computation_of(run_.options.model.sizes),
                      .effect = OptionEffect::decides});
  options_.push_back({.concern = "Data",
                      .name = content_option,
                      .value = data_content(run_.options, run_.job),
                      .effect = OptionEffect::decides});
  about_["options"] = options_to_save(options_);
  about_["version"] = build_info.version;
  about_["commit"] = build_info.commit;
  if (!run_.job.config.empty()) about_["config"] = run_.job.config;
  about_["grid"] = fmt::format("{} x {}", run_.options.trainer.grid.g_inter, run_.options.trainer.grid.g_data);
}

}  // namespace ranvier::apps
