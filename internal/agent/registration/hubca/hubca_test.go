package hubca

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/internal/machinery/forwardproxy"
)

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func authority(t *testing.T, name string, notAfter time.Time) *x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-time.Hour),
		NotAfter: notAfter}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// R4: what the hub publishes is added to a bundle of the same hub, and to no other.
func TestJoin(t *testing.T) {
	t.Parallel()
	old, next, proxy := authority(t, "old", now.Add(time.Hour)), authority(t, "next", now.Add(time.Hour)),
		authority(t, "proxy", now.Add(time.Hour))
	expired := authority(t, "expired", now.Add(-time.Minute))
	type bundle = []*x509.Certificate
	for name, test := range map[string]struct{ trusted, published, want bundle }{
		"the same":                  {bundle{old}, bundle{old}, nil},
		"before a rotation":         {bundle{old}, bundle{old, next}, bundle{old, next}},
		"in another order":          {bundle{old, next}, bundle{next, old}, nil},
		"after a rotation":          {bundle{old, next}, bundle{next}, nil},
		"the CA of a proxy stays":   {bundle{old, proxy}, bundle{old, next}, bundle{old, proxy, next}},
		"what has expired goes":     {bundle{expired, old}, bundle{old, next}, bundle{old, next}},
		"the hub is behind another": {bundle{proxy}, bundle{old, next}, nil},
		"nothing is published":      {bundle{old}, nil, nil},
		"the machine's are trusted": {nil, bundle{old}, nil},
	} {
		got := join(encode(t, test.trusted), encode(t, test.published), now)
		if want := encode(t, test.want); !slices.Equal(got, want) {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
		}
	}
}

func encode(t *testing.T, certs []*x509.Certificate) []byte {
	t.Helper()
	if len(certs) == 0 {
		return nil
	}
	encoded, err := cert.EncodeCertificates(certs...)
	if err != nil {
		t.Fatal(err)
	}
	return encoded
}

// What is trusted for the proxy alone stays so over a rotation of the hub.
func TestJoinKeepsProxy(t *testing.T) {
	t.Parallel()
	old, next, proxy := authority(t, "old", now.Add(time.Hour)), authority(t, "next", now.Add(time.Hour)),
		authority(t, "proxy", now.Add(time.Hour))
	forProxy := forwardproxy.ForProxy(encode(t, []*x509.Certificate{proxy}))
	trusted := slices.Concat(forProxy, encode(t, []*x509.Certificate{old}))
	want := slices.Concat(encode(t, []*x509.Certificate{old, next}), forProxy)
	if got := join(trusted, encode(t, []*x509.Certificate{old, next}), now); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// unpublished is a hub that publishes nothing, and counts the requests.
type unpublished struct {
	client.Reader
	requests int
}

func (h *unpublished) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	h.requests++
	return apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, clusterInfo.Name)
}

// R4: an agent that has just registered has what the hub publishes, and reads as late as one that has read at its start reads again.
func TestFirstCheck(t *testing.T) {
	t.Parallel()
	for current, want := range map[bool]int{false: 1, true: 0} {
		synctest.Test(t, func(t *testing.T) {
			hub := &unpublished{}
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- (&Follower{hub: hub, current: current, clock: clock.RealClock{}}).Start(ctx) }()
			for _, want := range []int{want, want + 1} {
				synctest.Wait()
				if hub.requests != want {
					t.Errorf("current %t: asked %d times, want %d", current, hub.requests, want)
				}
				<-time.After(interval + interval/10)
			}
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}
