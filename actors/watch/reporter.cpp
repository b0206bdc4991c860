#include "actors/watch/reporter.hpp"

#include "models/tokenizers/unicode.hpp"
#include "runtime/base/names.hpp"

#include <boost/json/serialize.hpp>
#include <boost/json/string_view.hpp>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <utility>

#include <unistd.h>

namespace ranvier::actors {

namespace {

// JSON has no infinity and no NaN.
std::string number(double value) { return std::isfinite(value) ? fmt::format("{}", value) : "null"; }

const char* action_text(BadStepOptions::Action action) {
  return runtime::enum_name<BadStepOptions::Action::rollback>(
      action,
      {"stopping the job", "step skipped", "rolling back to the last checkpoint, dropping this step's samples"});
}

/// Returns whether the output goes to a terminal. mpirun always gives its ranks pseudo-terminals, so under mpirun its
/// own output decides.
bool on_a_terminal() {
  if (isatty(STDOUT_FILENO) == 0) return false;
  if (std::getenv("OMPI_COMM_WORLD_SIZE") == nullptr) return true;
  char target[256] = "";
  const std::string link = fmt::format("/proc/{}/fd/1", getppid());
  const auto length = readlink(link.c_str(), target, sizeof target - 1);
  const std::string_view name(target, length > 0 ? static_cast<std::size_t>(length) : 0);
  return name.starts_with("/dev/pts/") || name.starts_with("/dev/tty");
}

/// Follows https://no-color.org.
bool wants_colours() {
  const char* const refused = std::getenv("NO_COLOR");
  const char* const terminal = std::getenv("TERM");
  return (refused == nullptr || *refused == '\0') && (terminal == nullptr || std::string_view(terminal) != "dumb");
}

}  // namespace

std::string printable(std::string_view text) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t bytes = models::character_bytes(text, at);
    const char32_t character = bytes == 0 ? 0 : models::character_at(text, at);
    const bool controls =
        character < 0x20 ? character != '\n' && character != '\t' : character >= 0x7f && character < 0xa0;
    if (controls) {
      models::append_utf8(0xfffd, result);
    } else {
      result += text.substr(at, bytes);
    }
    at += std::max<std::size_t>(bytes, 1);
  }
  return result;
}

std::string format_duration(double seconds) {
  const auto whole = static_cast<std::int64_t>(seconds + 0.5);
  if (whole >= 3600) return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

std::string format_count(double value) {
  constexpr double rounds_up = 0.9995;  // to three digits
  for (const auto& [unit, name] :
       {std::pair{1e18, "E"}, {1e15, "P"}, {1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}}) {
    if (value >= rounds_up * unit) return fmt::format("{:.3g}{}", value / unit, name);
  }
  return fmt::format("{:.3g}", value);
}

std::string format_fitting(double value, int digits, int columns) {
  if (std::isnan(value)) return "nan";  // without a sign
  if (std::isfinite(value)) {
    for (int d = digits; d >= 0; --d) {
      std::string text = fmt::format("{:.{}f}", value, d);
      if (std::ssize(text) <= columns) return text;
    }
  }
  // Scientific notation (1.23e+45) or infinity.
  return fmt::format("{:.{}g}", value, std::max(1, columns - 6));
}

double FlopsCeiling::share(std::int64_t step, double rate) {
  raised_from_.reset();
  if (value_ <= 0 || !std::isfinite(rate)) return 0;
  if (rate > value_) {
    raised_from_ = std::exchange(value_, rate);
    if (raises_++ == 0) first_step_ = step;
    last_step_ = step;
  }
  return rate / value_;
}

std::string FlopsCeiling::describe_raises() const {
  if (raises_ == 0) return {};
  const std::string steps = raises_ == 1 ? fmt::format("step {}", last_step_)
                                         : fmt::format("{} steps ({} to {})", raises_, first_step_, last_step_);
  return fmt::format("measured MFU: peak {}FLOP/s before training, raised to {}FLOP/s ({:.0f}%) by {}",
                     format_count(measured_), format_count(value_), 100 * value_ / measured_, steps);
}

Reporter::Reporter(const Options& options, const runtime::MemoryPlan& memory,
                   std::unique_ptr<runtime::RecordFile> metrics)
    : options_(options),
      memory_bytes_(memory.bytes(runtime::MemorySpace::device)),
      metrics_(std::move(metrics)),
      terminal_(!options.quiet && on_a_terminal()),
      colours_(terminal_ && wants_colours()),
      stragglers_(options.trainer.grid, microbatches_of(options.trainer) * options.trainer.chunks_per_rank) {
  for (int k = 0; k < runtime::memory_kinds; ++k) {
    const auto kind = static_cast<runtime::MemoryKind>(k);
    memory_json_ += fmt::format("{}\"{}\":{}", k > 0 ? "," : "", runtime::to_string(kind),
                                memory.bytes(runtime::MemorySpace::device, kind));
  }
  for (const auto space : {runtime::MemorySpace::pinned, runtime::MemorySpace::host, runtime::MemorySpace::nvme}) {
    memory_json_ += fmt::format(",\"{}\":{}", runtime::to_string(space), memory.bytes(space));
  }
}

Reporter::~Reporter() { clear_bar(); }

void Reporter::start(runtime::Duration now, const PeakRates& peak) {
  last_ = now;
  ceiling_ = FlopsCeiling(peak.measured);
  data_sheet_ = peak.data_sheet;
}

void Reporter::bad_step(const BadStep& bad) {
  write_held();
  print(bad.step,
        fmt::format("bad step: {}: {}", describe(bad, options_.trainer.bad_steps), action_text(bad.action)),
        Colour::bad);
  record(fmt::format(R"({{"bad_step":{},"reason":"{}","action":"{}","loss":{},"grad_norm":{},"in_a_row":{}}})",
                     bad.step, to_string(bad.reason), to_string(bad.action), number(bad.loss),
                     number(bad.gradient_norm), bad.in_a_row));
}

void Reporter::step(const StepResult& result, runtime::Duration now) {
  if (result.bad) bad_step(*result.bad);
  // After stop or rollback this step has no metrics.
  if (result.bad && result.bad->action != BadStepOptions::Action::skip) return;
  const double elapsed = std::chrono::duration<double>(now - last_).count();
  last_ = now;
  ++steps_;
  recent_seconds_.add(elapsed);
  if (result.has_losses) {
    if (!first_loss_) first_loss_ = result.loss;
    last_loss_ = result.loss;
  }

  const double tokens_per_second = options_.tokens_per_step / elapsed;
  const double flops_per_second = options_.flops_per_step / elapsed;
  constexpr double unknown = std::numeric_limits<double>::quiet_NaN();
  const double share = ceiling_.share(result.step, flops_per_second);
  const double measured_mfu = ceiling_.value() > 0 ? share : unknown;
  const double mfu = !data_sheet_ ? measured_mfu : *data_sheet_ > 0 ? flops_per_second / *data_sheet_ : unknown;
  if (has_line(result)) {
    clear_bar();
    const std::string loss =
        result.has_losses ? fmt::format("loss {:<8}", format_fitting(result.loss, 5, 8)) : "no losses    ";
    std::string line = fmt::format("{}  {}  norm {:<7}  lr {:.2e}", step_text(result.step), loss,
                                   format_fitting(result.gradient_norm, 4, 7), result.learning_rate);
    if (options_.trainer.loss_scale.dynamic)
      line += fmt::format("  scale {:<8}  skips {:<4}", format_fitting(result.loss_scale, 0, 8), result.skips);
    const std::string rate =
        tokens_per_second < 1 ? format_fitting(tokens_per_second, 5, 7) : format_count(tokens_per_second);
    const bool shows_measured = !std::isfinite(mfu) && std::isfinite(measured_mfu);
    const double shown = shows_measured ? measured_mfu : mfu;
    line += fmt::format(
        "  {:>8} ms  {:>7} {}/s  {} {:>6}  mem {}  ETA {}", format_fitting(elapsed * 1e3, 1, 8), rate,
        counts_tokens() ? "tok" : options_.item + "s", shows_measured ? "measured MFU" : "MFU",
        std::isfinite(shown) ? fmt::format("{:.1f}%", 100 * shown) : "-", runtime::format_bytes(memory_bytes_),
        format_duration(median_step_seconds() * static_cast<double>(options_.trainer.steps - result.step)));
    if (result.skipped) line += result.bad ? "  (skipped)" : "  (skipped: gradients overflowed)";
    if (const auto& before = ceiling_.raised_from(); before && shown == measured_mfu) {
      line += fmt::format("  (measured peak raised to {}FLOP/s from {}FLOP/s)", format_count(ceiling_.value()),
                          format_count(*before));
    }
    fmt::print("{}\n", line);
  }
  if (!options_.quiet && options_.lines_every > 0) {
    clear_bar();
    draw_bar(result.step);
    std::fflush(stdout);
  }
  write_held();
  const std::string slow = straggling(result);
  rebalance(result);
  sample_follows_ = result.sample_follows;
  if (records()) {
    held_ = fmt::format(
        R"({{"step":{},"loss":{},"grad_norm":{},"lr":{},"loss_scale":{},"skipped":{},"tokens":{},"seconds":{},)"
        R"("tokens_per_second":{},"model_flops_per_second":{},"mfu":{},"measured_mfu":{},"memory":{{{}}})",
        result.step, result.has_losses ? number(result.loss) : "null", number(result.gradient_norm),
        number(result.learning_rate), number(result.loss_scale), result.skipped, options_.tokens_per_step,
        number(elapsed), number(tokens_per_second), number(flops_per_second), number(mfu), number(measured_mfu),
        memory_json_);
    held_ += slow;
    if (steps_ == 1 && !options_.configuration.empty()) held_ += ",\"configuration\":" + options_.configuration;
    if (!result.evaluation_follows && !result.sample_follows) write_held();
  }
}

void Reporter::warn(std::int64_t step, const std::string& line) { print(step, worded(line), Colour::warning); }

std::string Reporter::worded(const std::string& text) const {
  return options_.wording ? options_.wording(text) : text;
}

std::string Reporter::straggling(const StepResult& result) {
  if (result.compute_seconds.empty()) return {};
  const Stragglers::Change change = stragglers_.step(result.compute_seconds);
  const runtime::Grid grid(options_.trainer.grid, options_.trainer.grid.ranks());
  for (const Straggler& straggler : change.begin) warn(result.step, describe(straggler, grid));
  for (const int rank : change.end)
    warn(result.step, fmt::format("straggler: rank {} is no longer slower than its stage's other rows", rank));
  std::vector<std::string> all;
  for (const Straggler& straggler : stragglers_.now())
    all.push_back(fmt::format(R"({{"rank":{},"times":{},"seconds_per_step":{}}})", straggler.rank,
                              number(straggler.times), number(straggler.seconds_per_step)));
  return all.empty() ? std::string() : fmt::format(R"(,"stragglers":[{}])", fmt::join(all, ","));
}

void Reporter::rebalance(const StepResult& result) {
  if (!result.split) return;
  const SplitAdvice& split = *result.split;
  const double step_now = median_step_seconds();
  const double step_then = std::max(0.0, step_now - split.row_seconds_now + split.row_seconds_then);
  warn(result.step, describe(split, step_now, step_then));
  std::vector<std::string> measured;
  for (const LayerSeconds& stage : split.measured)
    measured.push_back(fmt::format(R"({{"forward":{},"backward":{},"weights":{}}})", number(stage.forward),
                                   number(stage.backward), number(stage.weights)));
  record(fmt::format(
      R"({{"rebalance":{},"layers_per_stage":[{}],"stage_seconds":[{}],"better_layers_per_stage":[{}],)"
      R"("better_stage_seconds":[{}],"step_seconds":{},"better_step_seconds":{}}})",
      result.step, fmt::join(split.layers_now, ","), fmt::join(measured, ","), fmt::join(split.layers_then, ","),
      fmt::join(split.seconds_then, ","), number(step_now), number(step_then)));
}

void Reporter::evaluation(const EvaluationResult& result, runtime::Duration now) {
  std::string line, more;
  if (result.loss) {
    const double loss = *result.loss;
    line += fmt::format("validation loss {:.5f}", loss);
    if (counts_tokens()) line += fmt::format("  perplexity {:.5g} per token", std::exp(loss));
    more += fmt::format(",\"validation_loss\":{},\"validation_perplexity\":{},\"validation_samples\":{}",
                        number(loss), number(std::exp(loss)), result.samples);
    if (options_.bytes_per_token > 0) {
      const double per_byte = std::exp(loss / options_.bytes_per_token);
      line += fmt::format(", {:.5g} per byte", per_byte);
      more += fmt::format(",\"validation_perplexity_per_byte\":{}", number(per_byte));
    }
    if (result.correct) {
      line += fmt::format("  accuracy {:.2f}%", 100 * *result.correct);
      more += fmt::format(",\"validation_accuracy\":{}", number(*result.correct));
    }
    line += fmt::format("  over {} samples, {} {}s", result.samples,
                        format_count(static_cast<double>(result.losses)), options_.item);
  }
  if (result.accuracy) {
    line += fmt::format("{}HellaSwag {:.2f}%", line.empty() ? "" : "  ", 100 * *result.accuracy);
    more += fmt::format(",\"hellaswag_accuracy\":{}", number(*result.accuracy));
  }
  print(result.step, line, Colour::good);
  hold(result.step);
  if (!held_.empty()) held_ += more;
  if (!sample_follows_) write_held();
  last_ = now;
}

void Reporter::checked(const ReplicaReport& report, std::optional<BadStepOptions::Action> follows,
                       runtime::Duration now) {
  ++checks_;
  check_seconds_ += report.seconds;
  last_ = now;
  std::vector<std::string> lines;
  if (checks_ == 1) {
    lines.push_back(
        report.bytes == 0
            ? "replica check: rank 0 has no replicated states"
            : fmt::format("replica check: compared {} of rank 0's states with their replicas in {:.3f} s",
                          runtime::format_bytes(report.bytes), report.seconds));
  }
  for (const ReplicaMismatch& damage : report.damage)
    lines.push_back("replica mismatch: " + describe(damage, options_.trainer.grid));
  if (follows)
    lines.push_back(fmt::format("replica mismatch: {}", *follows == BadStepOptions::Action::rollback
                                                            ? "rolling back to the last checkpoint"
                                                            : action_text(*follows)));
  for (const std::string& line : lines) print(report.step, line, follows ? Colour::bad : Colour::plain);
  if (!follows) return;
  write_held();
  for (const ReplicaMismatch& damage : report.damage) {
    record(fmt::format(
        R"({{"damage":{},"unit":"{}","state":"{}","begin":{},"end":{},"ranks":[{}],"others":[{}],"action":"{}"}})",
        report.step, damage.unit, to_string(damage.array), damage.range.begin,
        damage.range.begin + damage.range.count, fmt::join(damage.ranks, ","), fmt::join(damage.others, ","),
        to_string(*follows)));
  }
}

std::string Reporter::checks() const {
  if (checks_ == 0) return {};
  return fmt::format("replica checks: {}, {:.3f} s per check", checks_,
                     check_seconds_ / static_cast<double>(checks_));
}

void Reporter::sample(std::int64_t step, const std::string& text, runtime::Duration now) {
  const std::string shown = printable(text);
  print(step, "sample:\n" + shown);
  hold(step);
  write_held(",\"sample\":" + boost::json::serialize(boost::json::string_view(shown)));
  last_ = now;
}

void Reporter::checkpoint(const CheckpointResult& result) {
  if (result.failure.empty()) {
    print(result.step, fmt::format("checkpoint: {} in {:.2f} s (optimizer stalled {:.3f} s)",
                                   runtime::format_bytes(result.bytes), result.seconds, result.waited_seconds));
  } else {
    warn(result.step, fmt::format("warning: checkpoint failed: {}; earlier checkpoints remain{}", result.failure,
                                  result.last ? "" : ", training continues"));
  }
  if (!result.warning.empty()) warn(result.step, "warning: " + result.warning);
  const auto text = [this](const std::string& words) {
    return boost::json::serialize(boost::json::string_view(printable(worded(words))));
  };
  std::string object = fmt::format(R"({{"checkpoint":{},"bytes":{},"seconds":{},"waited_seconds":{})", result.step,
                                   result.bytes, number(result.seconds), number(result.waited_seconds));
  if (!result.failure.empty()) object += ",\"failure\":" + text(result.failure);
  if (!result.warning.empty()) object += ",\"warning\":" + text(result.warning);
  record(object + "}");
}

void Reporter::record(const std::string& object) {
  const std::string line = object + '\n';
  if (metrics_) metrics_->append(line);
  if (options_.records) options_.records(line);
}

void Reporter::finish() {
  write_held();
  clear_bar();
}

void Reporter::hold(std::int64_t step) {
  if (records() && held_.empty()) held_ = fmt::format("{{\"step\":{}", step);
}

void Reporter::write_held(const std::string& more) {
  if (held_.empty()) return;
  record(held_ + more + "}");
  held_.clear();
}

std::string Reporter::step_text(std::int64_t step) const {
  if (options_.trainer.steps == 0) return "evaluation";
  return fmt::format("step {:>{}}/{}", step, std::to_string(options_.trainer.steps).size(), options_.trainer.steps);
}

bool Reporter::has_line(const StepResult& result) const {
  if (options_.quiet || options_.lines_every == 0) return false;
  return steps_ == 1 || result.step == options_.trainer.steps || result.step % options_.lines_every == 0 ||
         result.bad;
}

void Reporter::draw_bar(std::int64_t step) {
  if (!terminal_ || step == options_.trainer.steps) return;
  constexpr std::int64_t width = 40;
  const auto filled = static_cast<std::size_t>(width * step / options_.trainer.steps);
  fmt::print("[{}{}] {:.0f}%", std::string(filled, '#'), std::string(width - filled, '.'),
             100.0 * static_cast<double>(step) / static_cast<double>(options_.trainer.steps));
  bar_drawn_ = true;
}

void Reporter::print(std::int64_t step, const std::string& text, Colour colour) {
  if (options_.quiet) return;
  clear_bar();
  static constexpr const char* codes[] = {"", "\033[32m", "\033[33m", "\033[31m"};
  const bool coloured = colours_ && colour != Colour::plain;
  fmt::print("{}{}  {}{}\n", coloured ? codes[static_cast<int>(colour)] : "", step_text(step), text,
             coloured ? "\033[0m" : "");
  std::fflush(stdout);
}

void Reporter::clear_bar() {
  if (bar_drawn_) fmt::print("\r\033[K");
  bar_drawn_ = false;
}

}  // namespace ranvier::actors
