// SPDX-License-Identifier: Apache-2.0
#include "server/http_server.h"

#include <fmt/format.h>

#include <boost/asio.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>

#include <algorithm>
#include <csignal>
#include <exception>
#include <optional>
#include <unordered_set>
#include <utility>

namespace pagewise::server {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using tcp = asio::ip::tcp;
using boost::system::error_code;
using SteadyTime = asio::steady_timer::time_point;

/// Bodies above this are parsed and tokenized on a worker, so that the network thread stays quick
/// (about 4 ms of tokenizing at 8 MB/s).
constexpr std::size_t kInlineBodyBytes = 32 * 1024;
/// A refused request's body up to this is read and dropped, so that the connection can be used
/// again.
constexpr uint64_t kDropBodyBytes = 1'000'000;
/// What a client may send ahead while its answer is under way; beyond that we stop looking.
constexpr std::size_t kPipelineBytes = 64 * 1024;
constexpr std::chrono::seconds kLinger{2};

std::string_view reason_phrase(int status) {
  switch (status) {
    case 431:
      return "Request Header Fields Too Large";
    case 529:
      return "Overloaded";
    default: {
      const auto text = http::obsolete_reason(http::int_to_status(static_cast<unsigned>(status)));
      return {text.data(), text.size()};
    }
  }
}

/// The path of a request target: "/x?query", or as proxies send it "http://host/x?query".
std::string_view path_of(std::string_view target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!beast::iequals(target.substr(0, scheme.size()), scheme)) continue;
    target.remove_prefix(scheme.size());
    const std::size_t slash = target.find_first_of("/?#");
    if (slash == std::string_view::npos || target[slash] != '/') return "/";
    target.remove_prefix(slash);
    break;
  }
  return target.substr(0, target.find_first_of("?#"));
}

/// Status line and headers up to the empty line, without the length.
std::string head_text(const HttpResponse& response) {
  std::string out = fmt::format("HTTP/1.1 {} {}\r\ncontent-type: {}\r\n", response.status,
                                reason_phrase(response.status), response.content_type);
  for (const HttpHeader& header : response.headers) {
    out += fmt::format("{}: {}\r\n", header.name, header.value);
  }
  return out;
}

class Connection;

}  // namespace

struct HttpServer::Impl : std::enable_shared_from_this<Impl> {
  Impl(const HttpServerOptions& o, const Clock& c)
      : options(o),
        clock(c),
        io(std::make_shared<asio::io_context>(1)),
        acceptor(*io),
        signals(*io),
        drain_timer(*io),
        room_timer(*io) {}

  Status open();
  asio::awaitable<void> accept_loop();
  void wait_for_signal();
  void begin_stop();
  void end_answers();
  void connection_gone(Connection* connection);

  const HttpServerOptions options;
  Handler* handler = nullptr;  // set by run()
  const Clock& clock;
  // Shared with wake-ups that the engine may still send after the server is gone.
  std::shared_ptr<asio::io_context> io;
  asio::thread_pool workers{1};
  tcp::acceptor acceptor;
  asio::signal_set signals;
  asio::steady_timer drain_timer;
  asio::steady_timer room_timer;  // the accept loop waits here for room
  std::unordered_set<Connection*> connections;
  bool stopping = false;
};

namespace {

/// One client connection: requests one after another. Thread: network.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::shared_ptr<HttpServer::Impl> server, tcp::socket socket)
      : server_(std::move(server)),
        socket_(std::move(socket)),
        wake_timer_(*server_->io),
        look_timer_(*server_->io),
        watchdog_(*server_->io) {
    error_code ignored;
    socket_.non_blocking(true, ignored);  // send() tries before it waits
  }

  ~Connection() { server_->connection_gone(this); }

  static asio::awaitable<void> run(std::shared_ptr<Connection> self) {
    bool go_on = true;
    while (go_on) {
      go_on = co_await self->serve_one();
      go_on = go_on && !self->server_->stopping;
    }
    self->disarm();
    error_code ignored;
    self->socket_.close(ignored);
  }

  /// The server stops: an idle connection ends now, a busy one after its answer.
  void server_stops() {
    error_code ignored;
    if (idle_) socket_.close(ignored);
  }
  void end_answer() {
    ending_ = true;
    wake();
  }
  void close() {
    peer_gone_ = true;
    error_code ignored;
    socket_.close(ignored);
    wake();
  }

  void wake() {
    woken_ = true;
    wake_timer_.cancel();
  }

 private:
  using Parser = http::request_parser<http::string_body>;

  /// Reads one request and answers it. False: close.
  asio::awaitable<bool> serve_one() {
    Parser parser;
    parser.header_limit(server_->options.header_bytes_max);
    parser.body_limit(server_->options.body_bytes_max);
    error_code error;
    arm(std::chrono::seconds(server_->options.idle_s_max));
    idle_ = true;
    auto header_token = asio::redirect_error(asio::use_awaitable, error);
    co_await http::async_read_header(socket_, buffer_, parser, header_token);
    idle_ = false;
    disarm();
    HttpRequest request = to_request(parser);
    request.peer_is_loopback = peer_is_loopback();
    if (error) {
      const bool go_on = co_await refuse_unreadable(request, error);
      co_return go_on;
    }
    keep_alive_ = parser.get().keep_alive() && !server_->stopping;
    is_http_1_0_ = parser.get().version() < 11;
    head_only_ = request.method == "HEAD";
    const bool expects = beast::iequals(parser.get()[http::field::expect], "100-continue");

    std::optional<HttpResponse> refusal = server_->handler->begin(request);
    if (refusal) {
      const bool go_on = co_await refuse_early(parser, *refusal, expects);
      co_return go_on;
    }
    if (expects && !parser.is_done()) {
      static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
      const bool sent = co_await send(kContinue);
      if (!sent) co_return false;
    }
    error = co_await read_body(parser);
    if (error) {
      const bool go_on = co_await refuse_unreadable(request, error);
      co_return go_on;
    }
    request.body = std::move(parser.get().body());
    request.received_at = server_->clock.now();
    const bool go_on = co_await answer(std::move(request));
    co_return go_on;
  }

  bool peer_is_loopback() const {
    error_code error;
    const asio::ip::address address = socket_.remote_endpoint(error).address();
    if (error) return false;
    if (address.is_v6() && address.to_v6().is_v4_mapped())
      return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6()).is_loopback();
    return address.is_loopback();
  }

  static HttpRequest to_request(Parser& parser) {
    HttpRequest out;
    const auto& message = parser.get();
    out.method = std::string(message.method_string());
    out.path =
        std::string(path_of(std::string_view(message.target().data(), message.target().size())));
    for (const auto& field : message) {
      out.headers.push_back({std::string(field.name_string()), std::string(field.value())});
    }
    return out;
  }

  asio::awaitable<error_code> read_body(Parser& parser) {
    error_code error;
    while (!parser.is_done() && !error) {
      arm(std::chrono::seconds(server_->options.stalled_s_max));
      auto token = asio::redirect_error(asio::use_awaitable, error);
      co_await http::async_read_some(socket_, buffer_, parser, token);
    }
    disarm();
    co_return error;
  }

  /// A request that needs no body to be refused. Small bodies are read so that the connection lives
  /// on.
  asio::awaitable<bool> refuse_early(Parser& parser, const HttpResponse& response, bool expects) {
    const auto length = parser.content_length();
    const bool small = parser.is_done() || (!expects && length && *length <= kDropBodyBytes);
    if (small) {
      const error_code error = co_await read_body(parser);
      if (error) co_return false;
      const bool sent = co_await send_response(response);
      co_return sent&& keep_alive_;
    }
    keep_alive_ = false;
    const bool sent = co_await send_response(response);
    if (sent) co_await linger();
    co_return false;
  }

  /// Errors of reading: a client that left gets nothing, the others a 400, 413 or 431 and the end.
  asio::awaitable<bool> refuse_unreadable(HttpRequest& request, error_code error) {
    if (error.category() != make_error_code(http::error::end_of_stream).category() ||
        error == http::error::end_of_stream || error == http::error::partial_message) {
      co_return false;
    }
    auto failure = Handler::ReadFailure::kMalformed;
    if (error == http::error::body_limit) failure = Handler::ReadFailure::kBodyTooLarge;
    if (error == http::error::header_limit || error == http::error::buffer_overflow) {
      failure = Handler::ReadFailure::kHeaderTooLarge;
    }
    keep_alive_ = false;
    const HttpResponse response = server_->handler->read_failed(request, failure);
    const bool sent = co_await send_response(response);
    if (sent) co_await linger();
    co_return false;
  }

  /// After an answer that did not wait for the whole request: reads on for a moment, because
  /// closing with unread data would reset the connection and the client could lose the answer.
  asio::awaitable<void> linger() {
    error_code error;
    socket_.shutdown(tcp::socket::shutdown_send, error);
    arm(kLinger);
    std::string sink(64 * 1024, '\0');
    while (!error) {
      auto target = asio::buffer(sink);
      auto token = asio::redirect_error(asio::use_awaitable, error);
      co_await socket_.async_read_some(target, token);
    }
    disarm();
  }

  asio::awaitable<bool> answer(HttpRequest request) {
    if (request.body.size() <= kInlineBodyBytes) {
      outcome_ = handle_guarded(std::move(request));
    } else {
      hand_to_worker(std::move(request));
      while (!outcome_) co_await wait();
    }
    Outcome outcome = *std::exchange(outcome_, std::nullopt);
    if (auto* response = std::get_if<HttpResponse>(&outcome)) {
      const bool sent = co_await send_response(*response);
      co_return sent&& keep_alive_;
    }
    std::unique_ptr<Exchange> exchange = std::move(std::get<std::unique_ptr<Exchange>>(outcome));
    const bool go_on = co_await run_exchange(*exchange);
    co_return go_on;
  }

  /// Third-party code may throw; no request may end the process.
  Outcome handle_guarded(HttpRequest&& request) {
    HttpRequest kept;
    kept.path = request.path;
    kept.request_id = request.request_id;
    try {
      return server_->handler->handle(std::move(request));
    } catch (const std::exception&) {
      return server_->handler->read_failed(kept, Handler::ReadFailure::kInternal);
    }
  }

  void hand_to_worker(HttpRequest&& request) {
    // The worker gives its share of the connection back with the outcome. Were it to keep one, it
    // could be the last to let go, and the connection would end on the worker's thread.
    auto work = [self = shared_from_this(), io = server_->io,
                 request = std::move(request)]() mutable {
      Outcome outcome = self->handle_guarded(std::move(request));
      auto done = [self = std::move(self), outcome = std::move(outcome)]() mutable {
        self->outcome_ = std::move(outcome);
        self->wake();
      };
      asio::post(*io, std::move(done));
    };
    asio::post(server_->workers, std::move(work));
  }

  asio::awaitable<bool> run_exchange(Exchange& exchange) {
    const std::weak_ptr<Connection> weak = weak_from_this();
    exchange.start([weak, io = server_->io] {
      asio::post(*io, [weak] {
        if (const auto self = weak.lock()) self->wake();
      });
    });
    watch_peer();
    bool streaming = false;
    bool alive = true;
    bool ended = false;
    while (alive && !ended) {
      if (peer_gone_) break;
      if (ending_) exchange.shut_down();
      const TimeNs now = server_->clock.now();
      Progress progress = exchange.poll(now);
      std::string out;
      if (progress.whole) {
        out = whole_text(*progress.whole);
        ended = true;
      } else {
        if (progress.head) {
          out = stream_head_text(*progress.head);
          streaming = true;
        }
        append_piece(progress.bytes, out);
        ended = progress.done;
        if (ended && streaming && !is_http_1_0_) out += "0\r\n\r\n";
      }
      if (!out.empty()) alive = co_await send(out);
      if (alive && !ended) {
        if (progress.look_again_at != 0) look_again(progress.look_again_at);
        co_await wait();
      }
    }
    look_timer_.cancel();
    look_at_.reset();
    if (!ended) exchange.cancel();
    co_await unwatch_peer();
    co_return ended&& alive && !peer_gone_ && keep_alive_ && !(streaming && is_http_1_0_);
  }

  // Bytes out.

  std::string connection_header() const {
    if (!keep_alive_) return "connection: close\r\n";
    return is_http_1_0_ ? "connection: keep-alive\r\n" : "";
  }

  std::string whole_text(const HttpResponse& response) const {
    std::string out = head_text(response);
    out += fmt::format("content-length: {}\r\n{}\r\n", response.body.size(), connection_header());
    if (!head_only_) out += response.body;
    return out;
  }

  std::string stream_head_text(const HttpResponse& response) {
    if (is_http_1_0_)
      keep_alive_ = false;  // no chunks there: the end of the connection ends the answer
    std::string out = head_text(response);
    if (!is_http_1_0_) out += "transfer-encoding: chunked\r\n";
    out += connection_header();
    out += "\r\n";
    return out;
  }

  void append_piece(std::string_view bytes, std::string& out) const {
    if (bytes.empty()) return;
    if (is_http_1_0_) {
      out += bytes;
    } else {
      out += fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes);
    }
  }

  asio::awaitable<bool> send_response(const HttpResponse& response) {
    const std::string text = whole_text(response);
    const bool sent = co_await send(text);
    co_return sent;
  }

  /// What the system takes at once, and that is nearly always all, needs neither the watchdog nor a
  /// turn of the event loop: both cost more than the event of a token does.
  asio::awaitable<bool> send(std::string_view bytes) {
    error_code error;
    bytes.remove_prefix(socket_.write_some(asio::buffer(bytes.data(), bytes.size()), error));
    if (error && error != asio::error::would_block) co_return false;
    if (bytes.empty()) co_return true;
    error.clear();
    while (!bytes.empty() && !error) {
      arm(std::chrono::seconds(server_->options.stalled_s_max));  // of each piece: it may be slow
      auto source = asio::buffer(bytes.data(), bytes.size());
      auto token = asio::redirect_error(asio::use_awaitable, error);
      const std::size_t sent = co_await socket_.async_write_some(source, token);
      bytes.remove_prefix(sent);
    }
    disarm();
    co_return !error;
  }

  // Waiting.

  /// Until wake().
  asio::awaitable<void> wait() {
    if (!woken_) {
      error_code ignored;
      wake_timer_.expires_at(SteadyTime::max());
      auto token = asio::redirect_error(asio::use_awaitable, ignored);
      co_await wake_timer_.async_wait(token);
    }
    woken_ = false;
  }

  /// Wakes at that time, or earlier: a timer that runs is not set anew for a later time, which
  /// every token would ask for. Who is woken finds nothing to do then, and asks again.
  void look_again(TimeNs at) {
    if (look_at_ && *look_at_ <= at) return;
    look_at_ = at;
    look_timer_.expires_after(
        std::chrono::nanoseconds(std::max<TimeNs>(at - server_->clock.now(), 0)));
    look_timer_.async_wait([weak = weak_from_this()](error_code error) {
      const auto self = weak.lock();
      if (error || self == nullptr) return;
      self->look_at_.reset();
      self->wake();
    });
  }

  /// A disconnect is only seen with a read pending (C07): what arrives early is kept for the next
  /// request.
  void watch_peer() {
    if (watching_ || unwatching_ || peer_gone_ || buffer_.size() >= kPipelineBytes) return;
    watching_ = true;
    auto self = shared_from_this();
    socket_.async_read_some(buffer_.prepare(4096), [self](error_code error, std::size_t bytes) {
      self->watching_ = false;
      if (!error) {
        self->buffer_.commit(bytes);
        self->watch_peer();
      } else if (error != asio::error::operation_aborted) {
        self->peer_gone_ = true;
      }
      self->wake();
    });
  }

  asio::awaitable<void> unwatch_peer() {
    unwatching_ = true;
    error_code ignored;
    if (watching_) socket_.cancel(ignored);
    while (watching_) co_await wait();
    unwatching_ = false;
  }

  /// Closes the socket unless disarmed or armed again in time.
  void arm(std::chrono::seconds limit) {
    const uint64_t turn = ++watchdog_turn_;
    watchdog_.expires_after(limit);
    watchdog_.async_wait([weak = weak_from_this(), turn](error_code error) {
      const auto self = weak.lock();
      // A timer that had already fired when it was set anew is recognised by its turn.
      if (error || self == nullptr || self->watchdog_turn_ != turn) return;
      self->close();
    });
  }
  void disarm() {
    ++watchdog_turn_;
    watchdog_.cancel();
  }

  const std::shared_ptr<HttpServer::Impl> server_;
  tcp::socket socket_;
  beast::flat_buffer buffer_;
  asio::steady_timer wake_timer_;
  asio::steady_timer look_timer_;
  std::optional<TimeNs> look_at_;  // when look_timer_ fires, if it runs
  asio::steady_timer watchdog_;
  uint64_t watchdog_turn_ = 0;
  std::optional<Outcome> outcome_;
  bool idle_ = false;
  bool woken_ = false;
  bool watching_ = false;
  bool unwatching_ = false;
  bool peer_gone_ = false;
  bool ending_ = false;
  bool keep_alive_ = true;
  bool is_http_1_0_ = false;
  bool head_only_ = false;
};

Result<tcp::resolver::results_type> resolve(asio::io_context& io, const std::string& host,
                                            uint16_t port) {
  tcp::resolver resolver(io);
  error_code error;
  auto found = resolver.resolve(host, std::to_string(port), tcp::resolver::passive, error);
  if (error || found.empty()) {
    return Error{ErrorCode::kIo, fmt::format("--host {}: {}", host, error.message())};
  }
  return found;
}

}  // namespace

Status HttpServer::Impl::open() {
  auto found = resolve(*io, options.host, options.port);
  if (!found) return found.error();
  // A name may stand for both families ("localhost"): people then type 127.0.0.1.
  auto chosen = std::find_if(found->begin(), found->end(),
                             [](const auto& entry) { return entry.endpoint().address().is_v4(); });
  if (chosen == found->end()) chosen = found->begin();
  const tcp::endpoint endpoint = chosen->endpoint();
  error_code error;
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) {
    const std::string where = fmt::format("{}:{}", options.host, options.port);
    if (error == asio::error::address_in_use) {
      return Error{ErrorCode::kIo,
                   fmt::format("{}: the port is in use; choose another with --port", where)};
    }
    return Error{ErrorCode::kIo, fmt::format("{}: {}", where, error.message())};
  }
  return Status::ok();
}

asio::awaitable<void> HttpServer::Impl::accept_loop() {
  while (!stopping) {
    error_code error;
    if (connections.size() >= options.connections_max) {
      room_timer.expires_at(SteadyTime::max());
      auto room_token = asio::redirect_error(asio::use_awaitable, error);
      co_await room_timer.async_wait(room_token);
      continue;
    }
    tcp::socket socket(*io);
    auto accept_token = asio::redirect_error(asio::use_awaitable, error);
    co_await acceptor.async_accept(socket, accept_token);
    if (error == asio::error::operation_aborted || stopping) co_return;
    if (error) {
      // Out of file descriptors: they come back when a connection ends.
      room_timer.expires_after(std::chrono::milliseconds(100));
      auto pause_token = asio::redirect_error(asio::use_awaitable, error);
      co_await room_timer.async_wait(pause_token);
      continue;
    }
    error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);  // each event of a stream leaves at once
    auto connection = std::make_shared<Connection>(shared_from_this(), std::move(socket));
    connections.insert(connection.get());
    asio::co_spawn(*io, Connection::run(connection), asio::detached);
  }
}

void HttpServer::Impl::wait_for_signal() {
  signals.async_wait([self = shared_from_this()](error_code error, int) {
    if (error) return;
    if (self->stopping) {
      self->end_answers();
    } else {
      self->begin_stop();
    }
    if (!self->connections.empty()) self->wait_for_signal();
  });
}

void HttpServer::Impl::begin_stop() {
  if (stopping) return;
  stopping = true;
  error_code ignored;
  acceptor.close(ignored);
  room_timer.cancel();
  // A copy: closing may end connections, which take themselves off the list.
  const std::unordered_set<Connection*> now = connections;
  for (Connection* connection : now) connection->server_stops();
  if (connections.empty()) {
    signals.cancel();
    return;
  }
  drain_timer.expires_after(std::chrono::seconds(options.drain_s_max));
  drain_timer.async_wait([self = shared_from_this()](error_code error) {
    if (!error) self->end_answers();
  });
}

void HttpServer::Impl::end_answers() {
  const std::unordered_set<Connection*> now = connections;
  for (Connection* connection : now) connection->end_answer();
  drain_timer.expires_after(std::chrono::seconds(1));
  drain_timer.async_wait([self = shared_from_this()](error_code error) {
    if (error) return;
    const std::unordered_set<Connection*> left = self->connections;
    for (Connection* connection : left) connection->close();
  });
}

void HttpServer::Impl::connection_gone(Connection* connection) {
  connections.erase(connection);
  if (!stopping) {
    room_timer.cancel();
  } else if (connections.empty()) {
    drain_timer.cancel();
    signals.cancel();
  }
}

HttpServer::HttpServer(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;

Result<std::unique_ptr<HttpServer>> HttpServer::listen(const HttpServerOptions& options,
                                                       const Clock& clock) {
  auto impl = std::make_shared<Impl>(options, clock);
  if (Status status = impl->open(); !status) return status.error();
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

uint16_t HttpServer::port() const {
  error_code ignored;
  return impl_->acceptor.local_endpoint(ignored).port();
}

void HttpServer::run(Handler& handler) {
  impl_->handler = &handler;
  impl_->signals.add(SIGINT);
  impl_->signals.add(SIGTERM);
  impl_->wait_for_signal();
  asio::co_spawn(*impl_->io, impl_->accept_loop(), asio::detached);
  impl_->io->run();
  impl_->workers.join();
}

void HttpServer::stop() {
  asio::post(*impl_->io, [impl = impl_] { impl->begin_stop(); });
}

Result<bool> is_loopback(const std::string& host) {
  asio::io_context io;
  auto found = resolve(io, host, 0);
  if (!found) return found.error();
  return std::all_of(found->begin(), found->end(),
                     [](const auto& entry) { return entry.endpoint().address().is_loopback(); });
}

}  // namespace pagewise::server
