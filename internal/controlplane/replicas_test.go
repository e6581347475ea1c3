package controlplane

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	testclock "k8s.io/utils/clock/testing"

	"github.com/capstan-io/capstan/internal/controlplane/etcd"
	"github.com/capstan-io/capstan/internal/controlplane/ocmconfig"
	"github.com/capstan-io/capstan/internal/controlplane/pki"
)

// signedBy has a hub sign a certificate of a user, and returns it with its key.
func signedBy(t *testing.T, h *testHub, user string) (certPEM, keyPEM []byte) {
	t.Helper()
	key, request := certificateRequest(t, user, "some-group")
	requests := h.client.CertificatesV1().CertificateSigningRequests()
	csr, err := requests.Create(t.Context(), &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: request, SignerName: certificatesv1.KubeAPIServerClientSignerName,
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth},
		},
	}, create)
	must(t, err)
	csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved,
		Status: corev1.ConditionTrue, Reason: "Test"}}
	_, err = requests.UpdateApproval(t.Context(), csr.Name, csr, metav1.UpdateOptions{})
	must(t, err)
	eventually(t, func(ctx context.Context) string {
		if csr, err = requests.Get(ctx, csr.Name, get); err != nil || len(csr.Status.Certificate) == 0 {
			return fmt.Sprintf("no certificate: %v", err)
		}
		return ""
	})
	return csr.Status.Certificate, key
}

// SC-06 SC-08 SC-24: hubs on one etcd renew their keys once for all of them, while they run: what one signs with the new ones the others
// take. A hub that had its keys in its folder keeps them when it moves to that etcd.
func TestReplicasRenew(t *testing.T) {
	t.Parallel()
	external, err := etcd.Start(t.Context(), etcd.Options{Dir: t.TempDir(), NoFsync: true, Logger: logr.Discard()})
	must(t, err)
	t.Cleanup(external.Close)
	// The hubs start in what they take for the past, so that what they make is valid now, and due.
	past := time.Now().Add(-200 * 24 * time.Hour)
	var hubs []*testHub
	var clocks []*testclock.FakeClock
	for i := range 2 {
		dir := t.TempDir()
		if i == 0 {
			_, err := pki.Open(t.Context(), pki.Options{Dir: filepath.Join(dir, "data", "cert"), Clock: testclock.NewFakeClock(past)})
			must(t, err)
		}
		before, _ := os.ReadFile(filepath.Join(dir, "data", "cert", "client-ca.crt"))
		config := fmt.Sprintf("dataDirectory: %s/data\napiserver: {externalHostname: 127.0.0.1, port: %d}\n"+
			"etcd: {mode: external, servers: [%q]}\n", dir, mustPort(t), external.Endpoint())
		must(t, os.WriteFile(filepath.Join(dir, ocmconfig.FileName), []byte(config), 0o600))
		clock := testclock.NewFakeClock(past)
		clocks = append(clocks, clock)
		hubs = append(hubs, newHub(t, dir, func(o *Options) { o.Clock = clock }))
		if i == 0 && !bytes.Equal(before, clientCA(t, hubs[0])) {
			t.Error("the hub has another CA than before it moved")
		}
	}
	first := clientCA(t, hubs[0])
	if !bytes.Equal(first, clientCA(t, hubs[1])) {
		t.Fatal("the hubs have different CAs")
	}
	// The next CA is made, has time to spread, and then signs.
	at(t, clocks, time.Now().Add(-40*24*time.Hour))
	eventually(t, func(context.Context) string {
		for _, h := range hubs {
			if _, err := os.Stat(filepath.Join(certDir(h.options.Config.DataDirectory), string(pki.ClientCA)+".next.crt")); err != nil {
				return err.Error()
			}
		}
		return ""
	})
	at(t, clocks, time.Now())
	eventually(t, func(context.Context) string {
		for _, clock := range clocks {
			clock.Step(time.Minute) // for one who looked at the clock just before
		}
		if now := clientCA(t, hubs[0]); bytes.Equal(now, first) || !bytes.Equal(now, clientCA(t, hubs[1])) {
			return "the CA of clients is not renewed, or not by both"
		}
		return ""
	})
	for i, h := range hubs {
		cert, key := signedBy(t, h, "renewed")
		for j, other := range hubs {
			client := other.as(t, func(c *rest.Config) { c.CertData, c.KeyData = cert, key })
			eventually(t, func(ctx context.Context) string {
				_, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, create)
				if err != nil {
					return fmt.Sprintf("what hub %d has signed, hub %d does not take: %v", i, j, err)
				}
				return ""
			})
		}
	}
}

// at sets clocks once somebody waits for each of them.
func at(t *testing.T, clocks []*testclock.FakeClock, now time.Time) {
	t.Helper()
	for _, clock := range clocks {
		eventually(t, func(context.Context) string {
			if !clock.HasWaiters() {
				return "nobody waits for a renewal"
			}
			return ""
		})
		clock.SetTime(now)
	}
}

func clientCA(t *testing.T, h *testHub) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(certDir(h.options.Config.DataDirectory), string(pki.ClientCA)+".crt"))
	must(t, err)
	return content
}
