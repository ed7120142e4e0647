#include "bench/instructions/registrations.h"

#include "transport/control/network_transport.h"

namespace weft::bench {

uint64_t RegistrationsOf(const Transport& network) {
  return static_cast<const NetworkTransport&>(network).domain_stats().registrations;
}

}  // namespace weft::bench
