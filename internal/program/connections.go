package program

import "os"

// connectionChecks are the environment variables by which client-go is told how soon it is to miss the other end of an HTTP/2 connection
// that was never closed, with our values in seconds: after 10 seconds in which nothing has come, it sends a ping, and gives the connection
// up if nothing comes for another 10. Its own values are 30 and 15. Pings pass over connections that are idle: of 10,000 agents that wait
// for something to do, a thousand a second, which a server answers without any work for its handlers. An answer may be late, from a busy
// server or over a poor network, and whoever gives up lists everything anew: so 10 seconds, not less. Where a hub has several
// addresses, package tcp has the kernel of an agent notice sooner that a machine is gone; pings find all else.
var connectionChecks = map[string]string{
	"HTTP2_READ_IDLE_TIMEOUT_SECONDS": "10",
	"HTTP2_PING_TIMEOUT_SECONDS":      "10",
}

// CheckConnections has clients of API servers, and programs that this one starts, notice within 20 seconds that a connection is dead. It is
// called before the first client is made. What the environment says already stays.
func CheckConnections() {
	for name, seconds := range connectionChecks {
		if os.Getenv(name) == "" {
			_ = os.Setenv(name, seconds) // it refuses only names and values that cannot be written
		}
	}
}
