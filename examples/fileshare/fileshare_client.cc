// fileshare_client: lists and copies files of a fileshare_server. --help says how.
//
// Exit status: 0 done, 1 failed, 2 the command line is wrong.
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/str_format.h"
#include "core/clock.h"
#include "core/status.h"
#include "core/strings.h"
#include "examples/fileshare/client/copy.h"
#include "examples/fileshare/client/remote_folder.h"
#include "weft/channel.h"
#include "weft/engine.h"
#include "weft/path.h"
#include "weft/security.h"

ABSL_FLAG(std::string, server, "", "address of the server");
ABSL_FLAG(std::string, paths, "", "which paths to try: shm,tcp; empty: all there are");
ABSL_FLAG(uint32_t, outstanding, 8, "chunks of 1 MiB under way at once");
ABSL_FLAG(uint64_t, timeout_ms, 30'000, "for each call");
ABSL_FLAG(bool, crc, true, "a CRC32C over each chunk, both ways");

namespace fileshare::client {
namespace {

constexpr char kUsage[] =
    "fileshare_client --server=ADDRESS COMMAND\n"
    "  ls [PATH]                  what is in a folder of the server\n"
    "  cp remote:PATH LOCAL       a file, or all that is in a folder, from the server\n"
    "  cp LOCAL remote:PATH       the same to the server; \"remote:\" is the shared folder "
    "itself\n";
constexpr std::string_view kRemote = "remote:";
// The longest is a list of kMaxListEntries names.
constexpr uint64_t kMaxReplyBytes = 1 << 20;

// The path behind "remote:"; none: a local one.
std::optional<std::string> RemotePath(const std::string& word) {
  if (word.compare(0, kRemote.size(), kRemote) != 0) return std::nullopt;
  return word.substr(kRemote.size());
}

std::string ModeText(const FileInfo& info) {
  std::string text = info.is_folder ? "d" : "-";
  for (int bit = 8; bit >= 0; --bit) {
    text += ((info.mode >> bit) & 1) != 0 ? "xwr"[bit % 3] : '-';
  }
  return text;
}

absl::Status List(const RemoteFolder& remote, const std::string& path) {
  return remote.ForEach(path, [](const Entry& entry) {
    absl::PrintF("%s %12d  %s\n", ModeText(entry.info), entry.info.bytes, entry.name);
    return absl::OkStatus();
  });
}

std::string PathName(weft::Channel& channel) {
  const auto path = channel.path();
  return path.ok() ? std::string(weft::PathKindName(path->kind)) : "a lost connection";
}

absl::Status Copy(const RemoteFolder& remote, const std::string& source,
                  const std::string& destination) {
  const CopyOptions options = {absl::GetFlag(FLAGS_outstanding)};
  const uint64_t start_ns = weft::Clock::Real().NowNs();
  const auto from = RemotePath(source);
  WEFT_ASSIGN_OR_RETURN(const Copied copied,
                        from ? CopyFromServer(remote, *from, destination, options)
                             : CopyToServer(remote, source, *RemotePath(destination), options));
  const double seconds =
      static_cast<double>(weft::Clock::Real().NowNs() - start_ns) / weft::kNsPerSec;
  absl::PrintF("%d files in %d folders, %d bytes over %s in %.3f s: %.2f GB/s\n", copied.files,
               copied.folders, copied.bytes, PathName(remote.channel()), seconds,
               static_cast<double>(copied.bytes) / seconds * 1e-9);
  return absl::OkStatus();
}

using Security = std::optional<weft::SecurityOptions>;

absl::StatusOr<weft::ChannelOptions> OptionsFromFlags(const Security& security) {
  weft::ChannelOptions options;
  options.security = security;
  options.max_reply_bytes = kMaxReplyBytes;
  const std::string paths = absl::GetFlag(FLAGS_paths);
  if (!paths.empty()) {
    WEFT_ASSIGN_OR_RETURN(options.link.paths, weft::ParsePathList(paths));
  }
  return options;
}

// The engine has a thread of its own: it moves data while the lanes wait for the disk.
absl::Status Run(const std::vector<std::string>& words, const Security& security) {
  WEFT_ASSIGN_OR_RETURN(const weft::ChannelOptions options, OptionsFromFlags(security));
  WEFT_ASSIGN_OR_RETURN(const auto engine, weft::OpenNetworkEngine({}));
  WEFT_ASSIGN_OR_RETURN(const auto channel,
                        weft::Channel::Open(*engine, absl::GetFlag(FLAGS_server), options));
  const RemoteFolder remote(*channel,
                            {absl::GetFlag(FLAGS_timeout_ms) * 1000, absl::GetFlag(FLAGS_crc)});
  if (words[0] == "ls") return List(remote, words.size() > 1 ? words[1] : "");
  return Copy(remote, words[1], words[2]);
}

bool IsCommand(const std::vector<std::string>& words) {
  const uint32_t outstanding = absl::GetFlag(FLAGS_outstanding);
  if (absl::GetFlag(FLAGS_server).empty() || words.empty()) return false;
  if (outstanding < 1 || outstanding > kMaxOutstanding) return false;
  if (words[0] == "ls") return words.size() <= 2;
  return words[0] == "cp" && words.size() == 3 &&
         RemotePath(words[1]).has_value() != RemotePath(words[2]).has_value();
}

int Report(const absl::Status& status, int code) {
  if (status.ok()) return 0;
  absl::FPrintF(stderr, "fileshare_client: %s\n", status.ToString());
  return code;
}

int Main(const std::vector<char*>& arguments, const Security& security) {
  const std::vector<std::string> words(arguments.begin() + 1, arguments.end());
  if (!IsCommand(words)) {
    absl::FPrintF(stderr, "usage: %s", kUsage);
    return 2;
  }
  return Report(Run(words, security), 1);
}

}  // namespace
}  // namespace fileshare::client

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      weft::StrCat(fileshare::client::kUsage, "\n", weft::kSecurityFlagsHelp));
  const auto security = weft::TakeSecurityFlags(&argc, argv);
  if (!security.ok()) return fileshare::client::Report(security.status(), 2);
  return fileshare::client::Main(absl::ParseCommandLine(argc, argv), *security);
}
