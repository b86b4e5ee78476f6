// SPDX-License-Identifier: Apache-2.0
#include "grammar/matcher.h"

#include <utility>

#include "base/check.h"
#include "grammar/automaton.h"

namespace pagewise::grammar {

Matcher::Matcher(std::shared_ptr<const Grammar> grammar, std::size_t bytes_max)
    : automaton_(std::make_unique<Automaton>(std::move(grammar), bytes_max)) {}
Matcher::Matcher(const Matcher& other)
    : automaton_(std::make_unique<Automaton>(*other.automaton_)) {}
Matcher& Matcher::operator=(const Matcher& other) {
  if (this != &other) automaton_ = std::make_unique<Automaton>(*other.automaton_);
  return *this;
}
Matcher::Matcher(Matcher&&) noexcept = default;
Matcher& Matcher::operator=(Matcher&&) noexcept = default;
Matcher::~Matcher() = default;

bool Matcher::accept(std::string_view bytes) {
  Automaton& automaton = *automaton_;
  std::vector<Automaton::State>& live = automaton.live();
  live.assign(1, automaton.current());
  for (const char c : bytes) {
    const Automaton::State next = automaton.step(live[0], static_cast<uint8_t>(c));
    if (next == Automaton::kDead) return false;
    live[0] = next;
  }
  automaton.set_current(live[0]);
  return true;
}

bool Matcher::may_end() const { return automaton_->may_end(automaton_->current()); }
bool Matcher::must_end() const { return automaton_->must_end(automaton_->current()); }

}  // namespace pagewise::grammar
