package registration

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
)

// SC-06 SC-08 SC-19, gap O8: a hub that is started again has the keys, the administrator and the bootstrap token it had, and
// the tokens it issued go on. It stops without an error.
func TestHubKeepsItsIdentity(t *testing.T) {
	t.Parallel()
	own := env.StartHub(t, "none")
	before, err := own.Config()
	if err != nil {
		t.Fatal(err)
	}
	bootstrap := own.BootstrapToken(t)
	issued := &authenticationv1.TokenRequest{}
	account := &corev1.ServiceAccount{}
	account.Namespace, account.Name = fleet.NamespaceOperators, fleet.ServiceAccountBootstrap
	if err := own.Client(t).SubResource("token").Create(t.Context(), account, issued); err != nil {
		t.Fatal(err)
	}
	if err := own.Stop(); err != nil {
		t.Errorf("the hub did not stop well: %v", err)
	}
	if err := own.Start(); err != nil {
		t.Fatal(err)
	}
	if err := own.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	after, err := own.Config()
	if err != nil {
		t.Fatal(err)
	}
	if string(before.CAData) != string(after.CAData) || string(before.CertData) != string(after.CertData) {
		t.Error("the hub has another certificate authority or another administrator")
	}
	if now := own.BootstrapToken(t); now != bootstrap {
		t.Error("the hub has another bootstrap token")
	}
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: issued.Status.Token}}
	if err := own.Client(t).Create(t.Context(), review); err != nil || !review.Status.Authenticated {
		t.Errorf("a token from before the restart is refused: %v, %s", err, review.Status.Error)
	}
	secrets := &corev1.SecretList{}
	if err := own.Client(t).List(t.Context(), secrets, client.InNamespace("kube-system"),
		client.MatchingLabels{fleet.LabelApp: fleet.AppClusterManager}); err != nil {
		t.Fatal(err)
	}
	for _, secret := range secrets.Items {
		if expires, err := time.Parse(time.RFC3339, string(secret.Data["expiration"])); err != nil || expires.Before(time.Now()) {
			t.Errorf("bootstrap token %s expires at %q", secret.Name, secret.Data["expiration"])
		}
	}
}

// SC-03 SC-04 SC-10: a hub that cannot start says why, and what to do, and ends.
func TestHubRefusesToStart(t *testing.T) {
	t.Parallel()
	running := env.StartHub(t, "none")
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = busy.Close() })
	busyPort := busy.Addr().(*net.TCPAddr).Port
	for name, test := range map[string]struct {
		config func(dir string) string
		want   []string
	}{
		"data directory in use": {
			func(string) string { return "dataDirectory: " + filepath.Join(running.Dir, "data") },
			[]string{filepath.Join(running.Dir, "data"), fmt.Sprint(running.Pid())},
		},
		"busy port": {
			func(dir string) string {
				return fmt.Sprintf("dataDirectory: %s\napiserver:\n  port: %d\n", dir, busyPort)
			},
			[]string{fmt.Sprint(busyPort), "apiserver.port"},
		},
		"broken field": {
			func(dir string) string { return fmt.Sprintf("dataDirectory: %s\netcd:\n  mode: somewhere\n", dir) },
			[]string{"ocmconfig.yaml", "etcd.mode", "somewhere", "embed"},
		},
		"unknown field": {
			func(dir string) string { return fmt.Sprintf("dataDirectory: %s\napiserver:\n  prot: 9443\n", dir) },
			[]string{"ocmconfig.yaml:3", "prot"},
		},
		"unreachable etcd": {
			func(dir string) string {
				return fmt.Sprintf("dataDirectory: %s\netcd:\n  mode: external\n  servers: [\"http://127.0.0.1:1\"]\n", dir)
			},
			[]string{"etcd.servers", "http://127.0.0.1:1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			refused, err := env.NewHub(dir, "none")
			if err != nil {
				t.Fatal(err)
			}
			env.ReplaceFile(t, filepath.Join(dir, "ocmconfig.yaml"), []byte(test.config(filepath.Join(dir, "data"))))
			if err := refused.Start(); err != nil {
				t.Fatal(err)
			}
			refused.StopWith(t)
			refused.AwaitExit(t)
			for _, want := range test.want {
				if !strings.Contains(refused.Log(), want) {
					t.Errorf("the message does not say %q:\n%s", want, refused.Log())
				}
			}
		})
	}
}
