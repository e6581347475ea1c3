package installation

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	certutil "k8s.io/client-go/util/cert"
)

// hubAccess is what a kubeconfig of an agent has of its hub.
type hubAccess struct {
	server string
	ca     []byte
}

// data is that of a Secret with a kubeconfig, in base64.
func (h hubAccess) data() map[string]any {
	kubeconfig := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"a","contexts":[{"name":"a","context":{"cluster":"a"}}],
"clusters":[{"name":"a","cluster":{"server":%q,"certificate-authority-data":%q}}]}`, h.server, base64.StdEncoding.EncodeToString(h.ca))
	return map[string]any{"kubeconfig": base64.StdEncoding.EncodeToString([]byte(kubeconfig))}
}

// RG-47: nothing is installed over an agent of another hub or another cluster, nor in its namespace, nor over a Klusterlet
// that goes or that another tool keeps. The same hub installs its agent again.
func TestCheckAgents(t *testing.T) {
	t.Parallel()
	const hub, former, ofAgent = "https://hub.example.com", "https://former.example.com", "open-cluster-management-agent"
	own, other := selfSigned(t, "own"), selfSigned(t, "other")
	for name, test := range map[string]struct {
		metadata, spec        string    // of Klusterlet klusterlet, in JSON
		bootstrap, credential hubAccess // of its agent; none without a server
		made                  string    // the name that its agent has made for its cluster
		installed, namespace  string    // the Klusterlet that is installed for cluster rome
		want                  ConflictKind
		says                  string
	}{
		"the same hub":                       {bootstrap: hubAccess{hub, own}},
		"the same hub, nothing has joined":   {},
		"the hub with another authority":     {bootstrap: hubAccess{hub, other}},
		"the hub at another address":         {bootstrap: hubAccess{former, own}},
		"the agent has followed its hub":     {bootstrap: hubAccess{former, other}, credential: hubAccess{hub, other}},
		"a name that the agent has made":     {spec: `{}`, bootstrap: hubAccess{hub, own}, made: "rome"},
		"a second one in a namespace for it": {bootstrap: hubAccess{former, other}, installed: "second", namespace: "second"},
		"another one without its Klusterlet": {bootstrap: hubAccess{former, other}, installed: "none", namespace: "second"},
		"its own again without a Klusterlet": {bootstrap: hubAccess{hub, own}, installed: "none"},
		"another hub": {bootstrap: hubAccess{former, other}, want: ConflictHub,
			says: former + ", and would be taken from there to " + hub + ": neither the address"},
		"perhaps another hub": {bootstrap: hubAccess{former, nil}, want: ConflictHub,
			says: "nothing shows that it is the same hub"},
		"another hub by its credential":       {credential: hubAccess{former, other}, want: ConflictHub},
		"another hub, in another namespace":   {bootstrap: hubAccess{former, other}, namespace: "second", want: ConflictHub},
		"another hub, without its Klusterlet": {bootstrap: hubAccess{former, other}, installed: "none", want: ConflictHub},
		"another cluster": {spec: `{"clusterName":"milan"}`, bootstrap: hubAccess{hub, own}, want: ConflictCluster,
			says: "has joined a hub as milan already"},
		"another name that the agent has made": {spec: `{}`, bootstrap: hubAccess{hub, own}, made: "milan", want: ConflictCluster,
			says: "has joined a hub as milan already"},
		"a second one in its namespace": {bootstrap: hubAccess{hub, own}, installed: "second", want: ConflictNamespace,
			says: "that of Klusterlet second would take its credentials there"},
		"it is being deleted": {metadata: `{"name":"klusterlet","deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":["f"]}`,
			bootstrap: hubAccess{hub, own}, want: ConflictDeletion, says: "these finalizers off: f"},
		"another tool keeps it": {metadata: `{"name":"klusterlet","annotations":{"argocd.argoproj.io/tracking-id":"agents:x"}}`,
			bootstrap: hubAccess{hub, own}, want: ConflictInstaller, says: "kept by Argo CD (Application agents)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			metadata, spec := cmp.Or(test.metadata, `{"name":"klusterlet"}`), cmp.Or(test.spec, `{"clusterName":"rome"}`)
			api := http.NewServeMux()
			version := KindKlusterlet.GroupVersion().String()
			discover(t, api, "/api/v1", metav1.APIResource{Name: "secrets", Kind: "Secret", Namespaced: true})
			discover(t, api, "/apis/"+version, metav1.APIResource{Name: "klusterlets", Kind: "Klusterlet"})
			api.HandleFunc("GET /apis/"+version+"/klusterlets", func(w http.ResponseWriter, _ *http.Request) {
				answer(t, w, http.StatusOK, map[string]any{"apiVersion": version, "kind": "KlusterletList", "items": []any{map[string]any{
					"apiVersion": version, "kind": "Klusterlet", "metadata": json.RawMessage(metadata), "spec": json.RawMessage(spec)}}})
			})
			serveSecret := func(name string, data map[string]any) {
				api.HandleFunc("GET /api/v1/namespaces/"+ofAgent+"/secrets/"+name, func(w http.ResponseWriter, _ *http.Request) {
					answer(t, w, http.StatusOK, secretIn(ofAgent, name, data).Object)
				})
			}
			if test.bootstrap.server != "" {
				serveSecret("bootstrap-hub-kubeconfig", test.bootstrap.data())
			}
			credential := map[string]any{}
			if test.credential.server != "" {
				credential = test.credential.data()
			}
			credential["cluster-name"] = base64.StdEncoding.EncodeToString([]byte(test.made))
			serveSecret("hub-kubeconfig-secret", credential)

			objects := agentFor(hubAccess{hub, own}, test.installed, test.namespace)
			err := serveAPI(t, api, "v1.4.0").CheckAgents(t.Context(), "rome", objects)
			if test.want == 0 {
				if err != nil {
					t.Error(err)
				}
				return
			}
			conflict := (*Conflict)(nil)
			if !errors.As(err, &conflict) || conflict.Kind != test.want || !strings.Contains(err.Error(), test.says) {
				t.Errorf("error %v", err)
			}
		})
	}
}

// agentFor are the objects of an agent that joins a hub by a Klusterlet of the name; none means without one.
func agentFor(hub hubAccess, name, namespace string) []*unstructured.Unstructured {
	namespace = cmp.Or(namespace, "open-cluster-management-agent")
	objects := []*unstructured.Unstructured{secretIn(namespace, "bootstrap-hub-kubeconfig", hub.data())}
	if name == "none" {
		return objects
	}
	klusterlet := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"clusterName": "rome", "namespace": namespace}}}
	klusterlet.SetGroupVersionKind(KindKlusterlet)
	klusterlet.SetName(cmp.Or(name, "klusterlet"))
	return append(objects, klusterlet)
}

func secretIn(namespace, name string, data map[string]any) *unstructured.Unstructured {
	secret := &unstructured.Unstructured{Object: map[string]any{"data": data}}
	secret.SetGroupVersionKind(KindSecret)
	secret.SetNamespace(namespace)
	secret.SetName(name)
	return secret
}

// selfSigned is a certificate authority of its own, in PEM.
func selfSigned(t *testing.T, name string) []byte {
	t.Helper()
	certificate, _, err := certutil.GenerateSelfSignedCertKey(name, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}
