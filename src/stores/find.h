// SPDX-License-Identifier: Apache-2.0
// The models in all stores, and which of them a name means.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "stores/found_model.h"
#include "stores/location.h"
#include "stores/walk.h"

namespace pagewise::stores {

struct Findings {
  std::vector<FoundModel> models;  // by store, in it by name
  std::vector<Location> searched;  // those that are there
  std::vector<std::string> notes;  // "PATH: REASON" of what could not be looked at
};

/// Looks through the locations. Nothing of a model file is read. A location that is not there is
/// none of `searched`, and no error. Cost: `limits` for each.
Findings find_models(std::span<const Location> locations, const WalkLimits& limits = {});

/// The one model that `name` means; letters of either case. Of what fits best: the name as listed;
/// another whole name (a file's, with or without its folders and extension); NAME:TAG, where NAME
/// may leave out the owner; NAME alone. Names for the same file are one. Errors: kInvalidArgument
/// when several files fit equally well, with their names; kNotFound when none does, saying where
/// was looked and what comes near; kMalformed or kUnsupported when the entry leads to no file.
Result<FoundModel> resolve(const Findings& findings, std::string_view name);

}  // namespace pagewise::stores
