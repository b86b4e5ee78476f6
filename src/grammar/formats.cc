// SPDX-License-Identifier: Apache-2.0
#include "grammar/formats.h"

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace pagewise::grammar {
namespace {

/// The pieces that formats are made of.
class Pieces {
 public:
  explicit Pieces(Builder& builder) : builder_(builder) {}

  NodeId text(std::string_view bytes) { return builder_.literal(bytes); }
  NodeId all(std::vector<NodeId> parts) { return builder_.sequence(std::move(parts)); }
  NodeId either(std::vector<NodeId> ways) { return builder_.choice(std::move(ways)); }
  NodeId maybe(NodeId part) { return builder_.optional(part); }
  /// `min` to `max` bytes of these ranges: {"az", "09"}.
  NodeId bytes(std::initializer_list<std::string_view> ranges, uint32_t min, uint32_t max) {
    ByteSet set;
    for (const std::string_view range : ranges) set |= byte_range(range[0], range[1]);
    const NodeId one = builder_.byte_of(set);
    return min == 1 && max == 1 ? one : builder_.repeat(one, std::nullopt, min, max);
  }
  /// Two digits, `first` to `last`.
  NodeId two_digits(uint32_t first, uint32_t last) {
    std::vector<std::string> numbers;
    for (uint32_t i = first; i <= last; ++i) {
      numbers.push_back({static_cast<char>('0' + i / 10), static_cast<char>('0' + i % 10)});
    }
    return builder_.words(numbers);
  }
  NodeId listed(NodeId item, std::string_view separator, uint32_t min, uint32_t max) {
    return builder_.repeat(item, text(separator), min, max);
  }

  NodeId date() {
    const NodeId long_months = all(
        {builder_.words({"01", "03", "05", "07", "08", "10", "12"}), text("-"), two_digits(1, 31)});
    const NodeId short_months =
        all({builder_.words({"04", "06", "09", "11"}), text("-"), two_digits(1, 30)});
    const NodeId february = all({text("02-"), two_digits(1, 28)});
    return all({bytes({"12"}, 1, 1), bytes({"09"}, 3, 3), text("-"),
                either({long_months, short_months, february})});
  }
  NodeId clock() {
    const NodeId zone =
        all({builder_.words({"+", "-"}), two_digits(0, 23), text(":"), two_digits(0, 59)});
    return all({two_digits(0, 23), text(":"), two_digits(0, 59), text(":"), two_digits(0, 59),
                maybe(all({text("."), bytes({"09"}, 1, 6)})), either({text("Z"), zone})});
  }
  NodeId duration() {
    const auto some = [this](std::string_view unit) {
      return all({bytes({"09"}, 1, 4), text(unit)});
    };
    const NodeId minutes = all({some("M"), maybe(some("S"))});
    const NodeId hours = all({some("H"), maybe(minutes)});
    const NodeId shorter = all({text("T"), either({hours, minutes, some("S")})});
    return all({text("P"), either({all({some("D"), maybe(shorter)}), shorter, some("W")})});
  }
  NodeId hex(uint32_t min, uint32_t max) { return bytes({"09", "af"}, min, max); }
  NodeId uuid() {
    return all({hex(8, 8), text("-"), hex(4, 4), text("-"), hex(4, 4), text("-"), hex(4, 4),
                text("-"), hex(12, 12)});
  }
  NodeId ipv4() {
    std::vector<std::string> numbers;
    for (uint32_t i = 0; i < 256; ++i) numbers.push_back(std::to_string(i));
    return listed(builder_.words(numbers), ".", 4, 4);
  }
  NodeId hostname() {
    const NodeId label = listed(bytes({"az", "09"}, 1, 15), "-", 1, 3);
    return all(
        {builder_.repeat(all({label, text(".")}), std::nullopt, 1, 3), bytes({"az"}, 2, 10)});
  }
  NodeId email() {
    const NodeId word = bytes({"az", "09"}, 1, 20);
    const NodeId joint = builder_.words({".", "_", "+", "-"});
    return all({builder_.repeat(word, joint, 1, 3), text("@"), hostname()});
  }
  NodeId uri() {
    const NodeId segment = all({text("/"), bytes({"az", "AZ", "09", "-.", "__", "~~"}, 1, 30)});
    return all({builder_.words({"http://", "https://"}), hostname(),
                builder_.repeat(segment, std::nullopt, 0, 6), maybe(text("/"))});
  }

 private:
  Builder& builder_;
};

}  // namespace

std::optional<NodeId> string_of_format(Builder& builder, std::string_view format) {
  Pieces pieces(builder);
  std::optional<NodeId> inside;
  if (format == "date") inside = pieces.date();
  if (format == "time") inside = pieces.clock();
  if (format == "date-time") inside = pieces.all({pieces.date(), pieces.text("T"), pieces.clock()});
  if (format == "duration") inside = pieces.duration();
  if (format == "uri") inside = pieces.uri();
  if (format == "uuid") inside = pieces.uuid();
  if (format == "ipv4") inside = pieces.ipv4();
  if (format == "ipv6") inside = pieces.listed(pieces.hex(1, 4), ":", 8, 8);
  if (format == "hostname") inside = pieces.hostname();
  if (format == "email") inside = pieces.email();
  if (!inside) return std::nullopt;
  return builder.sequence({builder.literal("\""), *inside, builder.literal("\"")});
}

}  // namespace pagewise::grammar
