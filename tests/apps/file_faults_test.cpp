// Disks that fill up, break or corrupt data, under complete jobs. Each ends the job with one message that says where,
// and no wrong data are ever saved. Real faults; tests that need a separate disk run if one can be mounted.
#include "tests/apps/small_run.hpp"

#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <thread>

using namespace ranvier::tests;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

namespace {

using Words = std::vector<std::string>;

/// The files of a running job's ranks.
std::vector<fs::path> state_files(const fs::path& disk) {
  std::vector<fs::path> files;
  std::error_code gone;
  for (const auto& folder : fs::directory_iterator(disk, gone)) {
    if (folder.path().filename().string().starts_with("ranvier-offload."))
      files.push_back(folder.path() / "states");
  }
  return files;
}

struct Fixture : SmallText {
  /// Two ranks whose files are read and written in every step, for longer than any test waits.
  [[nodiscard]] Flags long_run(const std::string& disk, const Flags& more = {}) const {
    return small_run(
        text, join({"--steps", "1000000", "--metrics", metrics, "--save", weights, "--g-inter", "2", "--hidden",
                    "128", "--optimizer-tier", "nvme", "--nvme", disk, "--bucket-size", "20000"},
                   more));
  }

  /// Checks for one message with all these words, and that earlier saved files did not change.
  void check_ended(const Outcome& outcome, const Words& words) const {
    INFO(outcome.output);
    CHECK_FALSE(outcome.timed_out);
    CHECK(outcome.status != 0);
    const Words messages = errors_of(outcome);
    REQUIRE(messages.size() == 1);
    check_has(messages[0], words);
    CHECK(read_file(weights) == "saved before");
  }

  /// Ends a job by a signal while its disk is full. `space`: it gets space when it waits for some, and otherwise gives
  /// up.
  [[nodiscard]] Outcome end_on_full_disk(const std::string& disk, const Flags& flags, bool space) const {
    const std::string filler = disk + "/filler";
    fs::remove(metrics);
    const Flags endless{"--steps", "1000000", "--metrics", metrics, "--timeout", space ? "60" : "3"};
    Job job(2, small_run(text, join(flags, endless)));
    REQUIRE(job.wait_for_lines(metrics, 3, 60s));
    std::ofstream(filler) << std::string(8 << 20, 'x');
    job.signal_rank(1, SIGTERM);
    if (space) {
      // Only as much of the saved data fits as the existing pages have space for.
      job.wait_until_said("free space within");
      fs::remove(filler);
    }
    const Outcome outcome = job.wait(90s);
    fs::remove(filler);
    return outcome;
  }

  /// Starts a job, injects a fault once it trains, and repeats that until the job has ended.
  template <typename Break>
  void check_breaks(const Flags& flags, const Words& words, const Break& breaks, bool again = false) const {
    std::ofstream(weights) << "saved before";
    fs::remove(metrics);
    Job job(2, flags);
    REQUIRE(job.wait_for_lines(metrics, 3, 60s));
    breaks();
    std::jthread repeats;
    if (again) {
      repeats = std::jthread([&](const std::stop_token& ended) {
        while (!ended.stop_requested()) breaks();
      });
    }
    const Outcome outcome = job.wait(30s);
    repeats = {};
    check_ended(outcome, words);
  }
};

/// A mounted file system that cannot preallocate (ext2 on a loop device), while the object exists.
class SmallDisk {
 public:
  SmallDisk(const fs::path& folder, std::uintmax_t bytes) : image_(folder / "image"), path_(folder / "mounted") {
    std::ofstream(image_).put('\0');
    fs::resize_file(image_, bytes);
    fs::create_directory(path_);
    const std::string command = "{ mkfs.ext2 -q -F -m 0 -b 4096 " + image_.string() +
                                " && mount -o loop,errors=continue " + image_.string() + " " + path_.string() +
                                "; } >/dev/null 2>&1";
    mounted_ = ::geteuid() == 0 && std::system(command.c_str()) == 0;
  }
  ~SmallDisk() {
    if (mounted_) ::umount2(path_.c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  [[nodiscard]] bool mounted() const noexcept { return mounted_; }
  [[nodiscard]] const fs::path& image() const noexcept { return image_; }
  [[nodiscard]] std::string path() const { return path_.string(); }

 private:
  fs::path image_, path_;
  bool mounted_ = false;
};

void print_skipped() {
  MESSAGE("skipped: this needs root, mkfs.ext2 and a loop device; tests/offload simulates the same fault");
}

}  // namespace

TEST_CASE_FIXTURE(Fixture, "a file that another process truncates during a job ends it with file and offset") {
  const std::string disk = make_folder("disk");
  // A write past the new end extends the file again, with a hole in it, so a single truncation may not be detected.
  check_breaks(
      long_run(disk), {"/states: cannot read", "bytes at offset", "truncated"},
      [&] {
        const auto files = state_files(disk);
        std::error_code gone;
        if (!files.empty()) fs::resize_file(files.back(), 4096, gone);
      },
      true);
}

TEST_CASE_FIXTURE(Fixture,
                  "with checksums, a file that is damaged between steps ends the job with file and offset") {
  const std::string disk = make_folder("disk");
  const Flags flags = long_run(disk, {"--nvme-checksums", "on"});
  // The job's writes may cover the damage before it is read: it is repeated until detected.
  check_breaks(
      flags, {"/states: the 4096 bytes at offset", "have changed"},
      [&] {
        for (const fs::path& states : state_files(disk)) {
          std::error_code gone;
          const auto bytes = fs::file_size(states, gone);
          if (!gone) overwrite(states, bytes / 3, '!');
        }
      },
      true);
}

TEST_CASE_FIXTURE(Fixture, "a disk that fills up during a run ends the job with file and offset") {
  const SmallDisk disk(folder.path(), 64u << 20);
  if (!disk.mounted()) return print_skipped();
  // Nothing was preallocated, and forward passes continue to write when another process takes the rest.
  std::ofstream(weights) << "saved before";
  Job job(1, small_run(text, {"--save", weights, "--hidden", "256", "--sequence-length", "256", "--batch-size",
                              "40", "--policy", "gpipe", "--recompute", "1", "--activation-tier", "nvme", "--nvme",
                              disk.path()}));
  const auto written_bytes = [&] {
    std::uintmax_t bytes = 0;
    for (const fs::path& states : state_files(disk.path())) {
      struct stat status{};
      if (::stat(states.c_str(), &status) == 0) bytes += static_cast<std::uintmax_t>(status.st_blocks) * 512;
    }
    return bytes;
  };
  for (int i = 0; i < 6000 && written_bytes() < (1u << 20); ++i) std::this_thread::sleep_for(10ms);
  {
    std::ofstream other(disk.path() + "/other", std::ios::binary);
    const std::string piece(1 << 20, 'x');
    while (other.write(piece.data(), static_cast<std::streamsize>(piece.size())) && other.flush()) {
    }
  }
  check_ended(job.wait(60s), {"/states: cannot write", "bytes at offset", "No space left on device"});
}

TEST_CASE_FIXTURE(Fixture, "data that are truncated while they are read end the job with rank and file") {
  Job job(2, small_run(text, {"--steps", "1000000", "--metrics", metrics}));
  REQUIRE(job.wait_for_lines(metrics, 3, 60s));
  fs::resize_file(text, 0);
  check_output(74, job.wait(60s), {"ranvier: error: rank ", text + ": cannot be read any more"});
}

TEST_CASE_FIXTURE(Fixture,
                  "metrics and traces that cannot be written do not stop training, and set the exit status") {
  const Outcome outcome = require_status(
      74,
      run(2,
          small_run(text, {"--metrics", "/dev/full", "--trace", "/dev/full", "--save", weights, "--timeout", "2"}),
          60s));
  CHECK(fs::exists(weights));
  check_has(outcome.output, {"--metrics /dev/full: No space left on device", "error: outputs are missing: ",
                             "4 records of --metrics /dev/full were not written", "trace: cannot write /dev/full"});
}

TEST_CASE_FIXTURE(Fixture, "weights are saved even if the output is not read, or is closed") {
  std::string command = RANVIER_PROGRAM;
  for (const std::string& flag : small_run(text, {"--steps", "2000", "--save", weights}))
    command += " '" + flag + "'";
  std::FILE* const output = ::popen((command + " 2>" + file("errors")).c_str(), "r");  // far more than a pipe holds
  REQUIRE(output != nullptr);
  for (int i = 0; i < 6000 && !fs::exists(weights); ++i) std::this_thread::sleep_for(10ms);
  CHECK(fs::exists(weights));
  CHECK(::pclose(output) == 0);
  const std::string errors = read_file(file("errors"));
  INFO(errors);
  CHECK(errors.find("lines of the standard output were not written: Broken pipe") != std::string::npos);
}

TEST_CASE_FIXTURE(Fixture,
                  "weights wait for space on a disk that was filled meanwhile, and without it print a remedy") {
  const std::string disk = make_folder("weights disk"), saved = disk + "/model";
  if (::geteuid() != 0 || ::mount("none", disk.c_str(), "tmpfs", 0, "size=2m") != 0) return print_skipped();
  for (const bool capacity : {true, false}) {
    CAPTURE(capacity);
    const Outcome outcome = end_on_full_disk(disk, {"--hidden", "64", "--save", saved}, capacity);
    INFO(outcome.output);
    CHECK_FALSE(outcome.timed_out);
    CHECK((outcome.status == 75) == capacity);
    check_has(outcome.output, {"No space left on device; the weights take "});
    CHECK(fs::exists(saved + "/model.safetensors") == capacity);
    CHECK(has(outcome.output, "the final weights (") == !capacity);
    fs::remove_all(saved);
  }
  // Insufficient space is detected before the first step.
  const Outcome outcome = require_failure(run(1, small_run(text, {"--hidden", "256", "--save", saved}), 60s));
  check_lacks(outcome.output, {"step 1/"});
  check_has(outcome.output, {"another disk"});
  ::umount2(disk.c_str(), MNT_DETACH);
}

TEST_CASE_FIXTURE(Fixture, "the last checkpoint waits for space, and without it the earlier ones stay") {
  const std::string disk = make_folder("checkpoint disk"), checkpoints = disk + "/run";
  if (::geteuid() != 0 || ::mount("none", disk.c_str(), "tmpfs", 0, "size=4m") != 0) return print_skipped();
  for (const bool capacity : {true, false}) {
    CAPTURE(capacity);
    const Flags flags{"--checkpoint", checkpoints, "--checkpoint-every", "24h", "--resume", "auto"};
    const Outcome outcome = end_on_full_disk(disk, flags, capacity);
    INFO(outcome.output);
    CHECK(outcome.status == (capacity ? 75 : 74));
    CHECK(has(outcome.output, "error: outputs are missing: checkpoint of step ") == !capacity);
    check_has(outcome.output, {"No space left on device; the last checkpoint of this run takes "});
    CHECK(has(outcome.output, "warning: checkpoint failed: ") == !capacity);
    // The checkpoint of the first run.
    const auto whole = [](const fs::path& path) { return fs::exists(path / "manifest.json"); };
    CHECK(std::count_if(fs::directory_iterator(checkpoints), fs::directory_iterator(), whole) == 1);
  }
  ::umount2(disk.c_str(), MNT_DETACH);
}

TEST_CASE_FIXTURE(Fixture, "a disk that breaks during a run ends the job with file, offset and cause") {
  const SmallDisk disk(folder.path(), 24u << 20);
  if (!disk.mounted()) return print_skipped();
  check_breaks(long_run(disk.path()), {"/states: cannot ", "bytes at offset", "Input/output error"}, [&] {
    // More than once: writes before the next read extend the image again.
    for (int i = 0; i < 50; ++i) {
      fs::resize_file(disk.image(), 64 << 10);
      std::this_thread::sleep_for(10ms);
    }
  });
}

TEST_CASE_FIXTURE(Fixture,
                  "the next start removes a killed job's files, and leaves all files of running jobs alone") {
  const std::string disk = make_folder("disk");
  Job living(2, long_run(disk));
  REQUIRE(living.wait_for_lines(metrics, 2, 60s));
  const auto of_living = state_files(disk);
  CHECK(of_living.size() == 2);
  {
    const std::string other = file("other.jsonl");
    Job killed(2, long_run(disk, {"--metrics", other, "--save", file("other.safetensors")}));
    REQUIRE(killed.wait_for_lines(other, 2, 60s));
    CHECK(state_files(disk).size() == 4);
    killed.signal_rank(0, SIGKILL);
    killed.signal_rank(1, SIGKILL);
    require_failure(killed.wait(20s));
    CHECK(!fs::exists(file("other.safetensors")));
  }
  CHECK(state_files(disk).size() == 4);
  check_has(ends_well(2, {"--optimizer-tier", "nvme", "--nvme", disk}, 60s).output, {"cleared: 2 folders"});
  const int before = static_cast<int>(lines_of(read_file(metrics)).size());
  CHECK(living.wait_for_lines(metrics, before + 2, 20s));
  for (const fs::path& states : of_living) CHECK(fs::exists(states));
  living.signal_launcher(SIGUSR1);
  require_status(75, living.wait(60s));
  CHECK(fs::is_empty(disk));
}
