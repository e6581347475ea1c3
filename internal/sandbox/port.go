package sandbox

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// listen opens the port to serve at and remembers it in dir. A port of 0 means
// the remembered one, or a free one if there is none yet.
func listen(dir string, port int) (net.Listener, error) {
	file := filepath.Join(dir, portFile)
	advice := "choose another with --port, or 0 for a free one"
	if port == 0 {
		remembered, err := readPort(file)
		if err != nil {
			return nil, err
		}
		port = remembered
		advice = fmt.Sprintf("free it, or remove %s to have another chosen", file)
	}
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("port %d of 127.0.0.1 is in use by another process: %s", port, advice)
	}
	if err != nil {
		return nil, fmt.Errorf("open port %d of 127.0.0.1: %w", port, err)
	}
	if err := os.WriteFile(file, []byte(strconv.Itoa(portOf(listener))+"\n"), 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("remember the port: %w", err), listener.Close())
	}
	return listener, nil
}

// readPort returns the port remembered in file, 0 if there is no such file.
func readPort(file string) (int, error) {
	content, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the remembered port: %w", err)
	}
	text := strings.TrimSpace(string(content))
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("%s: %q is not a port number: remove the file to have another port chosen", file, text)
	}
	return int(port), nil
}

func portOf(listener net.Listener) int { return listener.Addr().(*net.TCPAddr).Port }
