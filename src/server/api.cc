// SPDX-License-Identifier: Apache-2.0
#include "server/api.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <utility>

#include "base/json.h"
#include "server/anthropic/parse.h"
#include "server/diagnostics.h"
#include "server/fields.h"
#include "server/id_source.h"
#include "server/json_text.h"
#include "server/openai/parse.h"
#include "server/prompt.h"

namespace pagewise::server {
namespace {

enum class Route : uint8_t {
  kChat,
  kCompletion,
  kMessages,
  kCountTokens,
  kModels,
  kModel,
  kTokenize,
  kDetokenize,
  kHealth,
  kReady,
  kMetrics,
  kVersion,
  kRoot,
};

struct RouteRow {
  std::string_view path;
  Route route;
  bool is_post;
  bool open;     // asks for no key: probes carry none
  bool with_v1;  // also under /v1
  std::string_view label;
};

constexpr RouteRow kRoutes[] = {
    {"/chat/completions", Route::kChat, true, false, true, "chat"},
    {"/completions", Route::kCompletion, true, false, true, "completions"},
    {"/v1/messages", Route::kMessages, true, false, false, "messages"},
    {"/v1/messages/count_tokens", Route::kCountTokens, true, false, false, "count_tokens"},
    {"/models", Route::kModels, false, false, true, "models"},
    {"/tokenize", Route::kTokenize, true, false, true, "tokenize"},
    {"/detokenize", Route::kDetokenize, true, false, true, "detokenize"},
    {"/health", Route::kHealth, false, true, false, "health"},
    {"/healthz", Route::kHealth, false, true, false, "health"},
    {"/ready", Route::kReady, false, true, false, "ready"},
    {"/metrics", Route::kMetrics, false, false, false, "metrics"},
    {"/version", Route::kVersion, false, true, false, "version"},
    {"/", Route::kRoot, false, true, false, "root"},
    {"/api/hello", Route::kHealth, false, true, false, "hello"},
};
constexpr RouteRow kModelRow = {"/models/", Route::kModel, false, false, true, "models"};

const RouteRow* find_route(std::string_view path) {
  const std::string_view bare = path.starts_with("/v1/") ? path.substr(3) : path;
  for (const RouteRow& row : kRoutes) {
    if (path == row.path || (row.with_v1 && bare == row.path)) return &row;
  }
  if (bare.starts_with(kModelRow.path) && bare.size() > kModelRow.path.size()) return &kModelRow;
  return nullptr;
}

std::string percent_decoded(std::string_view text) {
  const auto hex = [](char c) -> int {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  };
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && hex(text[i + 1]) >= 0 && hex(text[i + 2]) >= 0) {
      out += static_cast<char>(hex(text[i + 1]) * 16 + hex(text[i + 2]));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::string rfc3339(int64_t unix_s) {
  const auto time = static_cast<std::time_t>(unix_s);
  std::tm parts{};
  gmtime_r(&time, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

json::array id_array(const std::vector<TokenId>& tokens) {
  json::array out;
  out.reserve(tokens.size());
  for (const TokenId token : tokens) out.push_back(token.value);
  return out;
}

std::string_view id_prefix(Format format) {
  switch (format) {
    case Format::kChat:
      return "chatcmpl-";
    case Format::kCompletion:
      return "cmpl-";
    case Format::kMessages:
      return "msg_";
  }
  return "";
}

class Api final : public Handler {
 public:
  explicit Api(ApiSetup setup) : setup_(std::move(setup)), ids_(setup_.random_seed) {}

  std::optional<HttpResponse> begin(HttpRequest& request) override {
    request.request_id = ids_.id("req_");
    const Surface surface = surface_of(request);
    const RouteRow* row = find_route(request.path);
    if (row == nullptr) {
      return refuse(
          request, surface, "unknown",
          {ErrorKind::kUnknownRoute,
           fmt::format("no route {} {}", request.method, valid_utf8(request.path)), "", "", ""});
    }
    const bool is_get = request.method == "GET" || request.method == "HEAD";
    if (row->is_post ? request.method != "POST" : !is_get) {
      const std::string_view allowed = row->is_post ? "POST" : "GET, HEAD";
      HttpResponse response = refuse(
          request, surface, row->label,
          {ErrorKind::kWrongMethod, fmt::format("{} takes {}", request.path, allowed), "", "", ""});
      response.headers.push_back({"allow", std::string(allowed)});
      return response;
    }
    if (!row->open && setup_.keys.configured()) {
      const auto key = presented_key(request);
      if (!key) {
        return refuse(request, surface, row->label,
                      {ErrorKind::kAuthentication,
                       "no API key: send it as 'Authorization: Bearer KEY' or as 'x-api-key: KEY'",
                       "", "", ""});
      }
      if (!setup_.keys.accepts(*key)) {
        return refuse(
            request, surface, row->label,
            {ErrorKind::kAuthentication, "this API key is not valid", "", "invalid_api_key", ""});
      }
    }
    const std::string* encoding = request.header("content-encoding");
    if (row->is_post && encoding != nullptr && !encoding->empty() && *encoding != "identity") {
      return refuse(
          request, surface, row->label,
          {ErrorKind::kInvalidRequest, "content-encoding: send the body without compression", "",
           "", "request_body_encoding_unsupported"});
    }
    return std::nullopt;
  }

  Outcome handle(HttpRequest&& request) override {
    const RouteRow& row = *find_route(request.path);
    const Surface surface = surface_of(request);
    if (!row.is_post) return get(row, request, surface);
    ApiResult<json::object> body = parse_body(request);
    if (!body) return refuse(request, surface, row.label, body.error());
    switch (row.route) {
      case Route::kChat:
        return generate(row, request, surface, openai::parse_chat(*body, parse_limits()));
      case Route::kCompletion:
        return generate(row, request, surface, openai::parse_completion(*body, parse_limits()));
      case Route::kMessages:
        return generate(row, request, surface, anthropic::parse_messages_request(*body));
      case Route::kCountTokens:
        return count_tokens(row, request, surface, *body);
      case Route::kTokenize:
        return answer(row, request, surface, tokenize(*body));
      default:
        return answer(row, request, surface, detokenize(*body));
    }
  }

  HttpResponse read_failed(const HttpRequest& request, ReadFailure failure) override {
    ApiError error;
    switch (failure) {
      case ReadFailure::kMalformed:
        error.message = "this is no HTTP request that can be read";
        break;
      case ReadFailure::kBodyTooLarge:
        error.kind = ErrorKind::kRequestTooLarge;
        error.message = "the body is larger than 32 MB";
        break;
      case ReadFailure::kHeaderTooLarge:
        error.kind = ErrorKind::kHeaderTooLarge;
        error.message = "the header is too large";
        break;
      case ReadFailure::kInternal:
        error.kind = ErrorKind::kInternal;
        error.message = "the server failed on this request";
        break;
    }
    HttpRequest named = request;
    if (named.request_id.empty()) named.request_id = ids_.id("req_");
    return refuse(named, surface_of(named), "unread", error);
  }

 private:
  openai::ParseLimits parse_limits() const {
    return {setup_.model.choices_max, setup_.model.prompts_max,
            setup_.model.tokenizer->vocab_size()};
  }

  HttpResponse refuse(const HttpRequest& request, Surface surface, std::string_view label,
                      const ApiError& error) {
    HttpResponse response = error_response(error, surface, request.request_id);
    note(request, label, response.status, error_label(error));
    return response;
  }

  void note(const HttpRequest& request, std::string_view label, int status,
            std::string_view error) {
    if (setup_.metrics != nullptr) setup_.metrics->count_http(label, status);
    if (setup_.log) {
      setup_.log(fmt::format("{} {} {}{}{}", request.request_id, label, status,
                             error.empty() ? "" : " error=", error));
    }
  }

  static ApiResult<json::object> parse_body(const HttpRequest& request) {
    if (request.body.empty()) {
      return ApiError{ErrorKind::kInvalidRequest, "the body is empty: send a JSON object", "", "",
                      ""};
    }
    auto parsed = parse_json(request.body);
    if (!parsed) {
      return ApiError{ErrorKind::kInvalidRequest,
                      fmt::format("the body is {}", parsed.error().message), "", "", ""};
    }
    if (!parsed->is_object()) {
      return ApiError{ErrorKind::kInvalidRequest, "the body must be a JSON object", "", "", ""};
    }
    return ApiResult<json::object>(std::move(parsed->get_object()));
  }

  Outcome answer(const RouteRow& row, const HttpRequest& request, Surface surface,
                 const ApiResult<json::object>& body) {
    if (!body) return refuse(request, surface, row.label, body.error());
    note(request, row.label, 200, "");
    return json_response(200, *body, request.request_id);
  }

  // GET

  Outcome get(const RouteRow& row, const HttpRequest& request, Surface surface) {
    switch (row.route) {
      case Route::kHealth:
        return json_response(200, json::object{{"status", "ok"}}, request.request_id);
      case Route::kReady:
        return json_response(200, json::object{{"status", "ready"}}, request.request_id);
      case Route::kVersion:
        return json_response(200, json::object{{"version", PAGEWISE_VERSION}}, request.request_id);
      case Route::kMetrics: {
        HttpResponse response;
        response.content_type = "text/plain; version=0.0.4; charset=utf-8";
        response.headers = base_headers(request.request_id);
        response.body = setup_.metrics->render(setup_.snapshot());
        return response;
      }
      case Route::kModels:
        note(request, row.label, 200, "");
        return json_response(200, model_list(), request.request_id);
      case Route::kModel: {
        const std::size_t at = request.path.find(kModelRow.path) + kModelRow.path.size();
        const std::string asked = percent_decoded(request.path.substr(at));
        if (!setup_.model.answers_to(asked))
          return refuse(request, surface, row.label, unknown_model(asked));
        note(request, row.label, 200, "");
        return json_response(200, model_object(asked), request.request_id);
      }
      default: {
        HttpResponse response;
        response.content_type = "text/plain; charset=utf-8";
        response.headers = base_headers(request.request_id);
        response.body = fmt::format(
            "Pagewise {} serves {}.\nPOST /v1/messages, /v1/chat/completions, /v1/completions; GET "
            "/v1/models, "
            "/health, /metrics.\n",
            PAGEWISE_VERSION, setup_.model.name);
        return response;
      }
    }
  }

  /// Satisfies both SDKs (D1).
  json::object model_object(std::string_view id) const {
    const ServedModel& model = setup_.model;
    return {
        {"id", id},
        {"object", "model"},
        {"created", model.created_unix_s},
        {"owned_by", "local"},
        {"type", "model"},
        {"display_name", id == model.name ? model.name : fmt::format("{} ({})", id, model.name)},
        {"created_at", rfc3339(model.created_unix_s)},
        {"lifecycle", "active"},
        {"line", nullptr},
        {"deprecated_at", nullptr},
        {"retires_at", nullptr},
        {"max_input_tokens", model.context_max - 1},
        {"max_tokens", model.context_max},
        {"max_model_len", model.context_max},
        {"capabilities", nullptr}};
  }

  json::object model_list() const {
    const std::vector<std::string> names = setup_.model.listed_names();
    json::array data;
    for (const std::string& name : names) data.push_back(model_object(name));
    return {{"object", "list"},
            {"data", std::move(data)},
            {"has_more", false},
            {"first_id", names.front()},
            {"last_id", names.back()}};
  }

  static ApiError unknown_model(std::string_view asked) {
    return {ErrorKind::kUnknownModel, fmt::format("model: {}", valid_utf8(asked)), "model", "", ""};
  }

  // Tokens and text

  ApiResult<json::object> tokenize(const json::object& body) const {
    Fields fields(Surface::kOpenAi);
    if (const auto content = fields.string(body, "", "content")) {  // llama.cpp's form
      const bool add_special = fields.boolean(body, "", "add_special").value_or(false);
      const bool parse_special = fields.boolean(body, "", "parse_special").value_or(true);
      const bool with_pieces = fields.boolean(body, "", "with_pieces").value_or(false);
      if (fields.failed()) return fields.error();
      const auto tokens = encode(*content, add_special, parse_special);
      return json::object{{"tokens", with_pieces ? pieces(tokens) : id_array(tokens)}};
    }
    std::vector<TokenId> tokens;  // vLLM's forms
    if (const auto prompt = fields.string(body, "", "prompt")) {
      tokens = encode(*prompt, fields.boolean(body, "", "add_special_tokens").value_or(true), true);
    } else if (Fields::find(body, "messages") != nullptr) {
      GenerationRequest request;
      request.turns = openai::parse_messages(fields, body);
      if (fields.failed()) return fields.error();
      auto built = build_prompt_unchecked(request, setup_.model);
      if (!built) return built.error();
      tokens = std::move(built->tokens);
    } else {
      fields.missing("content");
    }
    if (fields.failed()) return fields.error();
    return json::object{{"count", tokens.size()},
                        {"max_model_len", setup_.model.context_max},
                        {"tokens", id_array(tokens)}};
  }

  std::vector<TokenId> encode(std::string_view text, bool add_special, bool parse_special) const {
    const text::Tokenizer& tokenizer = *setup_.model.tokenizer;
    std::vector<TokenId> tokens = tokenizer.encode(text, parse_special);
    if (add_special && tokenizer.add_bos() && tokenizer.bos())
      tokens.insert(tokens.begin(), *tokenizer.bos());
    return tokens;
  }

  /// Ids with their text, or their bytes where they are no text.
  json::array pieces(const std::vector<TokenId>& tokens) const {
    json::array out;
    for (const TokenId token : tokens) {
      const std::string_view bytes = setup_.model.tokenizer->token_bytes(token);
      json::value piece = json::string(bytes);
      if (!is_valid_utf8(bytes)) {
        json::array numbers;
        for (const char byte : bytes) numbers.push_back(static_cast<uint8_t>(byte));
        piece = std::move(numbers);
      }
      out.push_back(json::object{{"id", token.value}, {"piece", std::move(piece)}});
    }
    return out;
  }

  ApiResult<json::object> detokenize(const json::object& body) const {
    Fields fields(Surface::kOpenAi);
    const json::array* array = fields.array(body, "", "tokens");
    if (array == nullptr) fields.missing("tokens");
    if (fields.failed()) return fields.error();
    const auto tokens =
        openai::parse_token_ids(fields, *array, "tokens", setup_.model.tokenizer->vocab_size());
    if (fields.failed()) return fields.error();
    const std::string text = valid_utf8(setup_.model.tokenizer->decode(tokens, true));
    return json::object{{"content", text}, {"prompt", text}};
  }

  Outcome count_tokens(const RouteRow& row, const HttpRequest& request, Surface surface,
                       const json::object& body) {
    auto parsed = anthropic::parse_count_tokens(body);
    if (!parsed) return refuse(request, surface, row.label, parsed.error());
    if (!setup_.model.answers_to(parsed->model)) {
      return refuse(request, surface, row.label, unknown_model(parsed->model));
    }
    auto prompt = build_prompt_unchecked(*parsed, setup_.model);
    if (!prompt) return refuse(request, surface, row.label, prompt.error());
    note(request, row.label, 200, "");
    return json_response(200, json::object{{"input_tokens", prompt->tokens.size()}},
                         request.request_id);
  }

  // Generation

  Outcome generate(const RouteRow& row, const HttpRequest& request, Surface surface,
                   ApiResult<GenerationRequest> parsed) {
    if (!parsed) return refuse(request, surface, row.label, parsed.error());
    GenerationRequest& asked = *parsed;
    if (!setup_.model.answers_to(asked.model)) {
      return refuse(request, surface, row.label, unknown_model(asked.model));
    }
    const TimeNs before = setup_.clock->now();
    std::vector<Prompt> prompts;
    for (std::size_t i = 0; i < asked.prompts.size(); ++i) {
      auto prompt = build_prompt(asked, setup_.model, i);
      if (!prompt) return refuse(request, surface, row.label, prompt.error());
      prompts.push_back(*std::move(prompt));
    }

    ExchangeSetup exchange;
    exchange.engine = setup_.engine;
    exchange.surface = surface;
    exchange.stream = asked.stream;
    exchange.model_name = setup_.model.name;
    exchange.route = row.label;
    exchange.received_at = request.received_at;
    exchange.tokenize_ns = setup_.clock->now() - before;
    exchange.clock = setup_.clock;
    exchange.metrics = setup_.metrics;
    exchange.log = setup_.log;

    const std::string name_space = namespace_of(request, asked);
    ResponseContext& context = exchange.context;
    context.format = asked.format;
    context.model = asked.model;
    context.request_id = request.request_id;
    context.id = ids_.id(id_prefix(asked.format));
    context.created_unix_s = setup_.unix_time_s();
    context.prompts = static_cast<uint32_t>(prompts.size());
    context.choices = asked.choices;
    context.candidates = asked.candidates;
    context.stops = asked.stops;
    context.include_usage = asked.include_usage;
    context.logprobs = asked.logprobs;
    context.tokenizer = setup_.model.tokenizer;
    if (asked.diagnostics) {
      context.diagnostics_asked = true;
      context.diagnostics =
          diagnostics_.exchange(name_space, asked.diagnostics->previous_message_id, context.id,
                                make_fingerprint(asked, prompts.front()), setup_.clock->now());
    }

    for (Prompt& prompt : prompts) {
      exchange.requests.push_back(engine_request(asked, prompt, name_space));
      if (asked.echo) context.echo.push_back(std::move(prompt.echo));
    }
    return make_exchange(std::move(exchange));
  }

  /// Takes the prompt's tokens.
  engine::Request engine_request(const GenerationRequest& asked, Prompt& prompt,
                                 const std::string& name_space) {
    engine::Request work;
    work.prompt = std::move(prompt.tokens);
    // The engine clamps to the room left; a bound here keeps the metrics readable.
    work.max_tokens = std::min<uint64_t>(asked.max_tokens, setup_.model.context_max);
    work.choices = asked.candidates;
    work.sampling = asked.sampling;
    if (!asked.seed_given) work.sampling.seed = ids_.draw();
    // The best of several are chosen by their log-probabilities.
    if (asked.candidates > asked.choices) {
      work.sampling.logprobs = std::max(work.sampling.logprobs, 0);
    }
    work.stops = asked.stops;
    work.ignore_eos = asked.ignore_eos;
    if (asked.echo) {
      work.text_before = cut_character(prompt.echo);
      if (asked.logprobs) work.prompt_logprobs = asked.sampling.logprobs;
    }
    work.cache.use_cache = asked.use_cache;
    work.cache.cache_namespace = name_space;
    work.cache.positions = std::move(prompt.positions);
    work.cache.markers = std::move(prompt.markers);
    return work;
  }

  /// Only a key that was checked names a cache: without a key file anybody may present anything.
  std::string namespace_of(const HttpRequest& request, const GenerationRequest& asked) const {
    const std::string* workspace = request.header("anthropic-workspace-id");
    const std::string key =
        setup_.keys.configured() ? presented_key(request).value_or("") : std::string();
    return cache_namespace(key, workspace == nullptr ? "" : *workspace, asked.cache_salt);
  }

  const ApiSetup setup_;
  IdSource ids_;
  DiagnosticsLog diagnostics_;
};

}  // namespace

Surface surface_of(const HttpRequest& request) {
  const bool anthropic =
      request.path.starts_with("/v1/messages") || request.header("anthropic-version") != nullptr;
  return anthropic ? Surface::kAnthropic : Surface::kOpenAi;
}

std::unique_ptr<Handler> make_api(ApiSetup setup) {
  return std::make_unique<Api>(std::move(setup));
}

}  // namespace pagewise::server
