// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <set>
#include <utility>

#include "base/contains.h"
#include "gguf/gguf.h"
#include "text/jinja/lexer.h"

namespace pagewise::text::jinja {

namespace {

// Deeper than any real template by far, shallow enough for a thread's stack.
constexpr uint32_t kNestingMax = 60;
constexpr uint32_t kExprDepthMax = 200;

/// Keywords that end an expression or belong to a statement, so that they are no variables.
constexpr std::string_view kReserved[] = {"and", "or", "not", "in", "is", "if", "else"};

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  Result<Parsed> parse_template() {
    Parsed parsed;
    PW_ASSIGN_OR_RETURN(parsed.body, parse_body({}));
    for (const auto& [name, line] : unknown_functions_) {
      if (tested_names_.contains(name) || macros_.contains(name) || bound_names_.contains(name)) {
        continue;
      }
      if (name != "strftime_now") return unsupported("function", name, line);
      parsed.needs_time = true;
    }
    parsed.names_read = std::move(names_read_);
    return parsed;
  }

 private:
  // ---- tokens
  // -------------------------------------------------------------------------------------

  const Token& peek() const { return tokens_[at_]; }
  Token take() {
    Token token = tokens_[at_];
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  bool at_operator(std::string_view text) const {
    return peek().kind == TokenKind::kOperator && peek().text == text;
  }
  bool at_name(std::string_view text) const {
    return peek().kind == TokenKind::kName && peek().text == text;
  }
  bool at_next_name(std::string_view text) const {
    const Token& next = tokens_[std::min(at_ + 1, tokens_.size() - 1)];
    return next.kind == TokenKind::kName && next.text == text;
  }
  bool accept_operator(std::string_view text) {
    if (!at_operator(text)) return false;
    take();
    return true;
  }
  bool accept_name(std::string_view text) {
    if (!at_name(text)) return false;
    take();
    return true;
  }
  Status expect_operator(std::string_view text) {
    if (accept_operator(text)) return Status::ok();
    return malformed(fmt::format("expected '{}'", text));
  }
  Status expect(TokenKind kind, std::string_view what) {
    if (peek().kind != kind) return malformed(fmt::format("expected {}", what));
    take();
    return Status::ok();
  }
  Result<std::string> expect_identifier() {
    if (peek().kind != TokenKind::kName || is_reserved(peek().text)) {
      return malformed("expected a name");
    }
    return take().text;
  }

  static bool is_reserved(std::string_view name) { return contains(kReserved, name); }

  std::string found() const {
    switch (peek().kind) {
      case TokenKind::kEnd:
        return "the end of the template";
      case TokenKind::kVariableEnd:
        return "'}}'";
      case TokenKind::kBlockEnd:
        return "'%}'";
      case TokenKind::kString:
        return "a string";
      case TokenKind::kData:
      case TokenKind::kVariableBegin:
      case TokenKind::kBlockBegin:
        return "text";
      default:
        return fmt::format("'{}'", peek().text);
    }
  }
  Error malformed(std::string_view reason) const {
    if (peek().kind == TokenKind::kError) {  // what the lexer met is the cause
      return {ErrorCode::kMalformed, fmt::format("line {}: {}", peek().line, peek().text)};
    }
    return {ErrorCode::kMalformed,
            fmt::format("line {}: {}, found {}", peek().line, reason, found())};
  }
  static Error unsupported(std::string_view kind, std::string_view name, uint32_t line) {
    return {ErrorCode::kUnsupported,
            // The name may be a string of the template, with anything in it.
            fmt::format("{} '{}' at line {} is not supported", kind, gguf::printable(name), line)};
  }

  /// One level of recursion of the parser itself.
  class Nesting {
   public:
    explicit Nesting(Parser& parser) : parser_(parser) { ++parser_.nesting_; }
    ~Nesting() { --parser_.nesting_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    Parser& parser_;
  };
  Status check_nesting() const {
    if (nesting_ <= kNestingMax) return Status::ok();
    return Error{ErrorCode::kMalformed,
                 fmt::format("line {}: nested deeper than {}", peek().line, kNestingMax)};
  }

  // ---- statements
  // ---------------------------------------------------------------------------------

  /// Statements up to one of `ends` (a tag's name; the tag is left at that name) or, without ends,
  /// up to the end of the template.
  Result<Body> parse_body(std::initializer_list<std::string_view> ends) {
    const Nesting nesting(*this);
    PW_RETURN_IF_ERROR(check_nesting());
    Body body;
    while (true) {
      const uint32_t line = peek().line;
      if (peek().kind == TokenKind::kData) {
        body.push_back({line, Output{take().text}});
      } else if (peek().kind == TokenKind::kVariableBegin) {
        take();
        PW_ASSIGN_OR_RETURN(ExprPtr value, parse_tuple());
        PW_RETURN_IF_ERROR(expect(TokenKind::kVariableEnd, "'}}'"));
        body.push_back({line, Print{std::move(value)}});
      } else if (peek().kind == TokenKind::kBlockBegin) {
        take();
        if (peek().kind != TokenKind::kName) return malformed("expected a statement");
        if (contains(ends, peek().text)) return body;
        PW_ASSIGN_OR_RETURN(Statement statement, parse_statement());
        body.push_back(std::move(statement));
      } else if (peek().kind == TokenKind::kEnd && ends.size() == 0) {
        return body;
      } else {
        return malformed(ends.size() == 0 ? std::string("expected a statement")
                                          : fmt::format("expected {{% {} %}}", *(ends.end() - 1)));
      }
    }
  }

  Status end_tag() { return expect(TokenKind::kBlockEnd, "'%}'"); }

  Result<Statement> parse_statement() {
    const Token keyword = take();
    if (keyword.text == "if") return parse_if(keyword.line);
    if (keyword.text == "for") return parse_for(keyword.line);
    if (keyword.text == "set") return parse_set(keyword.line);
    if (keyword.text == "macro") return parse_macro(keyword.line);
    if (keyword.text == "call") return parse_call_block(keyword.line);
    if (keyword.text == "with") return parse_with(keyword.line);
    if (keyword.text == "filter") return parse_filter_block(keyword.line);
    if (keyword.text == "generation") return parse_generation(keyword.line);
    if (keyword.text == "break" || keyword.text == "continue") {
      if (loops_ == 0) {
        return Error{ErrorCode::kMalformed,
                     fmt::format("line {}: '{}' outside of a loop", keyword.line, keyword.text)};
      }
      PW_RETURN_IF_ERROR(end_tag());
      if (keyword.text == "break") return Statement{keyword.line, Break{}};
      return Statement{keyword.line, Continue{}};
    }
    if (keyword.text.starts_with("end") || keyword.text == "elif" || keyword.text == "else") {
      return Error{ErrorCode::kMalformed, fmt::format("line {}: '{}' without its opening statement",
                                                      keyword.line, keyword.text)};
    }
    return unsupported("statement", keyword.text, keyword.line);
  }

  Result<Statement> parse_if(uint32_t line) {
    If result;
    while (true) {
      PW_ASSIGN_OR_RETURN(ExprPtr condition, parse_or());
      PW_RETURN_IF_ERROR(end_tag());
      PW_ASSIGN_OR_RETURN(Body body, parse_body({"elif", "else", "endif"}));
      result.branches.emplace_back(std::move(condition), std::move(body));
      if (accept_name("elif")) continue;
      if (accept_name("else")) {
        PW_RETURN_IF_ERROR(end_tag());
        PW_ASSIGN_OR_RETURN(result.otherwise, parse_body({"endif"}));
      }
      take();  // endif
      PW_RETURN_IF_ERROR(end_tag());
      return Statement{line, std::move(result)};
    }
  }

  Result<std::vector<std::string>> parse_targets() {
    std::vector<std::string> targets;
    const bool parenthesized = accept_operator("(");
    do {
      if (at_operator("(")) return unsupported("unpacking into", "(...)", peek().line);
      PW_ASSIGN_OR_RETURN(std::string target, expect_identifier());
      bound_names_.insert(target);
      targets.push_back(std::move(target));
    } while (accept_operator(","));
    if (parenthesized) PW_RETURN_IF_ERROR(expect_operator(")"));
    return targets;
  }

  Result<Statement> parse_for(uint32_t line) {
    For result;
    PW_ASSIGN_OR_RETURN(result.targets, parse_targets());
    if (!accept_name("in")) return malformed("expected 'in'");
    PW_ASSIGN_OR_RETURN(result.items, parse_tuple(&Parser::parse_or));
    if (accept_name("if")) {
      PW_ASSIGN_OR_RETURN(result.filter, parse_or());
    }
    if (at_name("recursive")) return unsupported("loop modifier", "recursive", peek().line);
    PW_RETURN_IF_ERROR(end_tag());
    ++loops_;
    PW_ASSIGN_OR_RETURN(result.body, parse_body({"else", "endfor"}));
    --loops_;
    if (accept_name("else")) {
      PW_RETURN_IF_ERROR(end_tag());
      PW_ASSIGN_OR_RETURN(result.otherwise, parse_body({"endfor"}));
    }
    take();  // endfor
    PW_RETURN_IF_ERROR(end_tag());
    return Statement{line, std::move(result)};
  }

  Result<Statement> parse_set(uint32_t line) {
    Set result;
    PW_ASSIGN_OR_RETURN(result.targets, parse_targets());
    if (result.targets.size() == 1 && accept_operator(".")) {
      PW_ASSIGN_OR_RETURN(result.attribute, expect_identifier());
    }
    if (accept_operator("=")) {
      PW_ASSIGN_OR_RETURN(result.value, parse_tuple());
      PW_RETURN_IF_ERROR(end_tag());
      return Statement{line, std::move(result)};
    }
    if (result.targets.size() > 1 || !result.attribute.empty()) return malformed("expected '='");
    Capture capture{result.targets[0], {}, {}};
    if (at_operator("|")) {
      PW_ASSIGN_OR_RETURN(capture.filters, parse_captured_filters(false));
    }
    PW_RETURN_IF_ERROR(end_tag());
    // A loop may not be left from inside: the captured text would be lost half-way.
    const uint32_t loops = std::exchange(loops_, 0);
    PW_ASSIGN_OR_RETURN(capture.body, parse_body({"endset"}));
    loops_ = loops;
    take();  // endset
    PW_RETURN_IF_ERROR(end_tag());
    return Statement{line, std::move(capture)};
  }

  Result<Statement> parse_macro(uint32_t line) {
    Macro macro;
    PW_ASSIGN_OR_RETURN(macro.name, expect_identifier());
    PW_RETURN_IF_ERROR(expect_operator("("));
    PW_RETURN_IF_ERROR(parse_parameters(macro));
    PW_RETURN_IF_ERROR(end_tag());
    PW_RETURN_IF_ERROR(parse_macro_body(macro, "endmacro"));
    macros_.insert(macro.name);
    return Statement{line, std::move(macro)};
  }

  /// name, name=default, ... ), behind the opening parenthesis.
  Status parse_parameters(Macro& macro) {
    while (!accept_operator(")")) {
      PW_ASSIGN_OR_RETURN(std::string parameter, expect_identifier());
      bound_names_.insert(parameter);
      macro.parameters.push_back(std::move(parameter));
      ExprPtr otherwise;
      if (accept_operator("=")) {
        PW_ASSIGN_OR_RETURN(otherwise, parse_expression());
      } else if (!macro.defaults.empty() && macro.defaults.back()) {
        return malformed("expected a default value");
      }
      macro.defaults.push_back(std::move(otherwise));
      if (!at_operator(")")) PW_RETURN_IF_ERROR(expect_operator(","));
    }
    return Status::ok();
  }

  Status parse_macro_body(Macro& macro, std::string_view end) {
    const uint32_t loops = std::exchange(loops_, 0);
    std::set<std::string, std::less<>> outside = std::exchange(names_read_, {});
    ++macro_depth_;
    PW_ASSIGN_OR_RETURN(macro.body, parse_body({end}));
    --macro_depth_;
    loops_ = loops;
    macro.reads_varargs = names_read_.contains("varargs");
    macro.reads_kwargs = names_read_.contains("kwargs");
    macro.reads_caller = names_read_.contains("caller");
    names_read_.merge(outside);
    take();  // the end's name
    return end_tag();
  }

  Result<Statement> parse_call_block(uint32_t line) {
    CallBlock block;
    if (accept_operator("(")) PW_RETURN_IF_ERROR(parse_parameters(block.body));
    PW_ASSIGN_OR_RETURN(block.call, parse_unary(false));
    if (!std::holds_alternative<NamedCall>(block.call->node)) {
      return unsupported("call of", "what is no macro", line);
    }
    PW_RETURN_IF_ERROR(end_tag());
    block.body.name = "caller";
    PW_RETURN_IF_ERROR(parse_macro_body(block.body, "endcall"));
    return Statement{line, std::move(block)};
  }

  Result<Statement> parse_with(uint32_t line) {
    With with;
    while (peek().kind != TokenKind::kBlockEnd) {
      PW_ASSIGN_OR_RETURN(std::string target, expect_identifier());
      PW_RETURN_IF_ERROR(expect_operator("="));
      PW_ASSIGN_OR_RETURN(ExprPtr value, parse_expression());
      bound_names_.insert(target);
      with.targets.push_back(std::move(target));
      with.values.push_back(std::move(value));
      if (peek().kind != TokenKind::kBlockEnd) PW_RETURN_IF_ERROR(expect_operator(","));
    }
    PW_RETURN_IF_ERROR(end_tag());
    PW_ASSIGN_OR_RETURN(with.body, parse_body({"endwith"}));
    take();  // endwith
    PW_RETURN_IF_ERROR(end_tag());
    return Statement{line, std::move(with)};
  }

  Result<Statement> parse_filter_block(uint32_t line) {
    Capture capture;
    PW_ASSIGN_OR_RETURN(capture.filters, parse_captured_filters(true));
    PW_RETURN_IF_ERROR(end_tag());
    const uint32_t loops = std::exchange(loops_, 0);
    PW_ASSIGN_OR_RETURN(capture.body, parse_body({"endfilter"}));
    loops_ = loops;
    take();  // endfilter
    PW_RETURN_IF_ERROR(end_tag());
    return Statement{line, std::move(capture)};
  }

  /// Filters over what a block captures; `bare`: the first one stands without its '|'.
  Result<ExprPtr> parse_captured_filters(bool bare) {
    PW_ASSIGN_OR_RETURN(ExprPtr value, make(peek().line, Name{std::string(kCaptured)},
                                            std::initializer_list<uint32_t>{0}));
    while (bare || accept_operator("|")) {
      bare = false;
      PW_ASSIGN_OR_RETURN(value, parse_filter(std::move(value)));
    }
    return value;
  }

  /// Marks what an assistant wrote, for training; here only a scope.
  Result<Statement> parse_generation(uint32_t line) {
    PW_RETURN_IF_ERROR(end_tag());
    const uint32_t loops = std::exchange(loops_, 0);
    Block block;
    PW_ASSIGN_OR_RETURN(block.body, parse_body({"endgeneration"}));
    loops_ = loops;
    take();  // endgeneration
    PW_RETURN_IF_ERROR(end_tag());
    return Statement{line, std::move(block)};
  }

  // ---- expressions, loosest binding first
  // ---------------------------------------------------------

  static uint32_t depth_of(const ExprPtr& expr) { return expr ? expr->depth : 0; }

  template <typename Node>
  Result<ExprPtr> make(uint32_t line, Node node, std::initializer_list<uint32_t> depths) {
    auto expr = std::make_unique<Expr>();
    expr->line = line;
    expr->depth = 1 + std::max(depths);
    if (expr->depth > kExprDepthMax) {
      return Error{
          ErrorCode::kMalformed,
          fmt::format("line {}: an expression is nested deeper than {}", line, kExprDepthMax)};
    }
    expr->node = std::move(node);
    return expr;
  }

  template <typename Exprs>
  static uint32_t deepest(const Exprs& exprs) {
    uint32_t depth = 0;
    for (const ExprPtr& expr : exprs) depth = std::max(depth, depth_of(expr));
    return depth;
  }

  /// An expression, or several separated by commas: a tuple.
  Result<ExprPtr> parse_tuple() { return parse_tuple(&Parser::parse_expression); }
  Result<ExprPtr> parse_tuple(Result<ExprPtr> (Parser::*parse_item)()) {
    const uint32_t line = peek().line;
    PW_ASSIGN_OR_RETURN(ExprPtr first, (this->*parse_item)());
    if (!at_operator(",")) return first;
    ListDisplay tuple;
    tuple.is_tuple = true;
    tuple.items.push_back(std::move(first));
    while (accept_operator(",")) {
      if (at_operator(")") || peek().kind == TokenKind::kVariableEnd ||
          peek().kind == TokenKind::kBlockEnd) {
        break;
      }
      PW_ASSIGN_OR_RETURN(ExprPtr item, (this->*parse_item)());
      tuple.items.push_back(std::move(item));
    }
    const uint32_t depth = deepest(tuple.items);
    return make(line, std::move(tuple), {depth});
  }

  Result<ExprPtr> parse_expression() {
    const Nesting nesting(*this);
    PW_RETURN_IF_ERROR(check_nesting());
    const uint32_t line = peek().line;
    PW_ASSIGN_OR_RETURN(ExprPtr value, parse_or());
    while (accept_name("if")) {
      Conditional conditional;
      conditional.then = std::move(value);
      PW_ASSIGN_OR_RETURN(conditional.condition, parse_or());
      if (accept_name("else")) {
        PW_ASSIGN_OR_RETURN(conditional.otherwise, parse_expression());
      }
      const auto depths = {depth_of(conditional.condition), depth_of(conditional.then),
                           depth_of(conditional.otherwise)};
      PW_ASSIGN_OR_RETURN(value, make(line, std::move(conditional), depths));
    }
    return value;
  }

  Result<ExprPtr> make_binary(uint32_t line, Operator op, ExprPtr left, ExprPtr right) {
    const auto depths = {depth_of(left), depth_of(right)};
    return make(line, Binary{op, std::move(left), std::move(right)}, depths);
  }

  Result<ExprPtr> parse_or() {
    PW_ASSIGN_OR_RETURN(ExprPtr left, parse_and());
    while (at_name("or")) {
      const uint32_t line = take().line;
      PW_ASSIGN_OR_RETURN(ExprPtr right, parse_and());
      PW_ASSIGN_OR_RETURN(left,
                          make_binary(line, Operator::kOr, std::move(left), std::move(right)));
    }
    return left;
  }

  Result<ExprPtr> parse_and() {
    PW_ASSIGN_OR_RETURN(ExprPtr left, parse_not());
    while (at_name("and")) {
      const uint32_t line = take().line;
      PW_ASSIGN_OR_RETURN(ExprPtr right, parse_not());
      PW_ASSIGN_OR_RETURN(left,
                          make_binary(line, Operator::kAnd, std::move(left), std::move(right)));
    }
    return left;
  }

  Result<ExprPtr> parse_not() {
    if (!at_name("not")) return parse_comparison();
    const Nesting nesting(*this);
    PW_RETURN_IF_ERROR(check_nesting());
    const uint32_t line = take().line;
    PW_ASSIGN_OR_RETURN(ExprPtr operand, parse_not());
    const uint32_t depth = depth_of(operand);
    return make(line, Unary{Operator::kNot, std::move(operand)}, {depth});
  }

  /// The comparison operator that stands here, taken.
  std::optional<Operator> accept_comparison() {
    constexpr std::pair<std::string_view, Operator> kOperators[] = {
        {"==", Operator::kEqual},  {"!=", Operator::kUnequal},   {"<", Operator::kLess},
        {">", Operator::kGreater}, {"<=", Operator::kLessEqual}, {">=", Operator::kGreaterEqual}};
    for (const auto& [text, op] : kOperators) {
      if (accept_operator(text)) return op;
    }
    if (accept_name("in")) return Operator::kIn;
    if (at_name("not") && at_next_name("in")) {
      take();
      take();
      return Operator::kNotIn;
    }
    return std::nullopt;
  }

  Result<ExprPtr> parse_comparison() {
    const uint32_t line = peek().line;
    PW_ASSIGN_OR_RETURN(ExprPtr first, parse_sum());
    auto op = accept_comparison();
    if (!op) return first;
    Comparison comparison;
    uint32_t depth = depth_of(first);
    comparison.first = std::move(first);
    for (; op; op = accept_comparison()) {
      PW_ASSIGN_OR_RETURN(ExprPtr operand, parse_sum());
      depth = std::max(depth, depth_of(operand));
      comparison.rest.emplace_back(*op, std::move(operand));
    }
    return make(line, std::move(comparison), {depth});
  }

  using Level = Result<ExprPtr> (Parser::*)();

  /// operand (op operand)*, from the left.
  Result<ExprPtr> parse_chain(
      std::initializer_list<std::pair<std::string_view, Operator>> operators, Level operand) {
    PW_ASSIGN_OR_RETURN(ExprPtr left, (this->*operand)());
    while (true) {
      const auto* found = std::find_if(operators.begin(), operators.end(),
                                       [&](const auto& entry) { return at_operator(entry.first); });
      if (found == operators.end()) return left;
      const uint32_t line = take().line;
      PW_ASSIGN_OR_RETURN(ExprPtr right, (this->*operand)());
      PW_ASSIGN_OR_RETURN(left,
                          make_binary(line, found->second, std::move(left), std::move(right)));
    }
  }

  Result<ExprPtr> parse_sum() {
    return parse_chain({{"+", Operator::kAdd}, {"-", Operator::kSubtract}},
                       &Parser::parse_concatenation);
  }
  Result<ExprPtr> parse_concatenation() {
    return parse_chain({{"~", Operator::kConcatenate}}, &Parser::parse_product);
  }
  Result<ExprPtr> parse_product() {
    return parse_chain({{"*", Operator::kMultiply},
                        {"/", Operator::kDivide},
                        {"//", Operator::kFloorDivide},
                        {"%", Operator::kModulo}},
                       &Parser::parse_power);
  }
  Result<ExprPtr> parse_power() {
    return parse_chain({{"**", Operator::kPower}}, &Parser::parse_unary_filtered);
  }
  Result<ExprPtr> parse_unary_filtered() { return parse_unary(true); }

  Result<ExprPtr> parse_unary(bool with_filters) {
    ExprPtr value;
    if (at_operator("-") || at_operator("+")) {
      const Nesting nesting(*this);
      PW_RETURN_IF_ERROR(check_nesting());
      const Token sign = take();
      PW_ASSIGN_OR_RETURN(ExprPtr operand, parse_unary(false));
      const uint32_t depth = depth_of(operand);
      const Operator op = sign.text == "-" ? Operator::kNegative : Operator::kPositive;
      PW_ASSIGN_OR_RETURN(value, make(sign.line, Unary{op, std::move(operand)}, {depth}));
    } else {
      PW_ASSIGN_OR_RETURN(value, parse_primary());
    }
    PW_ASSIGN_OR_RETURN(value, parse_postfix(std::move(value)));
    if (!with_filters) return value;
    while (true) {
      if (accept_operator("|")) {
        PW_ASSIGN_OR_RETURN(value, parse_filter(std::move(value)));
      } else if (at_name("is")) {
        PW_ASSIGN_OR_RETURN(value, parse_test(std::move(value)));
      } else if (at_operator("(")) {
        return unsupported("call of", "an expression", peek().line);
      } else {
        return value;
      }
    }
  }

  Result<ExprPtr> make_literal(uint32_t line, Value value) {
    return make(line, Literal{std::move(value)}, {0});
  }

  Result<ExprPtr> parse_primary() {
    const Token token = peek();
    switch (token.kind) {
      case TokenKind::kName:
        return parse_name();
      case TokenKind::kString: {
        std::string text;
        while (peek().kind == TokenKind::kString) text += take().text;
        return make_literal(token.line, make_text(text));
      }
      case TokenKind::kInteger: {
        int64_t number = 0;
        const char* end = token.text.data() + token.text.size();
        if (std::from_chars(token.text.data(), end, number).ec != std::errc()) {
          return malformed("a whole number is too large");
        }
        take();
        return make_literal(token.line, number);
      }
      case TokenKind::kFloat: {
        double number = 0;
        const char* end = token.text.data() + token.text.size();
        if (std::from_chars(token.text.data(), end, number).ec != std::errc()) {
          return malformed("a number is out of range");
        }
        take();
        return make_literal(token.line, number);
      }
      default:
        break;
    }
    if (accept_operator("(")) {
      if (accept_operator(")")) return make(token.line, ListDisplay{{}, true}, {0});
      PW_ASSIGN_OR_RETURN(ExprPtr value, parse_tuple());
      PW_RETURN_IF_ERROR(expect_operator(")"));
      return value;
    }
    if (at_operator("[")) return parse_list();
    if (at_operator("{")) return parse_dict();
    return malformed("expected an expression");
  }

  Result<ExprPtr> parse_name() {
    const Token token = take();
    const std::string& name = token.text;
    if (name == "true" || name == "True") return make_literal(token.line, true);
    if (name == "false" || name == "False") return make_literal(token.line, false);
    if (name == "none" || name == "None") return make_literal(token.line, None{});
    if (is_reserved(name)) {
      return Error{ErrorCode::kMalformed,
                   fmt::format("line {}: unexpected '{}'", token.line, name)};
    }
    if (!at_operator("(")) {
      names_read_.insert(name);
      return make(token.line, Name{name}, {0});
    }
    const Builtin* function = macros_.contains(name) ? nullptr : find_function(name);
    if (function == nullptr) {
      // `{% if f is defined %}{{ f() }}` is how templates ask for functions that may be missing.
      // One that is no macro and never asked for is refused at the end.
      names_read_.insert(name);
      if (name != "caller" || macro_depth_ == 0) unknown_functions_.emplace_back(name, token.line);
      return parse_named_call(name, token.line);
    }
    return parse_invocation("function", function, nullptr, token.line);
  }

  Result<ExprPtr> parse_named_call(const std::string& name, uint32_t line) {
    NamedCall call;
    call.name = name;
    uint32_t depth = 0;
    take();  // (
    while (!accept_operator(")")) {
      if (at_operator("*") || at_operator("**")) {
        return unsupported("argument", peek().text, peek().line);
      }
      std::string keyword = accept_keyword();
      if (keyword.empty() && !call.named.empty()) {
        return malformed("expected a named argument");
      }
      PW_ASSIGN_OR_RETURN(ExprPtr value, parse_expression());
      depth = std::max(depth, depth_of(value));
      if (keyword.empty()) {
        call.arguments.push_back(std::move(value));
      } else {
        call.named.emplace_back(std::move(keyword), std::move(value));
      }
      if (!at_operator(")")) PW_RETURN_IF_ERROR(expect_operator(","));
    }
    return make(line, std::move(call), {depth});
  }

  /// The `name=` in front of a named argument, taken; empty when there is none.
  std::string accept_keyword() {
    const Token& next = tokens_[std::min(at_ + 1, tokens_.size() - 1)];
    if (peek().kind != TokenKind::kName || next.kind != TokenKind::kOperator || next.text != "=") {
      return {};
    }
    std::string name = take().text;
    take();
    return name;
  }

  Result<ExprPtr> parse_list() {
    const uint32_t line = take().line;
    ListDisplay list;
    while (!accept_operator("]")) {
      PW_ASSIGN_OR_RETURN(ExprPtr item, parse_expression());
      list.items.push_back(std::move(item));
      if (!at_operator("]")) PW_RETURN_IF_ERROR(expect_operator(","));
    }
    const uint32_t depth = deepest(list.items);
    return make(line, std::move(list), {depth});
  }

  Result<ExprPtr> parse_dict() {
    const uint32_t line = take().line;
    DictDisplay dict;
    uint32_t depth = 0;
    while (!accept_operator("}")) {
      const uint32_t key_line = peek().line;
      PW_ASSIGN_OR_RETURN(ExprPtr key, parse_expression());
      if (const auto* literal = std::get_if<Literal>(&key->node);
          (literal != nullptr && literal->value.text() == nullptr) ||
          std::holds_alternative<ListDisplay>(key->node) ||
          std::holds_alternative<DictDisplay>(key->node)) {
        return unsupported("a dictionary's key that is no", "text", key_line);
      }
      PW_RETURN_IF_ERROR(expect_operator(":"));
      PW_ASSIGN_OR_RETURN(ExprPtr value, parse_expression());
      depth = std::max({depth, depth_of(key), depth_of(value)});
      dict.entries.emplace_back(std::move(key), std::move(value));
      if (!at_operator("}")) PW_RETURN_IF_ERROR(expect_operator(","));
    }
    return make(line, std::move(dict), {depth});
  }

  Result<ExprPtr> parse_postfix(ExprPtr value) {
    while (true) {
      const uint32_t line = peek().line;
      if (accept_operator(".")) {
        PW_ASSIGN_OR_RETURN(value, parse_attribute(std::move(value), line));
      } else if (accept_operator("[")) {
        PW_ASSIGN_OR_RETURN(value, parse_subscript(std::move(value), line));
      } else if (at_operator("(")) {
        return unsupported("call of", "an expression", line);
      } else {
        return value;
      }
    }
  }

  Result<ExprPtr> parse_attribute(ExprPtr subject, uint32_t line) {
    const uint32_t depth = depth_of(subject);
    if (peek().kind == TokenKind::kInteger) {
      PW_ASSIGN_OR_RETURN(ExprPtr key, parse_primary());
      return make(line, Subscript{std::move(subject), std::move(key)}, {depth});
    }
    if (peek().kind != TokenKind::kName) return malformed("expected an attribute's name");
    std::string name = take().text;
    if (!at_operator("(")) {
      return make(line, Attribute{std::move(subject), std::move(name)}, {depth});
    }
    const Builtin* method = find_method(name);
    if (method == nullptr) return unsupported("method", name, line);
    return parse_invocation("method", method, std::move(subject), line);
  }

  Result<ExprPtr> parse_subscript(ExprPtr subject, uint32_t line) {
    // parts[i]: what stands before, between and behind the colons; null when nothing does
    ExprPtr parts[3];
    int colons = 0;
    while (!at_operator("]")) {
      if (accept_operator(":")) {
        if (++colons > 2) return malformed("a slice has at most two colons");
      } else if (parts[colons]) {
        return malformed("expected ']'");
      } else {
        PW_ASSIGN_OR_RETURN(parts[colons], parse_expression());
      }
    }
    if (colons == 0 && !parts[0]) return malformed("expected an index");
    take();
    const auto depths = {depth_of(subject), depth_of(parts[0]), depth_of(parts[1]),
                         depth_of(parts[2])};
    if (colons == 0) return make(line, Subscript{std::move(subject), std::move(parts[0])}, depths);
    return make(
        line,
        Slice{std::move(subject), std::move(parts[0]), std::move(parts[1]), std::move(parts[2])},
        depths);
  }

  Result<ExprPtr> parse_filter(ExprPtr subject) {
    if (peek().kind != TokenKind::kName) return malformed("expected a filter's name");
    const Token name = take();
    const Builtin* filter = find_filter(name.text);
    if (filter == nullptr) return unsupported("filter", name.text, name.line);
    PW_ASSIGN_OR_RETURN(ExprPtr filtered,
                        parse_invocation("filter", filter, std::move(subject), name.line));
    PW_RETURN_IF_ERROR(check_applied(std::get<Invocation>(filtered->node), name));
    return filtered;
  }

  /// The filter or test that map, select and kin name as text must be offered too.
  static Status check_applied(const Invocation& call, const Token& filter) {
    const bool by_attribute = filter.text == "selectattr" || filter.text == "rejectattr";
    const bool by_filter = filter.text == "map";
    if (!by_attribute && !by_filter && filter.text != "select" && filter.text != "reject") {
      return Status::ok();
    }
    const std::size_t place = by_attribute ? 1 : 0;
    if (call.rest.size() <= place) return Status::ok();
    const auto* literal = std::get_if<Literal>(&call.rest[place]->node);
    const Rope* applied = literal != nullptr ? literal->value.text() : nullptr;
    if (applied == nullptr) return Status::ok();
    const std::string_view name = applied->bytes();
    if (by_filter ? find_filter(name) != nullptr : find_test(name) != nullptr) return Status::ok();
    return unsupported(by_filter ? "filter" : "test", name, filter.line);
  }

  Result<ExprPtr> parse_test(ExprPtr subject) {
    take();  // is
    const bool negated = accept_name("not");
    if (peek().kind != TokenKind::kName) return malformed("expected a test's name");
    const Token name = take();
    const Builtin* test = find_test(name.text);
    if (test == nullptr) return unsupported("test", name.text, name.line);
    if (const auto* tested = std::get_if<Name>(&subject->node)) {
      if (name.text == "defined" || name.text == "undefined") tested_names_.insert(tested->name);
    }
    ExprPtr result;
    const bool bare_argument =
        peek().kind == TokenKind::kString || peek().kind == TokenKind::kInteger ||
        peek().kind == TokenKind::kFloat || at_operator("[") || at_operator("{") ||
        (peek().kind == TokenKind::kName && !is_reserved(peek().text));
    if (bare_argument) {  // `x is divisibleby 3`
      if (test->parameters.empty()) return malformed("this test takes no argument");
      PW_ASSIGN_OR_RETURN(ExprPtr argument, parse_primary());
      PW_ASSIGN_OR_RETURN(argument, parse_postfix(std::move(argument)));
      Invocation invocation;
      invocation.builtin = test;
      const auto depths = {depth_of(subject), depth_of(argument)};
      invocation.subject = std::move(subject);
      invocation.arguments.push_back(std::move(argument));
      PW_ASSIGN_OR_RETURN(result, make(name.line, std::move(invocation), depths));
    } else {
      PW_ASSIGN_OR_RETURN(result, parse_invocation("test", test, std::move(subject), name.line));
    }
    if (!negated) return result;
    const uint32_t depth = depth_of(result);
    return make(name.line, Unary{Operator::kNot, std::move(result)}, {depth});
  }

  /// The arguments in parentheses, if any, bound to the builtin's parameters.
  Result<ExprPtr> parse_invocation(std::string_view kind, const Builtin* builtin, ExprPtr subject,
                                   uint32_t line) {
    Invocation call;
    call.builtin = builtin;
    call.arguments.resize(builtin->parameters.size());
    uint32_t depth = depth_of(subject);
    call.subject = std::move(subject);
    std::size_t position = 0;
    if (accept_operator("(")) {
      while (!accept_operator(")")) {
        if (at_operator("*") || at_operator("**")) {
          return unsupported("argument", peek().text, peek().line);
        }
        std::string name = accept_keyword();
        PW_ASSIGN_OR_RETURN(ExprPtr value, parse_expression());
        depth = std::max(depth, depth_of(value));
        PW_RETURN_IF_ERROR(bind(kind, line, std::move(name), std::move(value), position, call));
        if (!at_operator(")")) PW_RETURN_IF_ERROR(expect_operator(","));
      }
    }
    for (std::size_t i = 0; i < builtin->required; ++i) {
      if (call.arguments[i]) continue;
      return Error{ErrorCode::kMalformed,
                   fmt::format("line {}: {} '{}' needs its argument '{}'", line, kind,
                               builtin->name, builtin->parameters[i])};
    }
    return make(line, std::move(call), {depth});
  }

  Status bind(std::string_view kind, uint32_t line, std::string name, ExprPtr value,
              std::size_t& position, Invocation& call) {
    const Builtin& builtin = *call.builtin;
    if (!name.empty() && builtin.any_named) {
      call.named.emplace_back(std::move(name), std::move(value));
      return Status::ok();
    }
    std::size_t slot = position;
    if (name.empty()) {
      ++position;
    } else {
      const auto& parameters = builtin.parameters;
      slot = static_cast<std::size_t>(std::find(parameters.begin(), parameters.end(), name) -
                                      parameters.begin());
    }
    if (slot >= call.arguments.size()) {
      if (name.empty() && builtin.any_positional) {
        call.rest.push_back(std::move(value));
        return Status::ok();
      }
      const std::string which = name.empty() ? std::to_string(slot + 1) : "'" + name + "'";
      return unsupported(fmt::format("argument {} of {}", which, kind), builtin.name, line);
    }
    if (call.arguments[slot]) {
      return {ErrorCode::kMalformed,
              fmt::format("line {}: argument '{}' of {} '{}' is given twice", line,
                          builtin.parameters[slot], kind, builtin.name)};
    }
    call.arguments[slot] = std::move(value);
    return Status::ok();
  }

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  uint32_t nesting_ = 0;
  uint32_t loops_ = 0;
  uint32_t macro_depth_ = 0;
  std::vector<std::pair<std::string, uint32_t>> unknown_functions_;  // called, and the line
  std::set<std::string, std::less<>> names_read_;
  std::set<std::string> macros_;
  std::set<std::string> tested_names_;  // `x is defined`
  std::set<std::string> bound_names_;   // that the template sets: they may hold a macro
};

}  // namespace

Result<Parsed> parse(std::string_view source) {
  if (source.size() > kSourceBytesMax) {
    return Error{ErrorCode::kMalformed, fmt::format("the template has {} bytes, more than {}",
                                                    source.size(), kSourceBytesMax)};
  }
  return Parser(tokenize(source)).parse_template();
}

}  // namespace pagewise::text::jinja
