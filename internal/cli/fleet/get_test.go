package fleet_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/cli/clitest"
	"github.com/capstan-io/capstan/internal/cli/fakehub"
)

// CA-23
func TestGetClusters(t *testing.T) {
	t.Parallel()
	h := clitest.NewHub(t)
	h.PutClusters(t)
	h.Run(t, "", "get", "clusters").Succeeds(t, "ManagedClusters: 2", "├── cluster1", "└── cluster2")
	if got := h.Run(t, "", "get", "clusters", "--clusterset", "prod", "-o", "table"); strings.Contains(got.Out, "cluster2") ||
		!strings.Contains(got.Out, "cluster1") {
		t.Errorf("of the set prod: %s", got.Out)
	}
	var one clusterv1.ManagedCluster
	if err := json.Unmarshal([]byte(h.Run(t, "", "get", "clusters", "cluster2", "-o", "json").Out), &one); err != nil {
		t.Fatal(err)
	}
	if one.Name != "cluster2" || one.Kind != "ManagedCluster" || one.APIVersion != "cluster.open-cluster-management.io/v1" {
		t.Errorf("one cluster as JSON: %+v", one.TypeMeta)
	}
	var list clusterv1.ManagedClusterList
	if err := json.Unmarshal([]byte(h.Run(t, "", "get", "clusters", "-o", "json").Out), &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 2 || list.Kind != "ManagedClusterList" || list.Items[0].Kind != "ManagedCluster" {
		t.Errorf("clusters as JSON: %+v", list)
	}
	h.Run(t, "", "get", "clusters", "cluster1", "gone").Fails(t, `"gone"`, "capstan get clusters")
	h.Run(t, "", "get", "clusters", "gone").Fails(t, `"gone" not found`, "capstan get clusters")
	if got := h.Run(t, "", "get", "clusters", "--clusterset", "empty"); got.Code != 0 || !strings.Contains(got.ErrOut, `"empty"`) ||
		strings.Contains(got.ErrOut, "get token") {
		t.Errorf("of an empty set: %+v", got)
	}
	h.Run(t, "", "get", "clusters", "-o", "xml").Fails(t, "tree, table, yaml, json, name")
}

func TestGetClustersNone(t *testing.T) {
	t.Parallel()
	got := clitest.NewHub(t).Run(t, "", "get", "clusters")
	got.Succeeds(t, "ManagedClusters: none")
	if !strings.Contains(got.ErrOut, "capstan get token") {
		t.Errorf("nothing says what to do next: %s", got.ErrOut)
	}
}

// CA-21
func TestGetToken(t *testing.T) {
	t.Parallel()
	h := clitest.NewHub(t)
	h.Handle("POST /api/v1/namespaces/open-cluster-management/serviceaccounts/agent-registration-bootstrap/token",
		fakehub.JSON(`{"kind":"TokenRequest","apiVersion":"authentication.k8s.io/v1","status":{"token":"secret"}}`))
	line := "capstan join --hub-token secret --hub-apiserver " + h.URL +
		" --cluster-name <cluster_name>\n"
	h.Run(t, "", "get", "token").Succeeds(t, "token=secret\nplease log on spoke and run:\n", line)
	if got, want := h.Run(t, "", "get", "token", "-o", "json").Out, `{"hub-token":"secret","hub-apiserver":"`+h.URL+`"}`+"\n"; got != want {
		t.Errorf("JSON %s, want %s", got, want)
	}
	file := filepath.Join(t.TempDir(), "token")
	if got := h.Run(t, "", "get", "token", "--output-file", file); got.Code != 0 || got.Out != "" || !strings.Contains(got.ErrOut, file) {
		t.Errorf("with a file: %+v", got)
	}
	clitest.Run(t.Context(), "", "get", "token", "--kubeconfig", "/none/kubeconfig", "--output-file", "/none/x").Fails(t,
		"--output-file: /none/x: there is no folder /none")
	misspelt := filepath.Join(t.TempDir(), "no", "folder")
	h.Run(t, "", "get", "token", "--output-file", filepath.Join(misspelt, "token")).Fails(t, "--output-file", misspelt)
	if _, err := os.Stat(misspelt); err == nil {
		t.Errorf("it made the folder %s", misspelt)
	}
	content, err := os.ReadFile(file)
	info, statErr := os.Stat(file)
	if err != nil || statErr != nil || !strings.Contains(string(content), line) || info.Mode().Perm() != 0o600 {
		t.Errorf("file %q, %v, errors %v, %v", content, info, err, statErr)
	}
}

// CA-21: a user who pastes the command can distinguish the hub from an impostor, whatever the token.
func TestGetTokenPinsTheHub(t *testing.T) {
	t.Parallel()
	h := clitest.NewHub(t)
	h.Handle("POST /api/v1/namespaces/open-cluster-management/serviceaccounts/agent-registration-bootstrap/token",
		fakehub.JSON(`{"kind":"TokenRequest","apiVersion":"authentication.k8s.io/v1","status":{"token":"secret"}}`))
	h.Put(t, "/api/v1/namespaces/kube-public/configmaps/kube-root-ca.crt", &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: "kube-root-ca.crt"}, Data: map[string]string{"ca.crt": string(h.CA())},
	})
	pin := fmt.Sprintf("sha256:%x", sha256.Sum256(h.Certificate().RawSubjectPublicKeyInfo))
	h.Run(t, "", "get", "token").Succeeds(t, " --hub-apiserver "+h.URL+" --ca-cert-hash "+pin+" ")
	h.Run(t, "", "get", "token", "-o", "json").Succeeds(t, `"ca-cert-hash":["`+pin+`"]`)
}
