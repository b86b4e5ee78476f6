// SPDX-License-Identifier: Apache-2.0
#include "server/http_client.h"

#include <fmt/format.h>

#include <boost/asio.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>

#include <algorithm>
#include <optional>

namespace pagewise::server {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using tcp = asio::ip::tcp;
using boost::system::error_code;

constexpr uint64_t kAnswerBytesMax = 64U << 20;

/// One call from beginning to end; `failed` says what went wrong.
class Call {
 public:
  Call(http::verb verb, const ServerUrl& server, std::string_view path,
       const std::vector<HttpHeader>& headers, std::string_view body)
      : resolver_(io_), socket_(io_) {
    const std::string host =
        server.host.find(':') == std::string::npos ? server.host : "[" + server.host + "]";
    request_ = {verb, server.prefix + std::string(path), 11};
    request_.set(http::field::host, host + ":" + server.port);
    if (verb == http::verb::post) request_.set(http::field::content_type, "application/json");
    request_.set(http::field::connection, "close");
    for (const HttpHeader& header : headers) request_.set(header.name, header.value);
    request_.body() = body;
    request_.prepare_payload();
    parser_.body_limit(kAnswerBytesMax);
    resolver_.async_resolve(server.host, server.port,
                            [this](error_code failed, const tcp::resolver::results_type& found) {
                              if (!failed) return connect(found);
                              end(failed);
                            });
  }

  Result<HttpAnswer> run(std::chrono::seconds time_limit) {
    io_.run_for(time_limit);
    if (!ended_)
      return Error{ErrorCode::kIo, fmt::format("no answer within {}", time_limit.count()) + " s"};
    if (failed_) return Error{ErrorCode::kIo, failed_->message()};
    return HttpAnswer{static_cast<int>(parser_.get().result_int()),
                      std::move(parser_.get().body())};
  }

 private:
  void connect(const tcp::resolver::results_type& found) {
    asio::async_connect(socket_, found, [this](error_code failed, const tcp::endpoint&) {
      if (!failed) return send();
      end(failed);
    });
  }
  void send() {
    http::async_write(socket_, request_, [this](error_code failed, std::size_t) {
      // A server that refuses early may have closed its end: what it said is still to be read.
      if (failed) write_failed_ = failed;
      receive();
    });
  }
  void receive() {
    http::async_read(socket_, buffer_, parser_, [this](error_code failed, std::size_t) {
      end(failed && write_failed_ ? *write_failed_ : failed);
    });
  }
  void end(error_code failed) {
    ended_ = true;
    if (failed) failed_ = failed;
  }

  asio::io_context io_{1};
  tcp::resolver resolver_;
  tcp::socket socket_;
  http::request<http::string_body> request_;
  beast::flat_buffer buffer_;
  http::response_parser<http::string_body> parser_;
  std::optional<error_code> failed_, write_failed_;
  bool ended_ = false;
};

/// An error says whom it is about.
Result<HttpAnswer> named(const ServerUrl& server, Result<HttpAnswer> answer) {
  if (answer) return answer;
  return Error{ErrorCode::kIo,
               fmt::format("{}:{}: {}", server.host, server.port, answer.error().message)};
}

}  // namespace

Result<ServerUrl> parse_server_url(std::string_view url) {
  const auto wrong = [&](std::string_view why) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("'{}': {}", url, why)};
  };
  std::string_view rest = url;
  if (rest.starts_with("https://")) {
    return wrong("https is not spoken here; give the http address of the server itself");
  }
  constexpr std::string_view kScheme = "http://";
  if (rest.starts_with(kScheme)) rest.remove_prefix(kScheme.size());
  if (rest.find("://") != std::string_view::npos) return wrong("no http:// address");
  ServerUrl out;
  const std::size_t slash = rest.find_first_of("/?#");
  std::string_view authority = rest.substr(0, slash);
  if (slash != std::string_view::npos) out.prefix = rest.substr(slash);
  while (out.prefix.ends_with('/')) out.prefix.pop_back();
  // A base URL as clients are given it works here, too.
  if (out.prefix.ends_with("/v1")) out.prefix.resize(out.prefix.size() - 3);
  if (out.prefix.find_first_of("?#") != std::string::npos)
    return wrong("a query has no place here");
  std::string_view port;
  if (authority.starts_with('[')) {
    const std::size_t end = authority.find(']');
    if (end == std::string_view::npos) return wrong("the bracket of the address does not close");
    out.host = authority.substr(1, end - 1);
    port = authority.substr(end + 1);
  } else {
    const std::size_t colon = authority.find(':');
    out.host = authority.substr(0, colon);
    if (colon != std::string_view::npos) port = authority.substr(colon);
  }
  if (out.host.empty()) return wrong("there is no host in it");
  if (!port.empty()) {
    port.remove_prefix(1);
    const bool number =
        !port.empty() && port.size() <= 5 &&
        std::all_of(port.begin(), port.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (!number) return wrong("the port is no number");
    out.port = port;
  }
  return out;
}

Result<HttpAnswer> http_post(const ServerUrl& server, std::string_view path,
                             const std::vector<HttpHeader>& headers, std::string_view body,
                             std::chrono::seconds time_limit) {
  return named(server, Call(http::verb::post, server, path, headers, body).run(time_limit));
}

Result<HttpAnswer> http_get(const ServerUrl& server, std::string_view path,
                            const std::vector<HttpHeader>& headers,
                            std::chrono::seconds time_limit) {
  return named(server, Call(http::verb::get, server, path, headers, "").run(time_limit));
}

}  // namespace pagewise::server
