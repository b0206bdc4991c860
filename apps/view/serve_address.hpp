// Address of --serve, and access control of its requests. Callable from any thread.
#pragma once

#include "apps/view/live_run.hpp"
#include "apps/view/page_server.hpp"
#include "apps/program/options.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ranvier::apps {

/// "8080", "0.0.0.0:8080", "[::1]:8080".
struct ServeAddress {
  std::string address = "127.0.0.1";
  std::uint16_t port = 0;  ///< 0: any free port

  /// Returns whether the address is a loopback address.
  [[nodiscard]] bool is_local() const;
};
/// Returns nothing if `text` is not an address.
[[nodiscard]] std::optional<ServeAddress> parse_serve_address(std::string_view text);

/// Value of --serve; an empty field: no server.
[[nodiscard]] OptionBinding serve_binding(std::string& field);

/// 128 random bits in hexadecimal.
[[nodiscard]] std::string random_token();

/// Responds to /, /about, /status, /series, /ranks, /metrics, and /phase, which waits for a change. Requests must carry
/// `token` as `?token=` or `Authorization: Bearer`. If it is empty, the Host header must be localhost or a loopback
/// address, so that pages of other sites cannot read the data through a browser.
[[nodiscard]] PageResponse answer_about(const LiveRun& run, std::string_view token, const PageRequest& request);

}  // namespace ranvier::apps
