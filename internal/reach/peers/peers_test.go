package peers

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	certutil "k8s.io/client-go/util/cert"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/reach/api"
	"github.com/capstan-io/capstan/internal/reach/tunnel"
)

// process is one that has a tunnel to c1, or none, and says its name to who opens a stream.
func process(t *testing.T, name string, has bool) *httptest.Server {
	t.Helper()
	return httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if want := api.Path(api.Standalone, "c1", fleet.SubresourceStream); r.URL.Path != want || r.Header.Get("Authorization") != "Bearer secret" {
			t.Errorf("asked for %s with %v", r.URL.Path, r.Header)
		}
		if !has {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
			return
		}
		conn, err := tunnel.TakeOver(w, r, api.ProtocolStream)
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(conn, name)
		_ = conn.Close()
	}))
}

// selfSigned is a certificate for the name of the hub that the hub knows nothing of.
func selfSigned(t *testing.T) ([]byte, tls.Certificate) {
	t.Helper()
	chain, key, err := certutil.GenerateSelfSignedCertKey("example.com", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(chain, key)
	if err != nil {
		t.Fatal(err)
	}
	return chain, pair
}

func addressOf(s *httptest.Server) string { return s.Listener.Addr().String() }

func leaseOf(address string, renewed time.Time) *coordinationv1.Lease {
	at := metav1.NewMicroTime(renewed)
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "hub", Name: LeaseOf(address),
		Labels: map[string]string{fleet.LabelTunnelServer: fleet.LabelTrue}},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &address, RenewTime: &at}}
}

// CP-03: the process that has the tunnel is found, whatever is wrong with others, and none gets a credential that is not of this hub.
func TestDial(t *testing.T) {
	t.Parallel()
	first, second := process(t, "first", true), process(t, "second", false)
	closed := process(t, "closed", true)
	closed.Close()
	var reached atomic.Bool
	impostor := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Store(true) }))
	impostor.Config.ErrorLog = log.New(io.Discard, "", 0)
	_, own := selfSigned(t)
	impostor.TLS = &tls.Config{Certificates: []tls.Certificate{own}}
	impostor.StartTLS()
	t.Cleanup(first.Close)
	t.Cleanup(second.Close)
	t.Cleanup(impostor.Close)
	roots := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: first.Certificate().Raw})
	for name, test := range map[string]struct {
		others []*httptest.Server
		want   string
		cause  string
	}{
		"nobody":              {nil, "", ""},
		"one that has it":     {[]*httptest.Server{second, first}, "first", ""},
		"one that has it not": {[]*httptest.Server{second}, "", ""},
		"one that has gone":   {[]*httptest.Server{closed, first}, "first", ""},
		"only one that has gone": {[]*httptest.Server{closed, second}, "",
			"ask the process at " + addressOf(closed) + " for cluster c1: "},
		"an impostor": {[]*httptest.Server{impostor, first}, "first", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := New(Options{Version: api.Standalone, Address: "192.0.2.1:9443", Access: func(context.Context) (*rest.Config, error) {
				return &rest.Config{Host: "https://example.com", BearerToken: "secret", TLSClientConfig: rest.TLSClientConfig{CAData: roots}}, nil
			}})
			for _, other := range test.others {
				p.observe(leaseOf(addressOf(other), time.Now()))
			}
			conn, err := p.Dial(t.Context(), "c1")
			if test.want == "" {
				if !errors.Is(err, ErrNotThere) || (err == ErrNotThere) != (test.cause == "") || !strings.Contains(err.Error(), test.cause) { //nolint:errorlint // which it is alone
					t.Errorf("%v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(conn); err != nil || string(got) != test.want {
				t.Errorf("%q answers, %v", got, err)
			}
		})
	}
	t.Cleanup(func() {
		if reached.Load() {
			t.Error("somebody who only has a Lease is asked")
		}
	})
}

// CP-03: processes reach each other whatever proxy the environment names, and its password goes to none of them. A process reads the
// environment once: this is about another process.
func TestDialLeavesTheProxyOfTheEnvironmentOut(t *testing.T) {
	t.Parallel()
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestDial$", "-test.v")
	child.Env = append(os.Environ(), "HTTPS_PROXY=http://user:password@127.0.0.1:1", "NO_PROXY=", "no_proxy=")
	if out, err := child.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestDial") {
		t.Errorf("%v\n%s", err, out)
	}
}

// CP-03: without the credential there is no stream, and with one that is renewed there are.
func TestAccess(t *testing.T) {
	t.Parallel()
	other := process(t, "other", true)
	t.Cleanup(other.Close)
	roots := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: other.Certificate().Raw})
	clock := clocktesting.NewFakeClock(time.Now())
	say := func() (*rest.Config, error) { return nil, errors.New("not yet") }
	p := New(Options{Version: api.Standalone, Clock: clock, Access: func(context.Context) (*rest.Config, error) { return say() }})
	later := func() {
		clock.Step(trustFor)
		p.observe(leaseOf(addressOf(other), clock.Now()))
	}
	later()
	if _, err := p.Dial(t.Context(), "c1"); err == nil || !strings.Contains(err.Error(), "not yet") {
		t.Errorf("%v", err)
	}
	with := func(ca []byte) func() (*rest.Config, error) {
		return func() (*rest.Config, error) {
			return &rest.Config{Host: "https://example.com", BearerToken: "secret", TLSClientConfig: rest.TLSClientConfig{CAData: ca}}, nil
		}
	}
	another, _ := selfSigned(t)
	say = with(another)
	if _, err := p.Dial(t.Context(), "c1"); !errors.Is(err, ErrNotThere) || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("with another CA: %v", err)
	}
	say = with(roots)
	later()
	if _, err := p.Dial(t.Context(), "c1"); err != nil {
		t.Error(err)
	}
	say = func() (*rest.Config, error) { return nil, errors.New("no answer") }
	later()
	if _, err := p.Dial(t.Context(), "c1"); err != nil {
		t.Errorf("while nobody says what has changed: %v", err)
	}
	// Who leaves when it is known has no stream, and the next one has it.
	first := New(Options{Version: api.Standalone, Clock: clock})
	gone, end := context.WithCancel(t.Context())
	first.Access = func(context.Context) (*rest.Config, error) {
		end()
		return with(roots)()
	}
	first.observe(leaseOf(addressOf(other), clock.Now()))
	if _, err := first.Dial(gone, "c1"); !errors.Is(err, context.Canceled) {
		t.Errorf("somebody who has left: %v", err)
	}
	if conn, err := first.Dial(t.Context(), "c1"); err != nil {
		t.Error(err)
	} else {
		_ = conn.Close()
	}
	// Who leaves while it is found out leaves that to the next one.
	left, leave := context.WithCancel(t.Context())
	say = func() (*rest.Config, error) {
		leave()
		return nil, left.Err()
	}
	later()
	if conn, err := p.Dial(left, "c1"); err == nil {
		_ = conn.Close()
	}
	say = with(another)
	if _, err := p.Dial(t.Context(), "c1"); !errors.Is(err, ErrNotThere) || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("with another CA, after somebody has left: %v", err)
	}
}

// CP-03: a process whose certificate is new is asked once more, with what verifies it now. That is read once a second at most.
func TestRenewedCertificate(t *testing.T) {
	t.Parallel()
	other := process(t, "other", true)
	t.Cleanup(other.Close)
	clock, reads := clocktesting.NewFakeClock(time.Now()), 0
	ca, _ := selfSigned(t)
	p := New(Options{Version: api.Standalone, Clock: clock, Access: func(context.Context) (*rest.Config, error) {
		reads++
		return &rest.Config{Host: "https://example.com", BearerToken: "secret", TLSClientConfig: rest.TLSClientConfig{CAData: ca}}, nil
	}})
	p.observe(leaseOf(addressOf(other), clock.Now()))
	for range 3 {
		if _, err := p.Dial(t.Context(), "c1"); !errors.Is(err, ErrNotThere) || !strings.Contains(err.Error(), "certificate") {
			t.Errorf("with the CA of before: %v", err)
		}
	}
	if reads != 1 {
		t.Errorf("in the same moment, the CA is read %d times", reads)
	}
	ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: other.Certificate().Raw})
	clock.Step(doubtedFor)
	conn, err := p.Dial(t.Context(), "c1")
	if err != nil || reads != 2 {
		t.Fatalf("with a new CA, which is read %d times: %v", reads, err)
	}
	_ = conn.Close()
}

// CP-03: a process announces itself to the others until it ends, and knows them while they renew their Leases.
func TestLeases(t *testing.T) {
	t.Parallel()
	clock, leases := clocktesting.NewFakeClock(time.Now()), fake.NewClientset()
	p := New(Options{Address: "192.0.2.1:9443", Namespace: "hub", Clock: clock})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- p.Run(ctx, leases) }()
	api := leases.CoordinationV1().Leases("hub")
	until(t, func() bool {
		own, err := api.Get(ctx, LeaseOf(p.Address), metav1.GetOptions{})
		return err == nil && *own.Spec.HolderIdentity == p.Address && own.Labels[fleet.LabelTunnelServer] == fleet.LabelTrue
	})
	create := func(l *coordinationv1.Lease) {
		if _, err := api.Create(ctx, l, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	// The clocks of others are none of its business.
	create(leaseOf("192.0.2.2:9443", time.Now().Add(-time.Hour)))
	create(leaseOf("192.0.2.3:9443", time.Now().Add(time.Hour)))
	until(t, func() bool { return len(p.live()) == 2 })
	if err := api.Delete(ctx, LeaseOf("192.0.2.3:9443"), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, func() bool { return len(p.live()) == 1 })
	clock.Step(silentFor)
	if left := p.live(); len(left) > 0 {
		t.Errorf("%v are silent", left)
	}
	if _, err := api.Update(ctx, leaseOf("192.0.2.2:9443", time.Now()), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, func() bool { return len(p.live()) == 1 })
	until(t, func() bool { // the Lease goes, at the next look
		clock.Step(forgottenAfter)
		all, err := api.List(ctx, metav1.ListOptions{})
		return err == nil && len(all.Items) == 1
	})
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if all, err := api.List(t.Context(), metav1.ListOptions{}); err != nil || len(all.Items) > 0 {
		t.Errorf("at the end there are %d Leases, %v", len(all.Items), err)
	}
}

// CP-03: a process that was stopped for a while knows Leases as they were before. It deletes none that has been renewed since.
func TestOldLeases(t *testing.T) {
	t.Parallel()
	clock, leases := clocktesting.NewFakeClock(time.Now()), fake.NewClientset()
	p := New(Options{Address: "192.0.2.1:9443", Namespace: "hub", Clock: clock})
	seen := leaseOf("192.0.2.2:9443", time.Now())
	for _, version := range []string{"1", "2"} {
		seen.ResourceVersion = version
		p.observe(seen)
	}
	clock.Step(forgottenAfter)
	var deletions []clienttesting.DeleteActionImpl
	leases.PrependReactor("delete", "leases", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if deletion, is := action.(clienttesting.DeleteActionImpl); is {
			deletions = append(deletions, deletion)
		}
		return true, nil, nil
	})
	p.deleteSilent(t.Context(), leases)
	if len(deletions) != 1 || deletions[0].Name != seen.Name {
		t.Fatalf("it deletes %v", deletions)
	}
	if only := deletions[0].DeleteOptions.Preconditions; only == nil || only.ResourceVersion == nil || *only.ResourceVersion != "2" {
		t.Errorf("it deletes whatever the Lease is by now: %v", only)
	}
}

// CP-03: of several that open a stream, one is taken, and the others are closed.
func TestFirst(t *testing.T) {
	t.Parallel()
	answers := make(chan answer, 2)
	ours, late := net.Pipe()
	taken, _ := net.Pipe()
	answers <- answer{conn: taken}
	got, err := first(answers, 2)
	if err != nil || got != taken {
		t.Fatal(got, err)
	}
	answers <- answer{conn: late}
	if _, err := ours.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the other stream is open: %v", err)
	}
}

func until(t *testing.T, condition func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true,
		func(context.Context) (bool, error) { return condition(), nil })
	if err != nil {
		t.Fatal(err)
	}
}
