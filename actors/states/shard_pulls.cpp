#include "actors/states/shard_pulls.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace ranvier::actors {

using collectives::Range;
using runtime::Channel;
using runtime::Tag;

namespace {

constexpr std::size_t answers_at_a_time = 4;  // replies through pinned memory at a time; others wait

}  // namespace

std::vector<runtime::StagedMessages> ShardPulls::staged_messages(const ModelShare& share,
                                                                 const BufferClasses& classes) {
  using Direction = runtime::StagedMessages::Direction;
  const models::StageSlices& stage = *share.stage;
  const UnitStates& states = *share.states;
  using Kind = models::Stage::PassStep::Kind;
  const ShardOwners owners(share);
  // By owners and class of the first unit of a message, which contains all shards that the step still needs.
  std::map<std::pair<bool, ShardOwners::From>, std::vector<std::size_t>> bytes;
  for (const bool backward : {false, true}) {
    for (const Kind kind : {Kind::forward, Kind::backward_input}) {  // backward passes recompute forward steps
      for (const auto& units : stage.units_of_parts(kind)) {
        std::map<ShardOwners::From, std::size_t> behind;
        for (auto unit = units.rbegin(); unit != units.rend(); ++unit) {
          const auto from = owners.from(*unit, backward);
          // Only secondary shards have separate messages in backward passes. Forward passes pull them of frozen units.
          if (!from || (backward ? !from->secondary : from->secondary && kind == Kind::backward_input)) continue;
          behind[*from] += states.all()[*unit].elements / owners.count(*unit, backward) *
                           runtime::size_of(states.precision().compute);
          std::size_t& of_class =
              bytes.try_emplace({backward, *from}, classes.places.size()).first->second[classes.of_unit[*unit]];
          of_class = std::max(of_class, behind[*from]);
        }
      }
    }
  }
  std::vector<runtime::StagedMessages> messages;
  std::size_t longest = 0;
  for (const auto& [from, of_class] : bytes) {
    const BufferSchedule schedule(classes);
    const std::size_t others = owners.owners(from.second).members.size() - 1;
    for (std::size_t place = 0; place < schedule.places(); ++place) {
      const std::size_t of_place = of_class[schedule.class_of_place(place)];
      if (of_place == 0) continue;
      longest = std::max(longest, of_place);
      messages.push_back({Channel::piece, Direction::receive, static_cast<std::uint32_t>(place), of_place, others});
    }
  }
  messages.push_back({Channel::piece, Direction::send, std::nullopt,
                      std::min(longest, runtime::StagedTransport::usual_piece_bytes), answers_at_a_time});
  return messages;
}

ShardPulls::ShardPulls(const RankContext& context, const ModelShare& share, OffloadedParameters* records,
                       HasShard has_shard)
    : context_(&context),
      states_(share.states.get()),
      column_(share.column.get()),
      owners_(share),
      records_(records),
      has_shard_(std::move(has_shard)) {}

ShardPulls::~ShardPulls() { *alive_ = false; }

void ShardPulls::start() {
  for (const int row : owners_.other_rows()) listen(row, std::make_shared<Request>());
}

std::vector<int> ShardPulls::ask(std::span<const Fill> fills, std::uint64_t version,
                                 const std::function<void(int rank)>& arrived) {
  std::map<std::pair<bool, ShardOwners::From>, std::vector<Fill>> by_owners;
  for (const Fill& fill : fills) {
    if (const auto from = owners_.from(fill.unit, fill.backward)) by_owners[{fill.backward, *from}].push_back(fill);
  }
  const std::size_t element = runtime::size_of(states_->precision().compute);
  std::vector<int> asked;
  for (const auto& [key, all] : by_owners) {
    const auto& [backward, from] = key;
    for (const int row : owners_.owners(from).members) {
      if (row == column_->layout.rank()) continue;
      const int owner = column_->ranks[static_cast<std::size_t>(row)];
      for (std::size_t begin = 0; begin < all.size(); begin += Request::max_units) {
        const std::size_t end = std::min(all.size(), begin + Request::max_units);
        auto request = std::make_shared<Request>(Request{.version = version,
                                                         .answer = static_cast<std::uint32_t>(all[begin].place),
                                                         .backward = static_cast<std::uint8_t>(backward)});
        std::vector<runtime::Bytes> ranges;
        for (std::size_t f = begin; f < end; ++f) {
          request->units[request->count++] = static_cast<std::uint16_t>(all[f].unit);
          const Range theirs = owners_.range(all[f].unit, backward, row);
          ranges.emplace_back(all[f].data + theirs.begin * element, theirs.count * element);
        }
        asked.push_back(owner);
        context_->transport.receive(owner, Tag{Channel::piece, request->answer}, ranges,
                                    [arrived, owner] { arrived(owner); });
        context_->transport.send(owner, Tag{Channel::pull, 0}, std::as_bytes(std::span(request.get(), 1)),
                                 [request] {});
      }
    }
  }
  return asked;
}

void ShardPulls::listen(int row, const std::shared_ptr<Request>& request) {
  const int rank = column_->ranks[static_cast<std::size_t>(row)];
  context_->transport.receive(rank, Tag{Channel::pull, 0}, std::as_writable_bytes(std::span(request.get(), 1)),
                              [this, row, request, alive = alive_] {
                                if (!*alive) return;
                                const Request received = *request;
                                listen(row, request);
                                answer(row, received);
                              });
}

void ShardPulls::answer(int row, const Request& request) {
  // The requesting rank may be a batch ahead, while this rank has refreshed only some units.
  if (!std::all_of(request.units, request.units + request.count,
                   [&](std::uint16_t unit) { return has_shard_(unit, request.backward != 0, request.version); })) {
    deferred_.emplace_back(row, request);
    return;
  }
  const int rank = column_->ranks[static_cast<std::size_t>(row)];
  const Tag tag{Channel::piece, request.answer};
  if (owners_.tier(request.units[0], request.backward != 0) != TierKind::device) {  // the same for all units
    std::vector<OffloadedParameters::Shard> pieces;
    for (std::size_t u = 0; u < request.count; ++u)
      pieces.push_back(owners_.own(request.units[u], request.backward != 0));
    return records_->lend(std::move(pieces), request.version,
                          [this, rank, tag](std::span<const runtime::ConstBytes> ranges, runtime::Handler sent) {
                            context_->transport.send(rank, tag, ranges, std::move(sent));
                          });
  }
  std::vector<runtime::ConstBytes> ranges;
  for (std::size_t u = 0; u < request.count; ++u)
    ranges.push_back(owners_.bytes(request.units[u], request.backward != 0));
  context_->transport.send(rank, tag, ranges, [] {});
}

void ShardPulls::answer_waiting() {
  for (const auto& [row, request] : std::exchange(deferred_, {})) answer(row, request);
}

}  // namespace ranvier::actors
