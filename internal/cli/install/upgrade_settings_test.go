package install_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capstan-io/capstan/internal/cli/clitest"
	"github.com/capstan-io/capstan/internal/cli/fakehub"
)

// CA-41: an upgrade takes images from where those are from that run, and keeps the settings of the operator that its chart has values for.
func TestUpgradeKeepsSettings(t *testing.T) {
	t.Parallel()
	const pod, container = "Deployment/OPERATOR.spec.template.spec.", "Deployment/OPERATOR.spec.template.spec.containers.0."
	const digest = "@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
	const own = `{"name":"open-cluster-management-image-pull-credentials"}`
	write := inDir(t)
	for name, test := range map[string]struct {
		pod, container, account string // more of what runs, in JSON
		args                    []string
		registry                string            // that images are from afterwards, if it is another than before
		want                    map[string]string // in what is applied, with OPERATOR for its name
		agents                  bool              // the chart of the other operator has no such value
	}{
		"its registry":   {},
		"by digest":      {container: `{"image":"registry.internal:5000/a/NAME` + digest + `"}`, registry: "registry.internal:5000/a"},
		"given a flag":   {args: []string{"--image-registry", "other.example.com/b/"}, registry: "other.example.com/b"},
		"given the same": {args: []string{"--image-registry", "ghcr.io/capstan-io"}, registry: "ghcr.io/capstan-io"},
		"given a value": {args: []string{"--values-file", write("registry.yaml", "images: {registry: value.example.com}")},
			registry: "value.example.com"},
		"given a value, as to clusteradm": {
			args:     []string{"--OPERATOR-values-file", write("clusteradm.yaml", "images: {registry: value.example.com}")},
			registry: "value.example.com"},
		"of another program":    {container: `{"image":"quay.io/ocm/registration-operator:v0.2.0"}`, registry: "ghcr.io/capstan-io"},
		"from no registry":      {container: `{"image":"NAME:v0.2.0"}`, registry: "ghcr.io/capstan-io"},
		"its pull policy":       {container: `{"imagePullPolicy":"Always"}`, want: map[string]string{container + "imagePullPolicy": "Always"}},
		"its pull secrets":      {account: `[` + own + `,{"name":"mine"}]`, want: pullSecrets("mine")},
		"no pull secrets of it": {account: `[` + own + `]`, want: pullSecrets()},
		"pull secrets of its pods": {pod: `{"imagePullSecrets":[{"name":"mine"}]}`, account: `[{"name":"other"},{"name":"mine"}]`,
			want: pullSecrets("mine", "other")},
		"its priority class": {pod: `{"priorityClassName":"mine"}`, want: map[string]string{
			pod + "priorityClassName": "mine", "PriorityClass/mine": "null"}}, // which is there, and may be that of others
		"its security": {
			pod:       `{"securityContext":{"runAsNonRoot":true,"runAsUser":1000}}`,
			container: `{"securityContext":{"readOnlyRootFilesystem":false}}`,
			want: map[string]string{pod + "securityContext.runAsUser": "1000", pod + "securityContext.seccompProfile.type": "RuntimeDefault",
				container + "securityContext.readOnlyRootFilesystem": "false", container + "securityContext.privileged": "false"},
		},
		"its resources": {container: `{"resources":{"requests":{"memory":"1Gi"}}}`, want: map[string]string{
			container + "resources": `{"requests":{"memory":"1Gi"}}`}},
		"its limits": {container: `{"resources":{"limits":{"cpu":"1"}}}`, want: map[string]string{
			container + "resources": `{"limits":{"cpu":"1"}}`}},
		"its placement": {pod: `{"nodeSelector":{"role":"infra"},"tolerations":[{"operator":"Exists"}]}`, want: map[string]string{
			pod + "nodeSelector": `{"role":"infra"}`, pod + "tolerations": `[{"operator":"Exists"}]`}},
		"a value over it": {container: `{"imagePullPolicy":"Always"}`,
			args: []string{"--values-file", write("policy.yaml", "images: {imagePullPolicy: Never}")},
			want: map[string]string{container + "imagePullPolicy": "Never"}},
		"its host aliases": {pod: `{"hostAliases":[{"ip":"192.0.2.1","hostnames":["hub"]}]}`, agents: true, want: map[string]string{
			pod + "hostAliases": `[{"hostnames":["hub"],"ip":"192.0.2.1"}]`}},
		"its volumes": {
			pod: `{"volumes":[{"name":"tmp","emptyDir":{}},{"name":"tmpdir","emptyDir":{}},{"name":"ca","configMap":{"name":"ca"}}]}`,
			container: `{"volumeMounts":[{"name":"tmpdir","mountPath":"/tmp"},{"name":"ca","mountPath":"/ca"},
				{"name":"tmp","mountPath":"/var/cache"}]}`,
			agents: true,
			want: map[string]string{
				pod + "volumes": `[{"emptyDir":{},"name":"tmp"},{"configMap":{"name":"ca"},"name":"ca"}]`,
				container + "volumeMounts": `[{"mountPath":"/tmp","name":"tmp"},{"mountPath":"/ca","name":"ca"},` +
					`{"mountPath":"/var/cache","name":"tmp"}]`,
			},
		},
	} {
		for _, of := range []operatorOf{{"clustermanager", "cluster-manager", "capstan-hub", managersPath, "ClusterManager"},
			{"klusterlet", "klusterlet", "capstan-agent", klusterletsPath, "Klusterlet"}} {
			if test.agents && of.what != "klusterlet" {
				continue
			}
			t.Run(of.what+" "+name, func(t *testing.T) {
				t.Parallel()
				h := newCluster(t)
				of.put(t, h, test.pod, strings.ReplaceAll(test.container, "NAME", of.image), test.account)
				upgrade := []string{"upgrade", of.what, "--dry-run", "--bundle-version-overrides", inDir(t)("bundle.json", `{"ocm":"v0.3.0"}`)}
				args := slices.Clone(test.args)
				for i := range args {
					args[i] = strings.Replace(args[i], "--OPERATOR-", "--"+of.operator+"-", 1)
				}
				got := h.Run(t, "", slices.Concat(upgrade, args)...)
				got.Succeeds(t)
				registry := "registry.internal/capstan"
				if test.registry != "" {
					registry = test.registry
				}
				image := registry + "/" + of.image + ":v0.3.0"
				want := map[string]string{strings.Replace(container, "OPERATOR", of.operator, 1) + "image": image}
				for path, value := range test.want {
					want[strings.Replace(path, "OPERATOR", of.operator, 1)] = value
				}
				wantValues(t, objectsOf(t, got), want)
				if component := `"workImagePullSpec":"` + image + `"`; !strings.Contains(got.ErrOut, component) {
					t.Errorf("%s is missing in %s", component, got.ErrOut)
				}
			})
		}
	}
}

// pullSecrets is what the service account of an operator has, with its own pull secret and others.
func pullSecrets(names ...string) map[string]string {
	all := []string{`{"name":"open-cluster-management-image-pull-credentials"}`}
	for _, name := range names {
		all = append(all, `{"name":"`+name+`"}`)
	}
	return map[string]string{"ServiceAccount/OPERATOR.imagePullSecrets": "[" + strings.Join(all, ",") + "]"}
}

// operatorOf is what "capstan upgrade" upgrades.
type operatorOf struct{ what, operator, image, customs, kind string }

// put gives a cluster the operator, with more of its pods, its container and the pull secrets of its account, and a custom resource.
func (o operatorOf) put(t *testing.T, h clitest.Hub, morePod, moreContainer, secrets string) {
	t.Helper()
	container := map[string]any{"name": "operator", "image": "registry.internal/capstan/" + o.image + ":v0.2.0"}
	pod := map[string]any{"serviceAccountName": o.operator}
	merge := func(more string, into map[string]any) {
		if more == "" {
			return
		}
		if err := json.Unmarshal([]byte(more), &into); err != nil {
			t.Fatal(err)
		}
	}
	merge(morePod, pod)
	merge(moreContainer, container)
	pod["containers"] = []any{container}
	deployment, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"spec": pod}}})
	if err != nil {
		t.Fatal(err)
	}
	if secrets == "" {
		secrets = "[]"
	}
	account := "/api/v1/namespaces/open-cluster-management/serviceaccounts/" + o.operator
	put(t, h,
		map[string]string{clitest.OperatorsPath + o.operator: "Deployment", account: "ServiceAccount", o.customs + o.operator: o.kind},
		map[string]string{clitest.OperatorsPath + o.operator: string(deployment), account: `{"imagePullSecrets":` + secrets + `}`})
}

// CA-41: a user who may not read the account of the operator learns of all rights that are missing.
func TestUpgradeWithoutRights(t *testing.T) {
	t.Parallel()
	h := newCluster(t)
	of := operatorOf{"clustermanager", "cluster-manager", "capstan-hub", managersPath, "ClusterManager"}
	of.put(t, h, "", "", "")
	h.Handle("GET /api/v1/namespaces/open-cluster-management/serviceaccounts/cluster-manager",
		fakehub.Refuse(http.StatusForbidden, metav1.StatusReasonForbidden, "no"))
	h.Handle("POST "+fakehub.PathAccessReview, fakehub.JSON(`{"status":{"allowed":false}}`))
	h.Run(t, "", "upgrade", "clustermanager").Fails(t, "may not do all that it takes",
		"get serviceaccounts in namespace open-cluster-management", "create deployments.apps in namespace open-cluster-management")
	if n := changes(h); n != 0 {
		t.Errorf("%d changes were made", n)
	}
}
