#include "offload/checkpoint/folder.hpp"

#include "runtime/base/error.hpp"
#include "runtime/host/cores.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <iterator>
#include <string_view>
#include <system_error>
#include <utility>

namespace ranvier::offload {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view step_begin = "step-", part_end = ".part", left_end = ".left";
constexpr const char* removed_job = "removed";  // replaces the job in names of folders that are being removed

/// Removes a number from the front and returns it, if it fits an int64.
std::optional<std::int64_t> take_number(std::string_view& text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || text.starts_with('-')) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

bool is_job(std::string_view text) {
  return !text.empty() && text.find_first_not_of(letters_and_digits) == std::string_view::npos;
}

/// JOB of a name step-N.JOB.part; empty for other names.
std::string_view job_of(std::string_view name) {
  if (!name.starts_with(step_begin) || !name.ends_with(part_end)) return {};
  name.remove_prefix(step_begin.size());
  name.remove_suffix(part_end.size());
  if (!take_number(name) || !name.starts_with('.') || !is_job(name.substr(1))) return {};
  return name.substr(1);
}

std::string name_of(std::int64_t step, std::int64_t again) {
  return fmt::format("{}{:08}{}", step_begin, step, again > 1 ? fmt::format(".{}", again) : "");
}

/// Step and version of a checkpoint's name.
std::optional<CheckpointEntry> parse_name(std::string_view name) {
  std::string_view rest = name;
  if (!rest.starts_with(step_begin)) return std::nullopt;
  rest.remove_prefix(step_begin.size());
  const auto step = take_number(rest);
  if (!step) return std::nullopt;
  CheckpointEntry parsed{.step = *step, .path = {}};
  if (rest.starts_with('.')) {
    rest.remove_prefix(1);
    parsed.again = take_number(rest).value_or(0);
  }
  // Accepts only names that name_of() makes; others, like step-5, belong to the user.
  return rest.empty() && name == name_of(parsed.step, parsed.again) ? std::optional(parsed) : std::nullopt;
}

/// The same of an abandoned checkpoint's name: step-00000700.left, step-00000700.2.left2.
std::optional<CheckpointEntry> parse_left(std::string_view name) {
  const std::size_t end = name.rfind(left_end);
  if (end == std::string_view::npos) return std::nullopt;
  std::string_view number = name.substr(end + left_end.size());
  if (!number.empty() && (!take_number(number) || !number.empty())) return std::nullopt;
  return parse_name(name.substr(0, end));
}

fs::path parent_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

[[noreturn]] void refuse(const fs::path& path, const char* what, int error) {
  fail(ErrorCode::io, "{}: cannot {} it: {}; check the folder's space and permissions", path.string(), what,
       std::strerror(-error));
}

[[noreturn]] void refuse_new(const fs::path& path, int error) {
  fail(ErrorCode::io, "{}: cannot create it: {}; use `checkpoint` with a writable folder", path.string(),
       std::strerror(-error));
}

/// Checks that each file exists with its size.
void check_files(const FileSystem& storage, const fs::path& checkpoint, const Manifest& manifest) {
  for (const CheckpointFile& file : manifest.files) {
    const fs::path path = checkpoint / file.name;
    const std::int64_t size = storage.size(path);
    if (size == -ENOENT) fail(ErrorCode::data, "{}: file not found; use another checkpoint", path.string());
    if (size < 0) refuse(path, "look at", static_cast<int>(size));
    if (static_cast<std::uint64_t>(size) != file.bytes)
      fail(ErrorCode::data, "{}: wrong size: {} bytes instead of {}; use another checkpoint", path.string(), size,
           file.bytes);
  }
}

/// First 256 bytes of a file; empty if it cannot be read.
std::string content_of(const FileSystem& storage, const fs::path& path) {
  const OpenFile file(storage, storage.open_to_read(path, false));
  std::string text(256, '\0');
  const std::int64_t count =
      file.get() < 0 ? 0 : storage.read(file.get(), 0, std::as_writable_bytes(std::span(text)));
  text.resize(static_cast<std::size_t>(std::max<std::int64_t>(count, 0)));
  return text;
}

}  // namespace

Manifest read_manifest(const FileSystem& storage, const fs::path& checkpoint) {
  const fs::path path = checkpoint / Manifest::file_name;
  const OpenFile file(storage, storage.open_to_read(path, false));
  if (file.get() == -ENOENT || file.get() == -ENOTDIR)
    fail(ErrorCode::data, "checkpoint manifest not found: {}; use a complete checkpoint", path.string());
  if (file.get() < 0) refuse(path, "open", file.get());
  const std::int64_t size = storage.size(path);
  if (size < 0) refuse(path, "read", static_cast<int>(size));
  std::string text(static_cast<std::size_t>(size), '\0');
  const int result = storage.read_all(file.get(), 0, std::as_writable_bytes(std::span(text)));
  if (result < 0) refuse(path, "read", result);
  return parse_manifest(text, path.string());
}

Manifest open_checkpoint(const FileSystem& storage, const fs::path& checkpoint) {
  Manifest manifest = read_manifest(storage, checkpoint);
  check_files(storage, checkpoint, manifest);
  return manifest;
}

CheckpointFolder::CheckpointFolder(fs::path folder, const FileSystem& storage)
    : folder_(std::move(folder)), storage_(storage) {}

CheckpointFolder::~CheckpointFolder() {
  if (lock_ >= 0) storage_.close(lock_);
}

void CheckpointFolder::lock(const std::string& job) {
  if (const std::string holder = try_lock(job); !holder.empty())
    fail(ErrorCode::io,
         "{}: another job writes checkpoints there: {}; wait until it ends, or use `checkpoint` with another "
         "folder",
         folder_.string(), holder);
}

std::string CheckpointFolder::try_lock(const std::string& job) {
  expect(lock_ < 0, "{}: locked twice", folder_.string());
  expect(is_job(job) && job != removed_job, "'{}' cannot name a job", job);
  make_folders(folder_);
  const fs::path path = folder_ / "lock";
  OpenFile file(storage_, storage_.open(path, false));
  if (file.get() < 0) refuse_new(path, file.get());
  const int result = storage_.lock(file.get());
  if (result == -EWOULDBLOCK) {
    const std::string holder = content_of(storage_, path);
    return holder.empty() ? "a job without a name" : holder;
  }
  const std::string mine = fmt::format("job {}, process {} on {}", job, ::getpid(), runtime::host_name());
  int written = storage_.truncate(file.get(), 0);
  if (written == 0) written = storage_.write_all(file.get(), 0, std::as_bytes(std::span(mine)));
  // The file stays open; network file systems show its content to other machines only after a sync.
  if (written == 0) written = storage_.sync(file.get());
  if (written < 0) refuse(path, "write", written);
  if (result < 0) {
    lock_refused_ = fmt::format(
        "{}: the file system has no locks ({}); let only one job write there; files that dead "
        "jobs left in step-*{} are kept",
        folder_.string(), std::strerror(-result), part_end);
    return {};
  }
  lock_ = file.release();
  leftovers_ = clear_parts(false, job);
  return {};
}

void CheckpointFolder::make_folders(const fs::path& folder) const {
  const int result = storage_.make_folder(folder);
  if (result == 0) return sync_folder(parent_of(folder));
  if (result == -ENOENT && folder.has_parent_path() && folder.parent_path() != folder) {
    make_folders(folder.parent_path());
    return make_folders(folder);
  }
  if (result != -EEXIST) refuse_new(folder, result);
}

/// Removes unfinished checkpoints of this job if `own`, otherwise of all other jobs. Returns their number.
int CheckpointFolder::clear_parts(bool own, const std::string& job) const {
  int cleared = 0;
  for (const std::string& name : files_in(folder_)) {
    const std::string_view of = job_of(name);
    if (of.empty() || (of == job) != own) continue;
    remove_tree(folder_ / name);
    ++cleared;
  }
  return cleared;
}

fs::path CheckpointFolder::part_of(std::int64_t step, const std::string& job) const {
  expect(is_job(job), "'{}' cannot name a job", job);
  return folder_ / fmt::format("{}.{}{}", name_of(step, 1), job, part_end);
}

fs::path CheckpointFolder::prepare(std::int64_t step, const std::string& job) {
  const fs::path part = part_of(step, job);
  clear_parts(true, job);  // the previous attempt may have failed, for instance on a full disk
  const int result = patiently(part, [&] { return storage_.make_folder(part); });
  if (result < 0) refuse(part, "make", result);
  return part;
}

void CheckpointFolder::commit(std::int64_t step, const std::string& job, const Manifest& manifest) {
  expect(manifest.step == step, "the manifest has step {}, the checkpoint step {}", manifest.step, step);
  const fs::path part = part_of(step, job);
  const std::string text = to_json(manifest);
  // A checkpoint with an unreadable manifest must not become complete.
  static_cast<void>(parse_manifest(text, (part / Manifest::file_name).string()));
  check_files(storage_, part, manifest);
  write_file(part / Manifest::file_name, text);
  sync_folder(part);

  std::int64_t again = 1;
  bool left = false;
  for (const CheckpointEntry& known : names()) {
    if (known.step == step) again = std::max(again, known.again + 1);
    if (known.step <= step) continue;
    leave_behind(known.path);
    left = true;
  }
  if (left) sync_folder(folder_);
  const fs::path whole = folder_ / name_of(step, again);
  rename(part, whole);
  sync_folder(folder_);
  known_.insert(whole);
}

void CheckpointFolder::leave_behind(const fs::path& checkpoint) const {
  fs::path to = checkpoint;
  to += left_end;
  for (int number = 2;; ++number) {
    const int result = storage_.rename(checkpoint, to);
    if (result == 0) return;
    if (result != -ENOTEMPTY && result != -EEXIST) refuse(checkpoint, "rename", result);
    to = checkpoint;
    to += fmt::format("{}{}", left_end, number);
  }
}

std::vector<CheckpointEntry> CheckpointFolder::names(bool left) const {
  std::vector<CheckpointEntry> found;
  for (const std::string& name : files_in(folder_)) {
    if (auto entry = left ? parse_left(name) : parse_name(name)) {
      entry->path = folder_ / name;
      found.push_back(std::move(*entry));
    }
  }
  std::ranges::sort(found, {}, [](const CheckpointEntry& entry) { return std::pair(entry.step, entry.again); });
  return found;
}

std::vector<std::string> CheckpointFolder::files_in(const fs::path& folder) const {
  std::vector<std::string> names;
  const int result = storage_.list(folder, names);
  if (result < 0 && result != -ENOENT) refuse(folder, "read", result);
  return names;
}

bool CheckpointFolder::look_at(CheckpointEntry& entry) const {
  try {
    const Manifest manifest = open_checkpoint(storage_, entry.path);
    if (manifest.step != entry.step)
      fail(ErrorCode::data, "{}: the manifest has another step: {}", (entry.path / Manifest::file_name).string(),
           manifest.step);
    entry.whole = true;
  } catch (const Error& error) {
    entry.why_not = error.what();
    entry.unread = error.code() != ErrorCode::data;
  }
  return entry.whole;
}

std::vector<CheckpointEntry> CheckpointFolder::list() const {
  std::vector<CheckpointEntry> entries = names();
  for (CheckpointEntry& entry : entries) look_at(entry);
  return entries;
}

std::optional<CheckpointEntry> CheckpointFolder::newest_whole(std::vector<CheckpointEntry>* passed_over) const {
  std::vector<CheckpointEntry> all = names();
  for (auto entry = all.rbegin(); entry != all.rend(); ++entry) {
    if (look_at(*entry)) return *entry;
    if (passed_over != nullptr) passed_over->push_back(std::move(*entry));
  }
  return std::nullopt;
}

std::vector<CheckpointEntry> CheckpointFolder::prunable(int keep, std::int64_t archive_every) const {
  expect(keep >= 1, "{} checkpoints to keep", keep);
  std::vector<CheckpointEntry> prunable;
  std::vector<CheckpointEntry> all = names();
  int whole = 0;
  std::int64_t step_kept = -1, newest = -1;
  for (auto entry = all.rbegin(); entry != all.rend(); ++entry) {
    const bool replaced = entry->step == step_kept;
    if (whole < keep && !replaced) {
      if (!known_.contains(entry->path) && !look_at(*entry)) continue;
      ++whole;
      step_kept = entry->step;
      newest = std::max(newest, step_kept);
    } else if (!replaced && archive_every > 0 && entry->step % archive_every == 0) {
      step_kept = entry->step;
    } else {
      prunable.push_back(*entry);
    }
  }
  const std::vector<CheckpointEntry> left = names(true);
  std::copy_if(left.rbegin(), left.rend(), std::back_inserter(prunable),
               [newest](const CheckpointEntry& entry) { return entry.step <= newest; });
  return prunable;
}

std::vector<std::int64_t> CheckpointFolder::prune(int keep, std::int64_t archive_every) {
  std::vector<std::int64_t> removed;
  for (const CheckpointEntry& entry : prunable(keep, archive_every)) {
    discard(entry);
    removed.push_back(entry.step);
  }
  return removed;
}

/// Renames the checkpoint before removing its files, so that no incomplete one is ever listed.
void CheckpointFolder::discard(const CheckpointEntry& entry) const {
  const fs::path gone = part_of(entry.step, removed_job);
  remove_tree(gone);
  rename(entry.path, gone);
  sync_folder(folder_);
  remove_tree(gone);
}

void CheckpointFolder::remove_tree(const fs::path& folder) const {
  for (const std::string& name : files_in(folder)) {
    const int result = storage_.remove(folder / name);
    if (result < 0 && result != -ENOENT) refuse(folder / name, "remove", result);
  }
  const int result = storage_.remove_folder(folder);
  if (result < 0 && result != -ENOENT) refuse(folder, "remove", result);
}

template <typename Call>
int CheckpointFolder::patiently(const fs::path& path, Call&& call) const {
  for (;;) {
    const int result = call();
    if (result >= 0 || !retry_ || !retry_(path, -result)) return result;
  }
}

void CheckpointFolder::write_file(const fs::path& path, const std::string& text) const {
  const int made = patiently(path, [&] { return storage_.open(path, false); });
  if (made < 0) refuse(path, "make", made);
  OpenFile file(storage_, made);
  int result = patiently(path, [&] {
    int written = storage_.truncate(file.get(), 0);
    if (written == 0) written = storage_.write_all(file.get(), 0, std::as_bytes(std::span(text)));
    return written == 0 ? storage_.sync(file.get()) : written;
  });
  if (result == 0) result = storage_.close(file.release());
  if (result < 0) refuse(path, "write", result);
}

void CheckpointFolder::sync_folder(const fs::path& folder) const {
  const OpenFile file(storage_, storage_.open_folder(folder));
  if (file.get() < 0) refuse(folder, "open", file.get());
  const int result = storage_.sync(file.get());
  // Some file systems cannot sync folders; that is accepted.
  if (result < 0 && result != -EINVAL && result != -EBADF) refuse(folder, "sync", result);
}

void CheckpointFolder::rename(const fs::path& from, const fs::path& to) const {
  const int result = storage_.rename(from, to);
  if (result < 0) refuse(from, "rename", result);
}

}  // namespace ranvier::offload
