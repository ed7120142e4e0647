// Tells the service manager that has started this process how it is: sd_notify(3)'s protocol, for
// systemd units with Type=notify.
//
//   NotifyServiceManager("READY=1");
//
// Threads: any.
#pragma once

#include <string_view>

namespace examples {

// Nothing where there is no such manager (NOTIFY_SOCKET is not set), or where it does not listen:
// a service works all the same.
void NotifyServiceManager(std::string_view state);

}  // namespace examples
