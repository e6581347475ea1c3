package bootstrap

import (
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/agent/registration/hubkubeconfig"
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

// RG-12: an agent that turns to another hub requests one certificate of it. When it is issued and the hub has not accepted the cluster yet,
// the agent goes on with it.
func TestCertificateBeforeAcceptance(t *testing.T) {
	t.Parallel()
	first := newHub(t, http.StatusInternalServerError)
	hub := &signingHub{T: t}
	second := serve(t, hub.ServeHTTP)
	b, _ := registered(t, first, first)
	b.Record = func(string, string, string, string, ...any) {}
	b.Kubeconfigs = append(b.Kubeconfigs, filepath.Join(t.TempDir(), "second"))
	if err := clientcmd.WriteToFile(*second, b.Kubeconfigs[1]); err != nil {
		t.Fatal(err)
	}
	b.Leave(false)
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
