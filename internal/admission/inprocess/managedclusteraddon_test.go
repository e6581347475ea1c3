package inprocess_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

var (
	// addOnAgents count as agents of clusters and of add-ons in the namespace c1.
	addOnAgents = []*user.DefaultInfo{
		{Name: fleet.ClusterUser("c1", "x"), Groups: fleet.ClusterGroups("c1")},
		{Name: "arn:aws:sts::1:assumed-role/r", Groups: []string{fleet.AWSClusterGroup("c1")}},
		{Name: fleet.AddOnUser("c1", "x", "x-agent"), Groups: fleet.AddOnGroups("c1", "x")},
		{Name: fleet.AddOnUser("c2", "a", "a-agent"), Groups: fleet.AddOnGroups("c2", "a")},
		{Name: "whoever the add-on says", Groups: []string{"system:open-cluster-management:addon:x"}},
		{Name: "system:serviceaccount:c1:x-agent", Groups: []string{"system:serviceaccounts", "system:serviceaccounts:c1"}},
	}
	// addOnManagers do not.
	addOnManagers = []*user.DefaultInfo{
		{Name: "admin", Groups: []string{"system:masters"}},
		{Name: "system:serviceaccount:open-cluster-management-hub:addon-manager-controller-sa", Groups: []string{"system:serviceaccounts"}},
		{Name: "system:serviceaccount:addons:manager", Groups: []string{"system:serviceaccounts", "system:serviceaccounts:addons"}},
		{Name: "system:serviceaccount:c10:manager", Groups: []string{"system:serviceaccounts", "system:serviceaccounts:c10"}},
		{Name: "manager", Groups: []string{"managers"}},
	}
)

// R10: whoever decides what an add-on registers for, or by which configurations it is made, decides as whom certificates are approved. That
// is the hub, and an agent, of the cluster or of any of its add-ons, says no more than how it gets the credential and how the add-on is.
func TestAgentsDoNotSayWhatAddOnsRegisterFor(t *testing.T) {
	t.Parallel()
	const (
		alpha = `{apiVersion: addon.open-cluster-management.io/v1alpha1, kind: ManagedClusterAddOn, metadata: {name: a, namespace: c1}, spec: {}, status: `
		beta  = `{apiVersion: addon.open-cluster-management.io/v1beta1, kind: ManagedClusterAddOn, metadata: {name: a, namespace: c1}, spec: {}, status: `

		alphaOld = `{namespace: ns, registrations: [{signerName: kubernetes.io/kube-apiserver-client, subject: {user: u, groups: [g, h]}}, {signerName: example.com/s}]}`
		betaOld  = `{namespace: ns, registrations: [{type: kubeClient, kubeClient: {subject: {user: u, groups: [g, h]}}}, {type: customSigner, customSigner: {signerName: example.com/s}}]}`
	)
	for _, test := range []struct {
		name, old, now string
		// refused is the field that an agent cannot change; empty if it can.
		refused string
	}{
		{"nothing", beta + betaOld, beta + betaOld, ""},
		{"a condition", beta + betaOld, beta + `{conditions: [{type: Available, status: "True"}], ` + betaOld[1:], ""},
		{"the driver", beta + betaOld, beta +
			`{namespace: ns, registrations: [{type: kubeClient, kubeClient: {driver: token, subject: {user: u, groups: [g, h]}}}, {type: customSigner, customSigner: {signerName: example.com/s}}]}`, ""},
		{"the driver of v1alpha1", alpha + alphaOld, alpha + `{kubeClientDriver: token, ` + alphaOld[1:], ""},
		{"the driver of nobody in particular", beta + `{registrations: [{type: kubeClient}]}`, beta +
			`{registrations: [{type: kubeClient, kubeClient: {driver: csr, subject: {}}}]}`, ""},
		{"what clients leave out", beta + `{registrations: [], healthCheck: {}, namespace: ""}`, beta + `{}`, ""},

		{"the user", beta + betaOld, beta +
			`{namespace: ns, registrations: [{type: kubeClient, kubeClient: {subject: {user: other, groups: [g, h]}}}, {type: customSigner, customSigner: {signerName: example.com/s}}]}`, "status.registrations"},
		{"the user, with the driver", beta + betaOld, beta +
			`{namespace: ns, registrations: [{type: kubeClient, kubeClient: {driver: csr, subject: {user: other, groups: [g, h]}}}, {type: customSigner, customSigner: {signerName: example.com/s}}]}`, "status.registrations"},
		{"a group", beta + betaOld, beta +
			`{namespace: ns, registrations: [{type: kubeClient, kubeClient: {subject: {user: u, groups: [g, h, i]}}}, {type: customSigner, customSigner: {signerName: example.com/s}}]}`, "status.registrations"},
		{"the user of v1alpha1", alpha + alphaOld, alpha +
			`{namespace: ns, registrations: [{signerName: kubernetes.io/kube-apiserver-client, subject: {user: other, groups: [g, h]}}, {signerName: example.com/s}]}`, "status.registrations"},
		{"the signer", alpha + alphaOld, alpha +
			`{namespace: ns, registrations: [{signerName: kubernetes.io/kube-apiserver-client, subject: {user: u, groups: [g, h]}}, {signerName: example.com/t}]}`, "status.registrations"},
		{"one more", beta + `{}`, beta + betaOld, "status.registrations"},
		{"one less", beta + betaOld, beta + `{namespace: ns, registrations: [{type: customSigner, customSigner: {signerName: example.com/s}}]}`,
			"status.registrations"},
		{"all of them", beta + betaOld, beta + `{namespace: ns}`, "status.registrations"},
		{"a driver of another signer", beta + betaOld, beta +
			`{namespace: ns, registrations: [{type: kubeClient, kubeClient: {subject: {user: u, groups: [g, h]}}}, {type: customSigner, kubeClient: {subject: {user: x}}, customSigner: {signerName: example.com/s}}]}`, "status.registrations"},
		{"the namespace", beta + betaOld, beta + `{namespace: other, ` + betaOld[len("{namespace: ns, "):], "status.namespace"},
		{"the health check", beta + `{}`, beta + `{healthCheck: {mode: Customized}}`, "status.healthCheck"},
		{"the configurations", beta + `{}`, beta + `{configReferences: [{group: g, resource: r, lastAppliedConfig: {name: c1, specHash: h1}}]}`,
			"status.configReferences"},
		{"another template", beta + `{configReferences: [{group: addon.open-cluster-management.io, resource: addontemplates, desiredConfig: {name: mine, specHash: h1}}]}`, beta + `{configReferences: [{group: addon.open-cluster-management.io, resource: addontemplates, desiredConfig: {name: victim, specHash: h2}}]}`, "status.configReferences"},
		{"a field that is not there yet", beta + `{}`, beta + `{more: {x: 1}}`, "status"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			for _, who := range addOnAgents {
				s := newServer()
				s.who = who
				code := int32(0)
				if test.refused != "" {
					code = 403
				}
				checkStatus(t, s.write(t, object(t, test.now+"}"), object(t, test.old+"}"), "status"), code, "cannot change "+test.refused+":")
			}
			for _, who := range addOnManagers {
				s := newServer()
				s.who = who
				checkStatus(t, s.write(t, object(t, test.now+"}"), object(t, test.old+"}"), "status"), 0, "")
			}
		})
	}
}

// A6: how long the removal of an add-on may take is checked when it is written, in every version, and not again afterwards.
func TestTimeoutOfAddOn(t *testing.T) {
	t.Parallel()
	addOn := func(version, timeout string) string {
		return `{apiVersion: addon.open-cluster-management.io/` + version +
			`, kind: ManagedClusterAddOn, metadata: {name: a, namespace: c1, annotations: {capstan.io/pre-delete-timeout: "` + timeout +
			`"}}, spec: {}}`
	}
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		s := newServer()
		s.who = &user.DefaultInfo{Name: "admin", Groups: []string{"system:masters"}}
		for timeout, code := range map[string]int32{"30m": 0, "0s": 0, "": 0, "soon": 400, "-1m": 400} {
			checkStatus(t, s.write(t, object(t, addOn(version, timeout)), nil, ""), code, "write how long the removal may wait")
			checkStatus(t, s.write(t, object(t, addOn(version, timeout)), object(t, addOn(version, "1m")), ""), code,
				"write how long the removal may wait")
		}
		checkStatus(t, s.write(t, object(t, addOn(version, "soon")), object(t, addOn(version, "soon")), ""), 0, "")
	}
}

// AF-16, A2: works for the hosting cluster are written by the manager of the add-on. So whoever names the cluster needs the
// permission, on the add-on as on the cluster whose annotations its add-ons get; and nobody else is.
func TestHostingClusterIsValidated(t *testing.T) {
	t.Parallel()
	const hosting = "addon.open-cluster-management.io/hosting-cluster-name"
	for kind, text := range map[string]string{
		"add-on":           `{apiVersion: addon.open-cluster-management.io/v1beta1, kind: ManagedClusterAddOn, metadata: {name: a, namespace: c1}, spec: {}}`,
		"add-on, v1alpha1": `{apiVersion: addon.open-cluster-management.io/v1alpha1, kind: ManagedClusterAddOn, metadata: {name: a, namespace: c1}, spec: {}}`,
		"cluster":          `{apiVersion: cluster.open-cluster-management.io/v1, kind: ManagedCluster, metadata: {name: c1, labels: {cluster.open-cluster-management.io/clusterset: default}}, spec: {}}`,
	} {
		on := func(host string) *unstructured.Unstructured {
			o := object(t, text)
			o.SetAnnotations(map[string]string{"other": host})
			if host != "" {
				o.SetAnnotations(map[string]string{"other": host, hosting: host})
			}
			return o
		}
		for _, test := range []struct {
			name, before, after string
			requested           bool
		}{
			{"set", "", "host", true}, {"changed", "host", "other", true}, {"kept", "host", "host", false}, {"removed", "host", "", false},
			{"none", "", "", false},
		} {
			t.Run(kind+"/"+test.name, func(t *testing.T) {
				t.Parallel()
				code := int32(0)
				if test.requested {
					code = 403
				}
				checkStatus(t, newServer().write(t, on(test.after), on(test.before), ""), code,
					`user "ann" cannot let the cluster "`+test.after+`" host add-ons by metadata.annotations[`+hosting+
						`]: it needs the permission to create manifestworks of work.open-cluster-management.io in namespace "`+test.after+`"`)
				checkStatus(t, newServer("create ").write(t, on(test.after), on(test.before), ""), 0, "")
			})
		}
		checkStatus(t, newServer("create join").write(t, on("host"), nil, ""), 403, `"host"`)
		checkStatus(t, newServer("create join", "create ").write(t, on("host"), nil, ""), 0, "")
	}
}

// A2, AM-05: a tenant who installs an add-on does not get, by naming an AddOnTemplate that is for another cluster, what that grants. Nor
// does he have the hub read configurations that he may not read.
func TestConfigsOfAddOnAreValidated(t *testing.T) {
	t.Parallel()
	const (
		infra   = `{group: addon.open-cluster-management.io, resource: addontemplates, name: infra}`
		usual   = `{group: addon.open-cluster-management.io, resource: addontemplates, name: usual}`
		foreign = `{group: addon.open-cluster-management.io, resource: addontemplates, name: foreign}`
		missing = `{group: addon.open-cluster-management.io, resource: addontemplates, name: missing}`
		shared  = `{group: addon.open-cluster-management.io, resource: addondeploymentconfigs, namespace: shared, name: d}`
		own     = `{group: addon.open-cluster-management.io, resource: addondeploymentconfigs, namespace: c1, name: d}`
	)
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		addOn := func(configs string) *unstructured.Unstructured {
			return object(t, `{apiVersion: addon.open-cluster-management.io/`+version+
				`, kind: ManagedClusterAddOn, metadata: {name: a, namespace: c1}, spec: {configs: [`+configs+`]}}`)
		}
		for _, test := range []struct {
			name, now, old string
			may            []string
			refused        string
		}{
			{"the default", usual, "", nil, ""},
			{"none", "", infra, nil, ""},
			{"as before", infra, infra, nil, ""},
			{"a template that cannot be read", infra, "", []string{"bind "}, "needs the permission to get addontemplates"},
			{"a template of a placement", infra, "", []string{"get "}, `spec.configs[0].name: Forbidden: AddOnTemplate "infra" is no default`},
			{"that, added", usual + "," + infra, usual, []string{"get "}, "spec.configs[1].name"},
			{"that, by who may bind", infra, "", []string{"get ", "bind "}, ""},
			{"a template of another add-on", foreign, "", []string{"get "}, `AddOnTemplate "foreign" is no default`},
			{"that of another, by who may bind", foreign, "", []string{"get ", "bind "}, ""},
			{"a template that is still to come", missing, "", []string{"get "}, `AddOnTemplate "missing" does not exist`},
			{"that, by who may grant all", missing, "", []string{"get ", "bind "}, ""},
			{"a configuration elsewhere", shared, "", []string{"bind "}, `in namespace "shared"`},
			{"that, by who may read it", shared, "", []string{"get "}, ""},
			{"a configuration of the cluster", own, "", nil, ""},
		} {
			t.Run(version+"/"+test.name, func(t *testing.T) {
				t.Parallel()
				s := newServer(test.may...)
				const grants = `"registration":[{"type":"KubeClient","kubeClient":{"hubPermissions":[{"type":"CurrentCluster",` +
					`"currentCluster":{"clusterRoleName":"r"}}]}}]`
				s.addOns = map[string]string{
					"clustermanagementaddons/a": `{"metadata":{"name":"a"},"spec":{"defaultConfigs":[{"group":"addon.open-cluster-management.io",` +
						`"resource":"addontemplates","name":"usual"}],"installStrategy":{"type":"Placements","placements":[{"namespace":"n","name":"p",` +
						`"configs":[{"group":"addon.open-cluster-management.io","resource":"addontemplates","name":"infra"}]}]}}}`,
					"addontemplates/infra":   `{"metadata":{"name":"infra"},"spec":{"addonName":"a",` + grants + `}}`,
					"addontemplates/foreign": `{"metadata":{"name":"foreign"},"spec":{"addonName":"b",` + grants + `}}`,
				}
				code := int32(0)
				if test.refused != "" {
					code = 403
				}
				if test.old == "" {
					checkStatus(t, s.write(t, addOn(test.now), nil, ""), code, test.refused)
				}
				checkStatus(t, s.write(t, addOn(test.now), addOn(test.old), ""), code, test.refused)
			})
		}
	}
}
