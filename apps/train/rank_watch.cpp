#include "apps/train/rank_watch.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <utility>

namespace ranvier::apps {
namespace {

using runtime::Channel;
using runtime::Tag;

// Follow the tags of watchdog, NCCL and signals on this channel.
constexpr Tag question_tag{Channel::control, 80};
constexpr Tag answer_tag{Channel::control, 81};
constexpr Tag failure_tag{Channel::control, 82};

/// Text with a terminating zero; small enough for MPI to copy it before the send returns.
using FailureMessage = std::array<char, 1024>;

constexpr auto period_per_rank = std::chrono::milliseconds(4);  // longer period for thousands of ranks

RankSnapshot::Rank read_answer(std::span<const std::byte> bytes) {
  RankSnapshot::Rank rank;
  std::memcpy(&rank.summary, bytes.data(), sizeof rank.summary);
  bytes = bytes.subspan(sizeof rank.summary);
  rank.spans.resize(std::min<std::size_t>(rank.summary.spans, bytes.size() / sizeof(SummarySpan)));
  if (!rank.spans.empty()) std::memcpy(rank.spans.data(), bytes.data(), rank.spans.size() * sizeof(SummarySpan));
  return rank;
}

}  // namespace

/// Buffers of the replies of one request.
struct RankWatch::Gathering {
  Question question;
  std::vector<std::vector<std::byte>> answers;
  std::size_t missing = 0;
  RankSnapshot snapshot;
};

struct RankWatch::Answering {
  Question question;
  std::vector<std::byte> answer;
};

RankWatch::RankWatch(runtime::EventLoop& loop, runtime::Transport& transport, const runtime::Trace& trace,
                     Options options)
    : loop_(&loop),
      transport_(&transport),
      trace_(&trace),
      options_(std::move(options)),
      answer_bytes_(sizeof(RankSummary) + summary_spans(transport.ranks()) * sizeof(SummarySpan)) {
  options_.period = std::max<runtime::Duration>(options_.period, transport.ranks() * period_per_rank);
  if (transport.rank() == 0) {
    for (int rank = 1; rank < transport.ranks(); ++rank) listen_for_failure(rank);
    tick();
  } else {
    listen();
  }
}

RankWatch::~RankWatch() { *alive_ = false; }

void RankWatch::step_done(std::int64_t step) {
  step_ = step;
  last_step_ = {.from_ns = last_step_.to_ns, .to_ns = trace_->elapsed_ns()};
}

void RankWatch::tick() {
  if (!asking_ && options_.wanted()) ask();
  loop_->after(options_.period, [this, alive = alive_] {
    if (*alive) tick();
  });
}

void RankWatch::ask() {
  asking_ = true;
  const auto state = std::make_shared<Gathering>();
  // Before the first step is done: the time since the start.
  state->question = step_ > 0 ? last_step_ : Question{.from_ns = 0, .to_ns = trace_->elapsed_ns()};
  state->snapshot = {.step = step_,
                     .step_ms = static_cast<double>(state->question.to_ns - state->question.from_ns) * 1e-6,
                     .at_seconds = static_cast<double>(trace_->elapsed_ns()) * 1e-9};
  const auto ranks = static_cast<std::size_t>(transport_->ranks());
  state->answers.assign(ranks, std::vector<std::byte>(answer_bytes_));
  state->answers[0] = answer(state->question);
  state->missing = ranks - 1;
  const auto finish = [this, state] {
    asking_ = false;
    for (const auto& bytes : state->answers) state->snapshot.ranks.push_back(read_answer(bytes));
    options_.heard(std::move(state->snapshot));
  };
  if (state->missing == 0) return finish();
  for (std::size_t r = 1; r < ranks; ++r) {
    const int peer = static_cast<int>(r);
    transport_->receive(peer, answer_tag, runtime::Bytes(state->answers[r]), [state, finish, alive = alive_] {
      if (--state->missing == 0 && *alive) finish();
    });
    transport_->send(peer, question_tag, std::as_bytes(std::span(&state->question, 1)), [state] {});
  }
}

void RankWatch::listen() {
  const auto state = std::make_shared<Answering>();
  transport_->receive(0, question_tag, std::as_writable_bytes(std::span(&state->question, 1)),
                      [this, state, alive = alive_] {
                        if (!*alive) return;
                        state->answer = answer(state->question);
                        transport_->send(0, answer_tag, runtime::ConstBytes(state->answer), [this, state, alive] {
                          if (*alive) listen();
                        });
                      });
}

void RankWatch::listen_for_failure(int rank) {
  const auto message = std::make_shared<FailureMessage>();
  transport_->receive(
      rank, failure_tag, std::as_writable_bytes(std::span(*message)), [this, message, alive = alive_] {
        if (*alive) options_.failed(std::string(message->data(), ::strnlen(message->data(), message->size())));
      });
}

void RankWatch::tell_failure(runtime::Transport& transport, std::string_view message) {
  const auto sent = std::make_shared<FailureMessage>();
  message.copy(sent->data(), sent->size() - 1);
  transport.send(0, failure_tag, std::as_bytes(std::span(*sent)), [sent] {});
}

std::vector<std::byte> RankWatch::answer(const Question& question) const {
  const auto spans = trace_->longest_between(question.from_ns, question.to_ns, summary_spans(transport_->ranks()));
  RankSummary summary;
  options_.describe(summary);
  for (int k = 0; k < runtime::span_kinds; ++k)
    summary.seconds[static_cast<std::size_t>(k)] = trace_->seconds(static_cast<runtime::SpanKind>(k));
  summary.spans = static_cast<std::uint32_t>(spans.size());
  std::vector<std::byte> bytes(answer_bytes_);
  std::memcpy(bytes.data(), &summary, sizeof summary);
  std::size_t at = sizeof summary;
  for (const runtime::Trace::Span& span : spans) {
    const std::int64_t begin = std::max(span.begin_ns, question.from_ns),
                       end = std::min(span.end_ns, question.to_ns);
    const SummarySpan piece{.begin_ms = static_cast<float>(static_cast<double>(begin - question.from_ns) * 1e-6),
                            .length_ms = static_cast<float>(static_cast<double>(end - begin) * 1e-6),
                            .index = span.index,
                            .kind = static_cast<std::uint8_t>(span.kind),
                            .lane = static_cast<std::uint8_t>(span.lane)};
    std::memcpy(bytes.data() + at, &piece, sizeof piece);
    at += sizeof piece;
  }
  return bytes;
}

}  // namespace ranvier::apps
