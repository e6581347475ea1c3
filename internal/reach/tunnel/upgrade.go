package tunnel

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// maxRefusal is how much of the body of a refusal is read, in bytes.
const maxRefusal = 64 << 10

// HTTP is the version of HTTP that a client speaks whose connections are upgraded: HTTP/2 upgrades none. It is for rest.Config.NextProtos.
const HTTP = "http/1.1"

// Upgrade sends a request with a client that speaks HTTP/1.1, and has its connection upgraded to a protocol. The context is for the request
// alone, and not for the connection if that is made. A refusal is the error that a client of the API gets.
func Upgrade(ctx context.Context, client *http.Client, url, protocol string) (net.Conn, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Connection", "Upgrade")
	request.Header.Set("Upgrade", protocol)
	// A server in between may close, without a word, a connection over which it has refused an upgrade before. A key without a value is not
	// sent, and has the client take another connection then.
	request.Header["Idempotency-Key"] = nil
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusSwitchingProtocols {
		defer func() { _ = response.Body.Close() }()
		return nil, refusal(response)
	}
	conn, duplex := response.Body.(io.ReadWriteCloser)
	if got := response.Header.Get("Upgrade"); !duplex || got != protocol {
		_ = response.Body.Close()
		return nil, fmt.Errorf("the hub upgrades the connection to %q, not to %s", got, protocol)
	}
	return &upgraded{ReadWriteCloser: conn, remote: remote(request.URL.Host)}, nil
}

// refusal is the Status in a response, or an error that stands for it.
func refusal(response *http.Response) error {
	status := metav1.Status{}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxRefusal))
	if err == nil && json.Unmarshal(body, &status) == nil && status.Kind == "Status" {
		return &apierrors.StatusError{ErrStatus: status}
	}
	return apierrors.NewGenericServerResponse(response.StatusCode, "create", schema.GroupResource{Resource: "tunnel"}, "", string(body), 0, true)
}

// TakeOver upgrades the connection of a request to a protocol. If it fails, the caller has still to answer the request.
func TakeOver(w http.ResponseWriter, r *http.Request, protocol string) (net.Conn, error) {
	if r.Header.Get("Upgrade") != protocol || r.ProtoMajor != 1 {
		return nil, fmt.Errorf(`this takes an HTTP/1.1 request with the headers "Connection: Upgrade" and "Upgrade: %s"`, protocol)
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, fmt.Errorf("take the connection of the client over: %w", err)
	}
	if err := answer(conn, buffered.Writer, protocol); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("answer the client: %w", err)
	}
	return &hijacked{Conn: conn, buffered: buffered.Reader}, nil
}

func answer(conn net.Conn, w *bufio.Writer, protocol string) error {
	if err := conn.SetDeadline(time.Time{}); err != nil { // that of the server for requests
		return err
	}
	if _, err := fmt.Fprintf(w, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", protocol); err != nil {
		return err
	}
	return w.Flush()
}

// hijacked is a connection of which the server may have read something already.
type hijacked struct {
	net.Conn
	buffered *bufio.Reader
}

func (h *hijacked) Read(p []byte) (int, error) { return h.buffered.Read(p) }

// upgraded is a connection of which the client of HTTP does not show all. A deadline closes it, for reading and for writing.
type upgraded struct {
	io.ReadWriteCloser
	remote remote

	mu       sync.Mutex
	deadline *time.Timer
}

func (u *upgraded) LocalAddr() net.Addr                { return remote("") }
func (u *upgraded) RemoteAddr() net.Addr               { return u.remote }
func (u *upgraded) SetReadDeadline(t time.Time) error  { return u.SetDeadline(t) }
func (u *upgraded) SetWriteDeadline(t time.Time) error { return u.SetDeadline(t) }

func (u *upgraded) SetDeadline(t time.Time) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.deadline != nil {
		u.deadline.Stop()
	}
	if !t.IsZero() {
		u.deadline = time.AfterFunc(time.Until(t), func() { _ = u.Close() })
	}
	return nil
}

// remote is the server whose connection was upgraded.
type remote string

func (remote) Network() string  { return "tcp" }
func (r remote) String() string { return string(r) }
