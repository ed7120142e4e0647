// Payloads that travel beside a call, from memory to memory.
#include "weft/bulk.h"

#include <algorithm>
#include <iostream>
#include <memory>

#include "examples/guide/guide.weft.h"
#include "weft/bytes.h"
#include "weft/channel.h"
#include "weft/memory.h"
#include "weft/server.h"

constexpr size_t kBytes = size_t{1} << 20;

// Holds one note of 1 MiB, in memory out of the server's registered pool.
class Notes final : public guide::Notes::Service {
 public:
  explicit Notes(weft::Buffer* note) : note_(*note) {}

 private:
  absl::Status Put(weft::ServerContext& context, const guide::PutRequest& request,
                   guide::PutReply*) override {
    context.bulk().Fetch(request.data(), note_.slice(), nullptr);  // the reply waits for it
    return absl::OkStatus();
  }
  absl::Status Get(weft::ServerContext& context, const guide::GetRequest&,
                   guide::GetReply* reply) override {
    context.bulk().Push(note_.slice(), reply->mutable_data(), nullptr);
    return absl::OkStatus();
  }

  weft::Buffer& note_;
};

absl::Status PutAndGet(weft::Channel& channel) {
  auto memory = channel.AllocateBuffer(2 * kBytes);
  if (!memory.ok()) return memory.status();
  const weft::MutableByteSpan sent = (*memory)->bytes().first(kBytes);
  std::fill(sent.begin(), sent.end(), std::byte{42});

  guide::Notes::Stub stub(channel);
  weft::BulkCall upload(channel);
  guide::PutRequest put;
  guide::PutReply put_reply;
  upload.Send((*memory)->slice(0, kBytes), put.mutable_data());
  if (auto done = stub.Put(put, &put_reply, {.bulk = &upload}); !done.ok()) return done;

  weft::BulkCall download(channel);
  guide::GetReply reply;
  download.Receive((*memory)->slice(kBytes, kBytes));
  if (auto done = stub.Get({}, &reply, {.bulk = &download}); !done.ok()) return done;
  auto received = download.Received(reply.data());  // length and CRC32C are right
  if (!received.ok()) return received.status();
  const bool same = std::equal(sent.begin(), sent.end(), received->begin(), received->end());
  std::cout << received->size() << " bytes came back" << (same ? "" : ", but others") << std::endl;
  return absl::OkStatus();
}

absl::Status Run() {
  auto server = weft::Server::Create();
  if (!server.ok()) return server.status();
  auto note = (*server)->AllocateBuffer(kBytes);
  if (!note.ok()) return note.status();
  Notes service(note->get());
  if (auto added = (*server)->AddService(&service); !added.ok()) return added;
  if (auto listening = (*server)->Listen("127.0.0.1:0"); !listening.ok()) return listening;

  auto channel = weft::Channel::Open((*server)->address());
  absl::Status status = channel.ok() ? PutAndGet(**channel) : channel.status();
  (*server)->Shutdown(/*grace_us=*/0);  // no handler uses the note any more
  return status;
}

int main() {
  absl::Status status = Run();
  if (!status.ok()) std::cerr << status << std::endl;
  return status.ok() ? 0 : 1;
}
