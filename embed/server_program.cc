#include "embed/server_program.h"

#include <csignal>
#include <cstdio>
#include <optional>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/flags/usage_config.h"
#include "absl/strings/str_format.h"
#include "core/status.h"
#include "core/strings.h"
#include "weft/authorization.h"
#include "weft/path.h"
#include "weft/security.h"

ABSL_FLAG(std::string, listen, "127.0.0.1:0",
          "address to serve at: host:port, [v6]:port or unix:/path; port 0: any free one");
ABSL_FLAG(std::string, paths, "",
          "paths that clients may use: shm,tcp; empty: WEFT_PATHS or all there are");
ABSL_FLAG(uint32_t, buffer_mib, 256,
          "memory for payloads under way, in MiB, of which each client takes 2 at least; beyond it "
          "clients have to wait");
ABSL_FLAG(uint32_t, max_connections, 256, "further clients are refused");
ABSL_FLAG(uint32_t, max_connections_of_one, 0,
          "connections of one client (by certificate, else user or address); 0: all but an eighth, "
          "which is for clients with less than their share");
ABSL_FLAG(uint32_t, spin_us, 50,
          "how long to look for work before sleeping; more answers sooner and costs CPU");
ABSL_FLAG(std::string, policy, "",
          "file with rules, who may call what (docs/guide.md): weft.embed.wire.SERVICE/METHOD ...");

namespace weft::embed {
namespace {

constexpr uint64_t kGraceUs = 5'000'000;  // for what is under way, when it is told to stop
constexpr uint32_t kMaxBufferMib = 64 << 10;

absl::Status CheckFlags() {
  const uint32_t mib = absl::GetFlag(FLAGS_buffer_mib);
  if (mib >= 2 && mib <= kMaxBufferMib) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat("--buffer_mib: 2 to ", kMaxBufferMib));
}

absl::StatusOr<ServerOptions> OptionsOf(const ServerProgram& program,
                                        const std::optional<SecurityOptions>& security,
                                        Authorizer* authorizer) {
  ServerOptions options;
  program.limit(&options);
  options.name = program.name;
  options.security = security;
  options.authorizer = authorizer;
  options.max_connections = absl::GetFlag(FLAGS_max_connections);
  options.max_connections_of_one = absl::GetFlag(FLAGS_max_connections_of_one);
  const std::string paths = absl::GetFlag(FLAGS_paths);
  if (!paths.empty()) {
    WEFT_ASSIGN_OR_RETURN(options.link.paths, ParsePathList(paths));
  }
  return options;
}

absl::StatusOr<std::unique_ptr<PolicyFile>> PolicyOrNone() {
  const std::string file = absl::GetFlag(FLAGS_policy);
  if (file.empty()) return std::unique_ptr<PolicyFile>();
  return PolicyFile::Open(file);
}

absl::Status Serve(const ServerProgram& program, const std::vector<std::string>& words,
                   const std::optional<SecurityOptions>& security) {
  sigset_t stop;  // before any thread: all inherit it
  sigemptyset(&stop);
  sigaddset(&stop, SIGINT);
  sigaddset(&stop, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &stop, nullptr);
  WEFT_ASSIGN_OR_RETURN(const auto policy, PolicyOrNone());
  WEFT_ASSIGN_OR_RETURN(const ServerOptions options, OptionsOf(program, security, policy.get()));
  EngineOptions engine_options;
  engine_options.name = program.name;
  engine_options.spin_ns = uint64_t{1000} * absl::GetFlag(FLAGS_spin_us);
  WEFT_ASSIGN_OR_RETURN(const auto engine, OpenNetworkEngine(engine_options));
  BufferPoolOptions pool_options;
  pool_options.max_bytes = uint64_t{absl::GetFlag(FLAGS_buffer_mib)} << 20;
  BufferPool buffers(engine.get(), pool_options);
  WEFT_ASSIGN_OR_RETURN(const auto served, program.open(words, *engine, buffers));
  WEFT_ASSIGN_OR_RETURN(const auto server, Server::Create(*engine, options));
  WEFT_RETURN_IF_ERROR(served->AddTo(*server));
  WEFT_RETURN_IF_ERROR(server->Listen(absl::GetFlag(FLAGS_listen)));
  absl::PrintF("listening on %s\n", server->address());
  std::fflush(stdout);
  int signal = 0;
  while (sigwait(&stop, &signal) != 0) {
  }
  served->End();
  server->Shutdown(kGraceUs);
  const ServerStats stats = server->stats();
  absl::PrintF("served %d requests: %d ok, %d failed; %d broken connections\n", stats.requests,
               stats.replies_ok, stats.replies_failed, stats.protocol_errors);
  return absl::OkStatus();
}

int Report(const ServerProgram& program, const absl::Status& status, int code) {
  if (status.ok()) return 0;
  absl::FPrintF(stderr, "%s: %s (%s --help)\n", program.name, status.ToString(), program.name);
  return code;
}

}  // namespace

int RunServerProgram(int argc, char** argv, const ServerProgram& program) {
  absl::SetProgramUsageMessage(StrCat(program.usage, "\n\n", kSecurityFlagsHelp));
  // --help tells of the program's own flags and of those above.
  absl::FlagsUsageConfig usage;
  usage.contains_help_flags = [](absl::string_view file) {
    return file.find("embed/") != absl::string_view::npos;
  };
  absl::SetFlagsUsageConfig(usage);
  const auto security = TakeSecurityFlags(&argc, argv);
  if (!security.ok()) return Report(program, security.status(), 2);
  const std::vector<char*> parsed = absl::ParseCommandLine(argc, argv);
  const std::vector<std::string> words(parsed.begin() + 1, parsed.end());
  absl::Status right = CheckFlags();
  if (right.ok()) right = program.check(words);
  if (!right.ok()) return Report(program, right, 2);
  return Report(program, Serve(program, words, *security), 1);
}

}  // namespace weft::embed
