// Memory of the server that a client reads, writes and adds to in place.
#include <iostream>
#include <memory>

#include "examples/guide/guide.weft.h"
#include "weft/channel.h"
#include "weft/memory.h"
#include "weft/remote_array.h"
#include "weft/server.h"

using guide::AccountLayout;  // the struct of `message Account`

constexpr size_t kAccounts = 1'000;

class Notes final : public guide::Notes::Service {
 public:
  explicit Notes(weft::ExportedMemory* accounts) : accounts_(*accounts) {}

 private:
  absl::Status OpenAccounts(weft::ServerContext&, const guide::OpenRequest&,
                            guide::OpenReply* reply) override {
    accounts_.handle(reply->mutable_accounts());  // whoever gets it may use the memory
    return absl::OkStatus();
  }

  weft::ExportedMemory& accounts_;
};

absl::Status Deposit(weft::Channel& channel) {
  guide::Notes::Stub stub(channel);
  guide::OpenReply opened;
  if (auto status = stub.OpenAccounts({}, &opened); !status.ok()) return status;
  auto accounts = weft::RemoteArray<AccountLayout>::Open(channel, opened.accounts());
  if (!accounts.ok()) return accounts.status();

  AccountLayout account = {};
  account.balance = 100;
  if (auto status = (*accounts)->Write(7, account); !status.ok()) return status;
  auto before = (*accounts)->FetchAdd(7, &AccountLayout::balance, 20);  // atomic at the owner
  if (!before.ok()) return before.status();
  if (auto status = (*accounts)->Read(7, &account); !status.ok()) return status;
  std::cout << "account 7: " << *before << ", then " << account.balance << std::endl;
  return absl::OkStatus();
}

absl::Status Run() {
  auto server = weft::Server::Create();
  if (!server.ok()) return server.status();
  auto accounts = (*server)->AllocateExport(kAccounts * sizeof(AccountLayout),
                                            weft::ExportAs<AccountLayout>(weft::kAllRights));
  if (!accounts.ok()) return accounts.status();
  Notes service(accounts->get());
  if (auto added = (*server)->AddService(&service); !added.ok()) return added;
  if (auto listening = (*server)->Listen("127.0.0.1:0"); !listening.ok()) return listening;

  auto channel = weft::Channel::Open((*server)->address());
  absl::Status status = channel.ok() ? Deposit(**channel) : channel.status();
  (*server)->Shutdown(/*grace_us=*/0);  // no handler uses the service any more
  return status;
}

int main() {
  absl::Status status = Run();
  if (!status.ok()) std::cerr << status << std::endl;
  return status.ok() ? 0 : 1;
}
