package install_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/capstan-io/capstan/internal/cli/clitest"
)

// kubeconfigSaying is a kubeconfig that leads to a cluster, with what it says about that.
func kubeconfigSaying(t *testing.T, cluster map[string]any) (file string) {
	t.Helper()
	content, err := json.Marshal(cluster)
	if err != nil {
		t.Fatal(err)
	}
	return inDir(t)("kubeconfig", fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c","clusters":[{"name":"c","cluster":%s}],
		"users":[{"name":"c","user":{"token":"admin"}}],"contexts":[{"name":"c","context":{"cluster":"c","user":"c"}}]}`, content))
}

// infoSaying is the ConfigMap cluster-info with an address and a certificate authority, as init creates it or as others do.
func infoSaying(server string, ca []byte, byInit bool) string {
	annotations := map[bool]string{true: `{"capstan.io/created-by":"capstan init"}`, false: `{}`}[byInit]
	return fmt.Sprintf(`{"metadata":{"annotations":%s},"data":{"kubeconfig":%q}}`, annotations, fmt.Sprintf(
		`{"apiVersion":"v1","kind":"Config","clusters":[{"name":"hub","cluster":{"server":%q,"certificate-authority-data":%q}}]}`,
		server, base64.StdEncoding.EncodeToString(ca)))
}

// infoOfMany is one with several clusters, of which the first by name is the hub.
func infoOfMany(h clitest.Hub) string {
	config := clientcmdapi.NewConfig()
	for _, name := range strings.Fields("b c d e f g h i") {
		config.Clusters[name] = &clientcmdapi.Cluster{Server: byOtherName(h), CertificateAuthorityData: h.CA()}
	}
	config.Clusters["a"] = &clientcmdapi.Cluster{Server: h.URL, CertificateAuthorityData: h.CA()}
	content, err := clientcmd.Write(*config)
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf(`{"data":{"kubeconfig":%q}}`, content)
}

// byOtherName is an address of a fake hub that is not in its certificate.
func byOtherName(h clitest.Hub) string { return strings.Replace(h.URL, "127.0.0.1", "localhost", 1) }

// CA-10: what init publishes is what clusters can verify the hub by; where nothing is, it says so before it installs anything.
func TestInitPublishesWhatVerifies(t *testing.T) {
	t.Parallel()
	const insecure, name, ca = "insecure-skip-tls-verify", "tls-server-name", "certificate-authority-data"
	const byHand = "kubectl --namespace kube-public create configmap cluster-info --from-file=kubeconfig=FILE"
	wrongName := []string{"its certificate is not for localhost, but for example.com, *.example.com, 127.0.0.1, ::1"}
	for title, test := range map[string]struct {
		cluster func(h clitest.Hub) map[string]any // what the kubeconfig says; nil for all that it needs
		root    func(h clitest.Hub) string         // what kube-root-ca.crt says; nil if there is none
		info    func(h clitest.Hub) string         // what cluster-info says; nil if there is none
		force   bool
		says    string
		fails   []string
	}{
		"all that it needs": {says: "It is created from the kubeconfig, with the address https://127.0.0.1"},
		"an authority in the kubeconfig, and another one of the cluster": {
			root: func(clitest.Hub) string { return otherCA(t) }, says: "It is created from the kubeconfig",
		},
		"no authority but that of the cluster": {
			cluster: func(h clitest.Hub) map[string]any { return map[string]any{"server": h.URL, insecure: true} },
			root:    func(h clitest.Hub) string { return string(h.CA()) },
			says:    "with the certificate authority that the cluster gives its pods, as the kubeconfig has none",
		},
		"no authority, and that of the cluster is not the server's": {
			cluster: func(h clitest.Hub) map[string]any { return map[string]any{"server": h.URL, insecure: true} },
			root:    func(clitest.Hub) string { return otherCA(t) },
			fails:   []string{"clusters could not join at https://127.0.0.1", "unknown authority", "certificate authority of the server", byHand},
		},
		"no authority at all": {
			cluster: func(h clitest.Hub) map[string]any { return map[string]any{"server": h.URL, insecure: true} },
			fails:   []string{"clusters could not join at https://127.0.0.1", "unknown authority", byHand},
		},
		"an address that is not in the certificate": {
			cluster: func(h clitest.Hub) map[string]any {
				return map[string]any{"server": byOtherName(h), name: "example.com", ca: h.CA()}
			},
			fails: append(wrongName, "clusters could not join at https://localhost", byHand),
		},
		"such an address, and no authority": {
			cluster: func(h clitest.Hub) map[string]any { return map[string]any{"server": byOtherName(h), insecure: true} },
			root:    func(h clitest.Hub) string { return string(h.CA()) },
			fails:   append(wrongName, "clusters could not join at https://localhost", byHand),
		},
		"such an address by force": {
			cluster: func(h clitest.Hub) map[string]any {
				return map[string]any{"server": byOtherName(h), name: "example.com", ca: h.CA()}
			},
			force: true,
			fails: append(wrongName, "the hub is installed; clusters cannot join", "Delete it",
				"kubectl --namespace kube-public delete configmap cluster-info"),
		},
		"such an address that others publish": {
			info: func(h clitest.Hub) string { return infoSaying(byOtherName(h), h.CA(), false) },
			fails: append(wrongName, "what ConfigMap kube-public/cluster-info publishes, at https://localhost", "if nothing else uses it",
				"kubectl --namespace kube-public edit configmap cluster-info"),
		},
		"such an address that init has published": {
			info: func(h clitest.Hub) string { return infoSaying(byOtherName(h), h.CA(), true) },
			fails: append(wrongName, "what ConfigMap kube-public/cluster-info publishes, at https://localhost",
				"This command has created the ConfigMap", "kubectl --namespace kube-public delete configmap cluster-info"),
		},
		"no authority that init has published": {
			info:  func(h clitest.Hub) string { return infoSaying(h.URL, nil, true) },
			fails: []string{"unknown authority", "kubectl --namespace kube-public delete configmap cluster-info"},
		},
		"an authority that is no certificate, which others publish": {
			info: func(h clitest.Hub) string { return infoSaying(h.URL, []byte("no PEM"), false) },
			fails: []string{"what ConfigMap kube-public/cluster-info publishes, at https://127.0.0.1",
				"its certificate authority is no PEM certificate", "kubectl --namespace kube-public edit configmap cluster-info"},
		},
		"several, of which clusters take the first by name": {info: infoOfMany},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			h := newClusterForHub(t)
			if test.cluster != nil {
				h.File = kubeconfigSaying(t, test.cluster(h))
			}
			if test.root != nil {
				content, _ := json.Marshal(map[string]any{"data": map[string]string{"ca.crt": test.root(h)}})
				put(t, h, map[string]string{rootCAPath: "ConfigMap"}, map[string]string{rootCAPath: string(content)})
			}
			if test.info != nil {
				put(t, h, map[string]string{clusterInfoPath: "ConfigMap"}, map[string]string{clusterInfoPath: test.info(h)})
			}
			args := []string{"init"}
			if test.force {
				args = append(args, "--force")
			}
			got := h.Run(t, "", args...)
			if len(test.fails) > 0 {
				got.Fails(t, test.fails...)
				if n := changes(h); n > 0 && !test.force {
					t.Errorf("%d changes were made", n)
				}
				return
			}
			got.Succeeds(t, "capstan join --hub-token t --hub-apiserver "+h.URL+" --ca-cert-hash sha256:")
			if !strings.Contains(got.ErrOut, test.says) {
				t.Errorf("it says %s, and not %s", got.ErrOut, test.says)
			}
		})
	}
}

// CA-04: a hub that clusters could not join is installed once somebody has done what the error advises.
func TestAdviceToPublish(t *testing.T) {
	t.Parallel()
	for advice, test := range map[string]struct {
		info   func(h clitest.Hub) string // nil if there is none, so the kubeconfig counts, which says the same
		follow func(t *testing.T, h *clitest.Hub)
	}{
		"kubectl config set-cluster hub --kubeconfig=FILE --server=https://NAME:PORT --certificate-authority=CA --embed-certs\n" +
			"  kubectl --namespace kube-public create configmap cluster-info --from-file=kubeconfig=FILE": {
			follow: func(t *testing.T, h *clitest.Hub) {
				t.Helper()
				put(t, *h, map[string]string{clusterInfoPath: "ConfigMap"}, map[string]string{clusterInfoPath: infoSaying(h.URL, h.CA(), false)})
			},
		},
		"kubectl config set-cluster hub --kubeconfig=FILE --server=https://NAME:PORT --certificate-authority=CA --embed-certs\n" +
			"  kubectl --namespace kube-public delete configmap cluster-info\n" +
			"  kubectl --namespace kube-public create configmap cluster-info --from-file=kubeconfig=FILE": {
			info: func(clitest.Hub) string {
				return `{"metadata":{"managedFields":[{"manager":"clusteradm","operation":"Update"}]},"immutable":true}`
			},
			follow: func(t *testing.T, h *clitest.Hub) {
				t.Helper()
				h.Remove(t, clusterInfoPath)
				put(t, *h, map[string]string{clusterInfoPath: "ConfigMap"}, map[string]string{clusterInfoPath: infoSaying(h.URL, h.CA(), false)})
			},
		},
		"kubectl --namespace kube-public delete configmap cluster-info": {
			info: func(h clitest.Hub) string { return infoSaying(byOtherName(h), h.CA(), true) },
			follow: func(t *testing.T, h *clitest.Hub) {
				t.Helper()
				h.Remove(t, clusterInfoPath)
				h.File = kubeconfigSaying(t, map[string]any{"server": h.URL, "certificate-authority-data": h.CA()})
			},
		},
		"kubectl --namespace kube-public edit configmap cluster-info": {
			info: func(h clitest.Hub) string { return infoSaying(byOtherName(h), h.CA(), false) },
			follow: func(t *testing.T, h *clitest.Hub) {
				t.Helper()
				put(t, *h, map[string]string{clusterInfoPath: "ConfigMap"}, map[string]string{clusterInfoPath: infoSaying(h.URL, h.CA(), false)})
			},
		},
	} {
		t.Run(advice, func(t *testing.T) {
			t.Parallel()
			h := newClusterForHub(t)
			h.File = kubeconfigSaying(t, map[string]any{
				"server": byOtherName(h), "tls-server-name": "example.com", "certificate-authority-data": h.CA()})
			if test.info != nil {
				put(t, h, map[string]string{clusterInfoPath: "ConfigMap"}, map[string]string{clusterInfoPath: test.info(h)})
			}
			h.Run(t, "", "init").Fails(t, "  "+advice)
			test.follow(t, &h)
			h.Run(t, "", "init").Succeeds(t, "capstan join --hub-token t --hub-apiserver "+h.URL)
		})
	}
}
