package bootstrap

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/agent/registration/hubkubeconfig"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// signingHub signs every request at once, and accepts no cluster: it calls waits when an agent starts to wait for that.
type signingHub struct {
	*testing.T
	waits func()

	mu       sync.Mutex
	requests []*certificatesv1.CertificateSigningRequest
}

func (h *signingHub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_, resource, _ := strings.Cut(r.URL.Path, "/v1/")
	switch watches := r.URL.Query().Get("watch") != ""; {
	case r.Method == http.MethodPost && resource == "certificatesigningrequests":
		csr := &certificatesv1.CertificateSigningRequest{}
		h.read(r, csr)
		csr.Name, csr.ResourceVersion = "request", "1"
		h.requests = append(h.requests, csr)
		h.answer(w, csr)
	case watches && resource == "certificatesigningrequests":
		signed := h.requests[len(h.requests)-1].DeepCopy()
		signed.TypeMeta = metav1.TypeMeta{APIVersion: certificatesv1.SchemeGroupVersion.String(), Kind: "CertificateSigningRequest"}
		signed.Status.Certificate = h.sign(signed.Spec.Request)
		h.answer(w, map[string]any{"type": "MODIFIED", "object": signed})
	case watches:
		h.waits()
	case resource == "selfsubjectaccessreviews":
		h.answer(w, &authorizationv1.SelfSubjectAccessReview{Status: authorizationv1.SubjectAccessReviewStatus{Allowed: true}})
	case r.Method == http.MethodPost:
		h.answer(w, &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "cluster1"}})
	default:
		w.WriteHeader(http.StatusNotFound)
		h.answer(w, &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound})
	}
}

func (h *signingHub) read(r *http.Request, into runtime.Object) {
	body, err := io.ReadAll(r.Body)
	if err == nil {
		_, _, err = scheme.Codecs.UniversalDeserializer().Decode(body, nil, into)
	}
	if err != nil {
		h.Error(err)
	}
}

func (h *signingHub) answer(w io.Writer, body any) {
	if err := json.NewEncoder(w).Encode(body); err != nil {
		h.Error(err)
	}
}

func (h *signingHub) sign(encoded []byte) []byte {
	key, _, err := hubkubeconfig.NewKey()
	if err != nil {
		h.Error(err)
		return nil
	}
	block, _ := pem.Decode(encoded)
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		h.Error(err)
		return nil
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: request.Subject, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, request.PublicKey, key)
	if err != nil {
		h.Error(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// leaveFor has an agent leave its hub, where there is a second one.
func leaveFor(t *testing.T, b *Bootstrap, second *clientcmdapi.Config) {
	t.Helper()
	b.Record = func(string, string, string, string, ...any) {}
	b.Kubeconfigs = append(b.Kubeconfigs, filepath.Join(t.TempDir(), "second"))
	if err := clientcmd.WriteToFile(*second, b.Kubeconfigs[1]); err != nil {
		t.Fatal(err)
	}
	b.Leave(false)
}

// RG-12: an agent that turns to another hub requests one certificate of it. When it is issued and the hub has not accepted the cluster yet,
// the agent goes on with it.
func TestCertificateBeforeAcceptance(t *testing.T) {
	t.Parallel()
	first := newHub(t, http.StatusInternalServerError)
	hub := &signingHub{T: t}
	second := serve(t, hub.ServeHTTP)
	b, _ := registered(t, first, first)
	leaveFor(t, b, second)
	attempt := func() error {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		hub.mu.Lock()
		hub.waits = cancel
		hub.mu.Unlock()
		return b.attempt(ctx)
	}
	if err := attempt(); err == nil {
		t.Fatal("the hub has accepted the cluster")
	}
	if err := attempt(); err != nil {
		t.Errorf("the agent does not go on with the certificate: %v", err)
	}
	hub.mu.Lock()
	defer hub.mu.Unlock()
	if len(hub.requests) != 1 {
		t.Errorf("%d requests of a certificate", len(hub.requests))
	}
	if credential, err := b.Store.Load(); err != nil || credential.MadeFor(second) != nil {
		t.Errorf("the credential is not for the second hub: %v", err)
	}
}

// RG-12: an agent whose ManagedCluster is deleted while it waits creates it again, and requests another certificate: requests for a former
// ManagedCluster do not count when it is accepted.
func TestRequestForACreatedAgain(t *testing.T) {
	t.Parallel()
	first := newHub(t, http.StatusInternalServerError)
	hub := &signingHub{T: t}
	second := serve(t, hub.ServeHTTP)
	b, _ := registered(t, first, first)
	leaveFor(t, b, second)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	watches := 0
	hub.waits = func() { // under the lock; a watch without an event is one of a ManagedCluster that is gone
		if watches++; watches > 1 {
			cancel()
		}
	}
	if err := b.attempt(ctx); err == nil {
		t.Error("the hub has accepted the cluster")
	}
	hub.mu.Lock()
	defer hub.mu.Unlock()
	if len(hub.requests) != 2 || bytes.Equal(hub.requests[0].Spec.Request, hub.requests[1].Spec.Request) {
		t.Errorf("%d requests of a certificate, or the same one twice", len(hub.requests))
	}
}

// RG-12: an agent goes back to the hub that it has left once that answers to the agent's own credential and does not deny the cluster,
// whether or not bootstrap credentials have expired and another hub lets the cluster wait. With one that no longer knows the cluster it
// registers again, if no other would have it.
func TestBackToTheHubThatWasLeft(t *testing.T) {
	t.Parallel()
	denied := &clusterv1.ManagedCluster{}
	meta.SetStatusCondition(&denied.Status.Conditions,
		metav1.Condition{Type: fleet.ConditionHubAccepted, Status: metav1.ConditionFalse, Reason: "R"})
	for name, test := range map[string]struct {
		status int
		body   any
		waits  bool
		asks   bool
		back   bool
	}{
		"still down":                        {status: http.StatusInternalServerError},
		"has no such cluster":               {status: http.StatusNotFound},
		"lets it register, and no other":    {status: http.StatusForbidden, asks: true},
		"still denies the cluster":          {status: http.StatusOK, body: denied},
		"answers":                           {status: http.StatusOK, body: &clusterv1.ManagedCluster{}, back: true},
		"answers while another one decides": {status: http.StatusOK, body: &clusterv1.ManagedCluster{}, waits: true, back: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			undecided, asked := &signingHub{T: t, waits: cancel}, &signingHub{T: t, waits: cancel}
			second := newHub(t, http.StatusUnauthorized)
			if test.waits {
				second = serve(t, undecided.ServeHTTP)
			}
			first := serve(t, func(w http.ResponseWriter, r *http.Request) {
				switch hasToken := r.Header.Get("Authorization") != ""; {
				case hasToken && test.asks:
					asked.ServeHTTP(w, r)
					return
				case hasToken:
					w.WriteHeader(http.StatusUnauthorized)
					return
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(test.status)
				undecided.answer(w, test.body)
			})
			b, _ := registered(t, first, first)
			leaveFor(t, b, second)
			if err := b.attempt(ctx); (err == nil) != test.back {
				t.Errorf("attempt: %v", err)
			}
			if credential, err := b.Store.Load(); err != nil || credential.MadeFor(first) != nil {
				t.Errorf("the credential is not for the first hub: %v", err)
			}
			asked.mu.Lock()
			defer asked.mu.Unlock()
			if (len(asked.requests) > 0) != test.asks {
				t.Errorf("%d requests of a certificate on the first hub", len(asked.requests))
			}
		})
	}
}

// RG-03 RG-12: whether a hub would have the cluster is asked with the CA that the hub has moved on to since the bootstrap kubeconfig was
// made.
func TestChooseWithNewerCA(t *testing.T) {
	t.Parallel()
	hub := &signingHub{T: t}
	now := serve(t, hub.ServeHTTP)
	_, other := registered(t, now, now)
	before := now.DeepCopy()
	before.Clusters["hub"].CertificateAuthorityData = other.Certificate
	b, _ := registered(t, before, before)
	candidates := b.candidates()
	if err := b.wouldHave(t.Context(), &candidates[0]); err == nil {
		t.Error("the hub is trusted with another CA")
	}
	err := b.Store.Update(t.Context(), func(c hubkubeconfig.Credential) (*hubkubeconfig.Credential, error) {
		return c.WithTrustBundle(now.Clusters["hub"].CertificateAuthorityData)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.wouldHave(t.Context(), &candidates[0]); err != nil {
		t.Errorf("with the CA of now: %v", err)
	}
}
