// Servers in etcd: what joins rpc/server and rpc/naming.
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "core/status.h"
#include "core/strings.h"
#include "rpc/client/balancing.h"
#include "rpc/naming/etcd_lease.h"
#include "rpc/naming/etcd_source.h"
#include "rpc/operation/on_engine.h"
#include "rpc/server/registration.h"
#include "rpc/server/server.h"
#include "rpc/server/server_core.h"

namespace weft {
namespace {

constexpr uint64_t kShortestLeaseUs = 2'000'000;  // etcd grants none that is shorter
constexpr uint64_t kLongestLeaseUs = 3'600'000'000;

class EtcdRegistration final : public Registration {
 public:
  EtcdRegistration(EngineCore& engine, std::unique_ptr<EtcdLease> lease)
      : engine_(engine), lease_(std::move(lease)) {
    RunOnEngine(engine_, [this] { lease_->Start(); });
  }
  ~EtcdRegistration() override {
    RunOnEngine(engine_, [this] { lease_.reset(); });
  }

  void StartWithdrawal() override {
    PostOrDrive(engine_, [this] { lease_->Withdraw([this] { engine_.Finish(gone_); }); });
  }
  void AwaitWithdrawal() override { engine_.Wait(gone_); }

 private:
  EngineCore& engine_;
  std::unique_ptr<EtcdLease> lease_;
  Waiter gone_;
};

// What clients dial.
absl::StatusOr<std::string> DialedAddress(const Server& server,
                                          const RegistrationOptions& options) {
  if (!options.address.empty()) return options.address;
  std::string address = server.address();
  if (address.empty()) {
    return absl::FailedPreconditionError(
        "a server that does not listen has no address to register: call Listen() first, or set "
        "RegistrationOptions::address");
  }
  if (address.starts_with("0.0.0.0:") || address.starts_with("[::]:")) {
    return absl::InvalidArgumentError(
        StrCat("the server listens at ", address,
               ", which nobody can dial: set RegistrationOptions::address to this host's name, or "
               "an address of one interface, and the port"));
  }
  return address;
}

}  // namespace

absl::Status Server::Register(const std::string& target, const RegistrationOptions& options) {
  constexpr std::string_view kScheme = "etcd:";
  if (!std::string_view(target).starts_with(kScheme)) {
    return absl::InvalidArgumentError(
        StrCat("\"", target, "\" is no registry: write etcd:HOST:PORT/PREFIX"));
  }
  if (options.lease_us < kShortestLeaseUs || options.lease_us > kLongestLeaseUs) {
    return absl::InvalidArgumentError(StrCat("RegistrationOptions::lease_us is ", options.lease_us,
                                             "; ", kShortestLeaseUs, " to ", kLongestLeaseUs,
                                             " are allowed"));
  }
  WEFT_ASSIGN_OR_RETURN(
      const EtcdTarget parsed,
      ParseEtcdTarget(std::string_view(target).substr(kScheme.size()), options.etcd));
  WEFT_ASSIGN_OR_RETURN(const std::string address, DialedAddress(*this, options));
  const std::string value = options.zone.empty() ? address : StrCat(address, "@", options.zone);
  WEFT_ASSIGN_OR_RETURN(const ListedServer server, ParseListedServer(value));
  if (server.address != address || value.size() > EtcdSource::kMaxValueBytes) {
    return absl::InvalidArgumentError(
        StrCat("\"", value, "\" cannot be registered: it has more than ",
               EtcdSource::kMaxValueBytes, " bytes, or an @ that does not stand before a zone"));
  }
  if (cores_.front()->engine().forked()) return EngineCore::ForkedError();
  WEFT_RETURN_IF_ERROR(LoadCurlLibrary());
  constexpr absl::string_view kShutDown = "the server has been shut down";
  if (registrations_->withdrawn()) return absl::FailedPreconditionError(kShutDown);
  EngineCore& engine = cores_.front()->engine();
  const auto lease_s = static_cast<int64_t>((options.lease_us + 999'999) / 1'000'000);
  std::unique_ptr<Registration> registration = std::make_unique<EtcdRegistration>(
      engine,
      std::make_unique<EtcdLease>(engine, parsed, options.etcd, StrCat(parsed.prefix, address),
                                  value, lease_s, &registrations_->held()));
  // It may be shut down meanwhile.
  if (!registrations_->Add(registration)) return absl::FailedPreconditionError(kShutDown);
  return absl::OkStatus();
}

}  // namespace weft
