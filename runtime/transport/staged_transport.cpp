#include "runtime/transport/staged_transport.hpp"

#include "runtime/base/error.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <algorithm>

namespace ranvier::runtime {

namespace {

/// Ranges of each piece: the message cut at multiples of `piece_bytes`. An empty message has one piece.
template <typename Range>
std::vector<std::vector<Range>> pieces_of(std::span<const Range> ranges, std::size_t piece_bytes) {
  std::vector<std::vector<Range>> pieces(1);
  std::size_t room = piece_bytes;
  for (Range range : ranges) {
    while (!range.empty()) {
      if (room == 0) {
        pieces.emplace_back();
        room = piece_bytes;
      }
      const std::size_t taken = std::min(room, range.size());
      pieces.back().push_back(range.first(taken));
      range = range.subspan(taken);
      room -= taken;
    }
  }
  return pieces;
}

}  // namespace

StagedTransport::StagedTransport(EventLoop& loop, Transport& host, Device& device, std::size_t piece_bytes)
    : Transport(host.rank(), host.ranks()),
      loop_(&loop),
      host_(&host),
      device_(&device),
      piece_bytes_(piece_bytes),
      others_{PinnedPool(device, "messages"), {}},
      to_host_(device.make_stream("to host", StreamWidth::one)),
      to_device_(device.make_stream("to device", StreamWidth::one)) {
  expect(piece_bytes >= 1, "messages are staged in pieces of {} bytes", piece_bytes);
}

void StagedTransport::reserve(const StagedMessages& messages) {
  const Reserved key(messages.channel, messages.direction, messages.index);
  const bool sends = messages.direction == StagedMessages::Direction::send;
  auto found = reserved_.find(key);
  if (found == reserved_.end()) {
    PinnedPool pool(*device_,
                    fmt::format("{} messages to {}", to_string(messages.channel), sends ? "send" : "receive"));
    found = reserved_.emplace(key, Places{std::move(pool), {}}).first;
  }
  for (std::size_t begin = 0; begin < messages.bytes; begin += piece_bytes_) {
    found->second.pool.reserve(std::min(piece_bytes_, messages.bytes - begin), messages.count);
  }
}

std::size_t StagedTransport::pinned_bytes(std::size_t message_bytes, std::size_t piece_bytes) {
  const std::size_t whole = message_bytes / piece_bytes, rest = message_bytes % piece_bytes;
  return whole * PinnedPool::buffer_bytes(piece_bytes) + (rest > 0 ? PinnedPool::buffer_bytes(rest) : 0);
}

std::size_t StagedTransport::staging_bytes() const {
  std::size_t bytes = others_.pool.allocated_bytes();
  for (const auto& [key, places] : reserved_) bytes += places.pool.allocated_bytes();
  return bytes;
}

StagedTransport::Places& StagedTransport::places(Tag tag, StagedMessages::Direction direction) {
  auto found = reserved_.find(Reserved(tag.channel, direction, tag.index));
  if (found == reserved_.end()) found = reserved_.find(Reserved(tag.channel, direction, std::nullopt));
  return found == reserved_.end() ? others_ : found->second;
}

void StagedTransport::send(int peer, Tag tag, std::span<const ConstBytes> ranges, Handler done) {
  auto pieces = pieces_of(ranges, piece_bytes_);
  const Handler piece_done = last_of(pieces.size(), std::move(done));
  for (auto& piece : pieces) send_piece(peer, tag, std::move(piece), piece_done);
}

void StagedTransport::receive(int peer, Tag tag, std::span<const Bytes> ranges, Handler done) {
  auto pieces = pieces_of(ranges, piece_bytes_);
  const Handler piece_done = last_of(pieces.size(), std::move(done));
  for (auto& piece : pieces) receive_piece(peer, tag, std::move(piece), piece_done);
}

void StagedTransport::send_piece(int peer, Tag tag, std::vector<ConstBytes> ranges, Handler done) {
  const bool reached = std::all_of(ranges.begin(), ranges.end(),
                                   [&](ConstBytes range) { return device_->host_reaches(range.data()); });
  const Way way(peer, tag);
  if (reached && !copying_.contains(way)) return host_->send(peer, tag, ranges, std::move(done));
  ++copying_[way];
  Places& at = places(tag, StagedMessages::Direction::send);
  at.waiting.push_back({peer, tag, std::move(ranges), !reached, std::move(done)});
  send_waiting(at);
}

void StagedTransport::send_waiting(Places& at) {
  while (!at.waiting.empty()) {
    Sending& next = at.waiting.front();
    // Released before `done` runs, so that a stored copy of the handler holds no buffer.
    const auto place = std::make_shared<std::shared_ptr<std::byte>>();
    if (next.staged) {
      const std::size_t bytes = bytes_of(next.ranges);
      *place = &at == &others_ ? at.pool.take(bytes) : at.pool.take_if_free(bytes);
      if (*place == nullptr) return;
      std::size_t offset = 0;
      for (const ConstBytes range : next.ranges) {
        copy(*to_host_, place->get() + offset, range.data(), range.size());
        offset += range.size();
      }
      next.ranges = {ConstBytes(place->get(), bytes)};
    }
    const int peer = next.peer;
    loop_->after_work(*to_host_, {"messages", "the copy to the host of a message to rank", {}, peer},
                      [this, &at, place, piece = std::make_shared<Sending>(std::move(next))] {
                        if (const auto here = copying_.find(Way(piece->peer, piece->tag)); --here->second == 0)
                          copying_.erase(here);
                        const std::span<const ConstBytes> bytes(piece->ranges);
                        host_->send(piece->peer, piece->tag, bytes,
                                    [this, &at, place, done = std::move(piece->done)] {
                                      place->reset();
                                      send_waiting(at);
                                      done();
                                    });
                      });
    at.waiting.pop_front();
  }
}

void StagedTransport::receive_piece(int peer, Tag tag, std::vector<Bytes> ranges, Handler done) {
  if (std::all_of(ranges.begin(), ranges.end(), [&](Bytes range) { return device_->host_reaches(range.data()); })) {
    return host_->receive(peer, tag, ranges, std::move(done));
  }
  const std::size_t bytes = bytes_of(ranges);
  const auto place = std::make_shared<std::shared_ptr<std::byte>>(
      places(tag, StagedMessages::Direction::receive).pool.take(bytes));
  host_->receive(peer, tag, Bytes(place->get(), bytes),
                 [this, peer, place, ranges = std::move(ranges), done = std::move(done)] {
                   std::size_t offset = 0;
                   for (const Bytes range : ranges) {
                     copy(*to_device_, range.data(), place->get() + offset, range.size());
                     offset += range.size();
                   }
                   loop_->after_work(*to_device_,
                                     {"messages", "the copy to the device of a message from rank", {}, peer},
                                     [place, done] {
                                       place->reset();
                                       done();
                                     });
                 });
}

}  // namespace ranvier::runtime
