#include "apps/view/serve_address.hpp"

#include "apps/view/page.hpp"

#include <boost/asio/ip/address.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <random>

namespace ranvier::apps {
namespace {

/// Value of a parameter in "a=1&b=2"; empty: missing.
std::string_view parameter(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const std::size_t end = std::min(query.find('&'), query.size());
    const std::string_view one = query.substr(0, end);
    if (one.size() > name.size() && one.starts_with(name) && one[name.size()] == '=')
      return one.substr(name.size() + 1);
    query.remove_prefix(std::min(end + 1, query.size()));
  }
  return {};
}

/// Compares in constant time, so that the duration does not reveal the first difference.
bool same(std::string_view given, std::string_view token) {
  if (given.size() != token.size()) return false;
  unsigned char difference = 0;
  for (std::size_t i = 0; i < token.size(); ++i) difference |= static_cast<unsigned char>(given[i] ^ token[i]);
  return difference == 0;
}

bool is_loopback(const std::string& address) {
  boost::system::error_code none;
  const auto parsed = boost::asio::ip::make_address(address, none);
  return !none && parsed.is_loopback();
}

bool may_ask(std::string_view token, const PageRequest& request) {
  if (!token.empty()) {
    constexpr std::string_view bearer = "Bearer ";
    if (request.authorization.starts_with(bearer) && same(request.authorization.substr(bearer.size()), token))
      return true;
    return same(parameter(request.query, "token"), token);
  }
  std::string_view host = request.host;
  if (const std::size_t colon = host.rfind(':'); colon != std::string_view::npos && !host.ends_with(']'))
    host = host.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  if (host == "localhost") return true;
  return is_loopback(std::string(host));
}

PageResponse text_answer(int status, std::string text) {
  return {.status = status, .body = std::make_shared<const std::string>(std::move(text))};
}

}  // namespace

bool ServeAddress::is_local() const { return is_loopback(address); }

std::optional<ServeAddress> parse_serve_address(std::string_view text) {
  ServeAddress result;
  const std::size_t colon = text.rfind(':');
  if (colon != std::string_view::npos) {
    std::string_view address = text.substr(0, colon);
    const bool bracketed = address.size() > 2 && address.front() == '[' && address.back() == ']';
    if (bracketed) address = address.substr(1, address.size() - 2);
    if (address == "localhost") address = "127.0.0.1";
    boost::system::error_code none;
    const auto parsed = boost::asio::ip::make_address(std::string(address), none);
    if (none || parsed.is_v6() != bracketed) return std::nullopt;
    result.address = address;
    text = text.substr(colon + 1);
  }
  const auto port = parse_whole<std::uint16_t>(std::string(text), 0);
  if (!port) return std::nullopt;
  result.port = *port;
  return result;
}

OptionBinding serve_binding(std::string& field) {
  return parsed(
      "a port, or an IP address and a port: 8080, 0.0.0.0:8080, [::1]:8080; port 0 selects a free one",
      [&field](const std::string& given) {
        field = given;
        return given.empty() || parse_serve_address(given).has_value();
      },
      [&field] { return field; });
}

std::string random_token() {
  std::random_device random;
  std::string token;
  for (int i = 0; i < 4; ++i) token += fmt::format("{:08x}", random() & 0xffffffffu);
  return token;
}

PageResponse answer_about(const LiveRun& run, std::string_view token, const PageRequest& request) {
  if (!may_ask(token, request))
    return text_answer(403, token.empty() ? "access denied; use localhost or 127.0.0.1\n"
                                          : "token is missing; use the URL that the run printed at startup\n");
  constexpr std::string_view json = "application/json";
  const auto number = [&](std::string_view name, std::int64_t otherwise) {
    const std::string text(parameter(request.query, name));
    return parse_whole(text, std::numeric_limits<std::int64_t>::min()).value_or(otherwise);
  };
  if (request.path == "/") {
    static const auto page = std::make_shared<const std::string>(page_html());
    return {.type = "text/html; charset=utf-8", .body = page};
  }
  if (request.path == "/phase")
    return {.type = json, .body = run.phase_after(request.may_wait ? number("seen", -1) : -1)};
  if (request.path == "/about") return {.type = json, .body = run.about()};
  if (request.path == "/status") return {.type = json, .body = run.status()};
  if (request.path == "/ranks") return {.type = json, .body = run.ranks()};
  if (request.path == "/series") {
    const std::int64_t points = std::max<std::int64_t>(number("points", 600), 1);
    return {.type = json,
            .body = run.series(number("first", 0), number("last", 0), static_cast<std::size_t>(points))};
  }
  if (request.path == "/metrics")
    return {.type = "text/plain; version=0.0.4; charset=utf-8", .body = run.prometheus()};
  return text_answer(404, "not found; use / for the page, /status for JSON, /metrics for Prometheus\n");
}

}  // namespace ranvier::apps
