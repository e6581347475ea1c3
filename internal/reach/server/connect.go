package server

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"strings"
)

const (
	// maxReason is how much an agent says about why it does not connect, in bytes.
	maxReason = 4 << 10
	// maxHeader is how long the header of an answer of an agent may be, in bytes.
	maxHeader = 64 << 10
)

// connect requests at the other end of the connection one to an address.
func connect(conn net.Conn, address string) (net.Conn, error) {
	request := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: address}, Host: address, Header: http.Header{}}
	if err := request.Write(conn); err != nil {
		return nil, err
	}
	limited := &io.LimitedReader{R: conn, N: maxHeader}
	reader := bufio.NewReader(limited)
	response, err := http.ReadResponse(reader, request)
	if err != nil {
		if limited.N <= 0 {
			err = fmt.Errorf("the header of the answer of the agent has more than %d bytes", maxHeader)
		}
		return nil, err
	}
	limited.N = math.MaxInt64
	if response.StatusCode != http.StatusOK {
		defer func() { _ = response.Body.Close() }()
		reason, _ := io.ReadAll(io.LimitReader(response.Body, maxReason))
		return nil, fmt.Errorf("the agent answers %s: %s", response.Status, strings.TrimSpace(string(reason)))
	}
	return &answered{Conn: conn, reader: reader}, nil
}

// answered is a connection of which more than the answer may have been read.
type answered struct {
	net.Conn
	reader *bufio.Reader
}

func (a *answered) Read(p []byte) (int, error) { return a.reader.Read(p) }
