// A program under mpirun, started and observed like a user does: the program RANVIER_PROGRAM of the test target. One
// thread.
//
//   Job job(4, "--g-inter 2 --data " + corpus);
//   const Outcome outcome = job.wait(20s);
//   CHECK(outcome.status == 0);
#pragma once

#include "tests/apps/flags.hpp"
#include "tests/temporary_folder.hpp"

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace ranvier::tests {

using Environment = std::vector<std::pair<std::string, std::string>>;

struct Outcome {
  int status = 0;  ///< exit status; 128 + N after signal N
  double seconds = 0;
  bool timed_out = false;
  std::string output;  ///< stdout and stderr of all ranks and of mpirun
};

class Job {
 public:
  Job(int ranks, const Flags& flags, const Environment& environment = {});
  /// The same through another command, whose last arguments are mpirun and its arguments.
  Job(const std::vector<std::string>& through, int ranks, const Flags& flags, const Environment& environment = {});
  /// One entry per rank, whose flags then differ.
  explicit Job(const std::vector<Flags>& flags_by_rank, const Environment& environment = {});
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  /// Waits until the job has ended; kills it after `limit`.
  Outcome wait(std::chrono::duration<double> limit);
  /// False if the file has fewer than `count` lines after `limit`.
  bool wait_for_lines(const std::string& path, int count, std::chrono::duration<double> limit) const;

  /// Waits at most a minute.
  void wait_until_said(const std::string& words) const;
  /// Whether the output so far contains the words.
  [[nodiscard]] bool has_said(const std::string& words) const;

  /// All output so far.
  [[nodiscard]] std::string said() const;

  void signal_launcher(int signal) const;
  void signal_rank(int rank, int signal) const;
  /// Limits the size of its files to this many bytes, like a full disk.
  void limit_files(int rank, std::size_t bytes) const;
  /// Whether the process existed and received the signal.
  bool signal_rank_if_there(int rank, int signal) const;

 private:
  void start(const std::vector<std::string>& command, const Environment& environment);
  [[nodiscard]] pid_t rank_process(int rank) const;
  [[nodiscard]] std::string output_path() const { return (folder_.path() / "output").string(); }

  TemporaryFolder folder_;
  std::string mark_;  ///< in the environment of this job's processes only
  pid_t launcher_ = -1;
  std::chrono::steady_clock::time_point begin_;
};

/// Start, wait and return.
Outcome run(int ranks, const Flags& flags, std::chrono::duration<double> limit,
            const Environment& environment = {});
/// Requires that a job ended with this status; returns its outcome. A failure prints the job's output.
Outcome require_status(int status, Outcome outcome);
/// The same, and checks that its output has these words.
void check_output(int status, Outcome outcome, std::initializer_list<std::string_view> words);
/// Requires that a job ended in time, with any error.
Outcome require_failure(Outcome outcome);

/// The lines with an error of ranvier-train.
[[nodiscard]] std::vector<std::string> errors_of(const Outcome& outcome);

}  // namespace ranvier::tests
