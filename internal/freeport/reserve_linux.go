package freeport

import (
	"fmt"
	"io"
	"net"
)

// reserve fails if another process has reserved the port. A socket with an abstract name is no file: it goes with the process, however that
// ends, and it belongs to the network namespace, as the port does.
func reserve(port int) (io.Closer, error) {
	return net.Listen("unix", fmt.Sprintf("@capstan-port-%d", port))
}
