package forwardproxy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
)

// answer is the header of what a proxy says to CONNECT.
type answer struct {
	code   int
	status string // the code and what it means, as in "403 Forbidden"
	header http.Header
}

// readAnswer reads the header and no further. Behind one that grants the tunnel, the tunnel starts: Transfer-Encoding and
// Content-Length mean nothing there (RFC 9110, section 9.3.6), which http.ReadResponse does not know. What a proxy says behind
// a refusal may take as long as the proxy likes, and no client waits for it.
func readAnswer(from *bufio.Reader) (*answer, error) {
	reader := textproto.NewReader(from)
	for {
		line, err := reader.ReadLine()
		if err != nil {
			return nil, explainEnd(err)
		}
		a, err := parseStatus(line)
		if err != nil {
			return nil, err
		}
		header, err := reader.ReadMIMEHeader()
		if err != nil {
			return nil, explainEnd(err)
		}
		a.header = http.Header(header)
		if a.code >= http.StatusOK {
			return a, nil
		} // one that is yet to come follows an interim answer
	}
}

func parseStatus(line string) (*answer, error) {
	protocol, status, _ := strings.Cut(line, " ")
	status = strings.TrimSpace(status)
	digits, _, _ := strings.Cut(status, " ")
	code, err := strconv.Atoi(digits)
	if _, _, ok := http.ParseHTTPVersion(protocol); !ok || err != nil || code < 100 || code > 999 {
		return nil, fmt.Errorf("it begins with %.40q, which is not HTTP/1.1; see whether proxy-url names an HTTP proxy", line)
	}
	return &answer{code: code, status: status}, nil
}

// explainEnd is for a proxy that goes away in the middle.
func explainEnd(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("it closed the connection before the end of the header; see whether it is an HTTP proxy, and what its log says: %w",
			err)
	}
	return err
}

func (a *answer) success() bool { return a.code/100 == 2 }

// otherSchemes are the authentication schemes that the proxy offers, if Basic is not among them.
func (a *answer) otherSchemes() string {
	var schemes []string
	for _, challenge := range a.header.Values("Proxy-Authenticate") {
		if strings.Contains(strings.ToLower(challenge), "basic") {
			return ""
		}
		scheme, _, _ := strings.Cut(strings.TrimSpace(challenge), " ")
		schemes = append(schemes, scheme)
	}
	return strings.Join(schemes, ", ")
}

// behindAnswer is the connection from where the reader is: a proxy may send bytes of the tunnel together with its header.
func behindAnswer(conn net.Conn, reader *bufio.Reader) (net.Conn, error) {
	early, err := reader.Peek(reader.Buffered())
	if err != nil || len(early) == 0 {
		return conn, err
	}
	return &resumed{Conn: conn, reader: io.MultiReader(bytes.NewReader(bytes.Clone(early)), conn)}, nil
}

// resumed is a connection of which some bytes have been read already.
type resumed struct {
	net.Conn
	reader io.Reader
}

// Read implements net.Conn.
func (r *resumed) Read(p []byte) (int, error) { return r.reader.Read(p) }
