#include "bench/scale/scale_options.h"

#include <algorithm>
#include <iterator>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "core/status.h"
#include "core/strings.h"

namespace weft::bench {
namespace {

constexpr uint32_t kMaxConnections = 4000;  // two descriptors each, and Poller::kMaxDescriptors
constexpr uint32_t kMaxTransferMib = 64;    // a server lends one buffer of a pool
constexpr int kMaxRounds = 1000;
constexpr double kMinSeconds = 0.01;
constexpr double kMaxSeconds = 600;
constexpr int kQuickRounds = 3;
constexpr double kQuickSeconds = 0.3;

absl::Status Wrong(const std::string& name, const std::string& value, const std::string& wanted) {
  return absl::InvalidArgumentError(StrCat(name, ": \"", value, "\" is not ", wanted));
}

template <class Number>
bool IsWithin(Number value, Number low, Number high) {
  return value >= low && value <= high;
}

absl::Status SetValue(const std::string& name, const std::string& value, ScaleOptions* options) {
  if (name == "--paths") {
    WEFT_ASSIGN_OR_RETURN(options->paths, ParsePathList(value));
  } else if (name == "--connections") {
    if (!absl::SimpleAtoi(value, &options->connections) ||
        !IsWithin(options->connections, 2u, kMaxConnections)) {
      return Wrong(name, value, StrCat("a number from 2 to ", kMaxConnections));
    }
  } else if (name == "--repeat") {
    if (!absl::SimpleAtoi(value, &options->rounds) || !IsWithin(options->rounds, 1, kMaxRounds)) {
      return Wrong(name, value, StrCat("a number from 1 to ", kMaxRounds));
    }
  } else if (name == "--seconds") {
    if (!absl::SimpleAtod(value, &options->seconds) ||
        !IsWithin(options->seconds, kMinSeconds, kMaxSeconds)) {
      return Wrong(name, value, StrCat("a number from ", kMinSeconds, " to ", kMaxSeconds));
    }
    options->idle_seconds = options->seconds * 5;
  } else if (name == "--transfer-mib") {
    uint32_t mib = 0;
    if (!absl::SimpleAtoi(value, &mib) || !IsWithin(mib, 1u, kMaxTransferMib)) {
      return Wrong(name, value, StrCat("a number from 1 to ", kMaxTransferMib));
    }
    options->transfer_bytes = mib << 20;
  } else {
    options->json_file = value;
  }
  return absl::OkStatus();
}

bool TakesValue(const std::string& name) {
  return name == "--paths" || name == "--connections" || name == "--repeat" ||
         name == "--seconds" || name == "--transfer-mib" || name == "--json";
}

bool IsProgram(const std::string& name) {
  return std::find(std::begin(kScalePrograms), std::end(kScalePrograms), name) !=
         std::end(kScalePrograms);
}

}  // namespace

absl::StatusOr<ScaleOptions> ParseScaleOptions(const std::vector<std::string>& arguments) {
  ScaleOptions options;
  if (std::find(arguments.begin(), arguments.end(), "--quick") != arguments.end()) {
    options.rounds = kQuickRounds;
    options.seconds = kQuickSeconds;
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    const size_t equals = arguments[i].find('=');
    const std::string name = arguments[i].substr(0, equals);
    if (name == "--help" || name == "-h") {
      options.help = true;
    } else if (TakesValue(name)) {
      std::string value;
      if (equals != std::string::npos) value = arguments[i].substr(equals + 1);
      if (equals == std::string::npos && i + 1 < arguments.size()) value = arguments[++i];
      if (value.empty()) return absl::InvalidArgumentError(name + ": a value is missing");
      WEFT_RETURN_IF_ERROR(SetValue(name, value, &options));
    } else if (IsProgram(name)) {
      options.programs.push_back(name);
    } else if (name != "--quick") {
      return absl::InvalidArgumentError(StrCat("unknown argument ", arguments[i],
                                               "; the programs are ",
                                               absl::StrJoin(kScalePrograms, ", ")));
    }
  }
  if (options.programs.empty()) {
    options.programs.assign(std::begin(kScalePrograms), std::end(kScalePrograms));
  }
  return options;
}

}  // namespace weft::bench
