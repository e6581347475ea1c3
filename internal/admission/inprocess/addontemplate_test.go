package inprocess_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// AM-30, AM-34, AM-35, A2, WH-16: what no add-on can be made of is refused when it is written.
func TestAddOnTemplateIsValidated(t *testing.T) {
	t.Parallel()
	const (
		configMap  = `{apiVersion: v1, kind: ConfigMap, metadata: {name: "{{CLUSTER_NAME}}", namespace: ns}}`
		kubeClient = `{type: KubeClient, kubeClient: {hubPermissions: [{type: CurrentCluster, currentCluster: {clusterRoleName: r}}]}}`
		signer     = `{type: CustomSigner, customSigner: {signerName: example.com/hello, signingCA: {name: ca}}}`
	)
	template := func(manifests, registration, more string) *unstructured.Unstructured {
		return object(t, `{apiVersion: addon.open-cluster-management.io/v1alpha1, kind: AddOnTemplate, metadata: {name: t`+more+`},
			spec: {addonName: hello, agentSpec: {workload: {manifests: [`+manifests+`]}}, registration: [`+registration+`]}}`)
	}
	permission := func(permission string) string {
		return `{type: KubeClient, kubeClient: {hubPermissions: [` + permission + `]}}`
	}
	for _, test := range []struct {
		name        string
		object, old *unstructured.Unstructured
		text        string
	}{
		{name: "all right", object: template(configMap, kubeClient+","+signer, "")},
		{name: "no manifest", object: template("", kubeClient, "")},
		{name: "no add-on", object: object(t,
			`{apiVersion: addon.open-cluster-management.io/v1beta1, kind: AddOnTemplate, metadata: {name: t}, spec: {addonName: "", agentSpec: {}}}`),
			text: "spec.addonName: Required value: write the name of the add-on"},
		{name: "no object", object: template("{kind: ConfigMap}", "", ""),
			text: "spec.agentSpec.workload.manifests[0].apiVersion: Required value"},
		{name: "twice the same", object: template(configMap+","+configMap, "", ""),
			text: `spec.agentSpec.workload.manifests[1]: Invalid value: "v1 ConfigMap ns/{{CLUSTER_NAME}}": duplicate of manifest 0`},
		{name: "not twice the same", object: template(configMap+","+strings.ReplaceAll(configMap, "CLUSTER", "OTHER"), "", "")},
		{name: "registration of no type", object: template(configMap, `{type: Token}`, ""),
			text: `spec.registration[0].type: Unsupported value: "Token": supported values: "KubeClient", "CustomSigner"`},
		{name: "signer without its block", object: template(configMap, kubeClient+",{type: CustomSigner}", ""),
			text: "spec.registration[1].customSigner: Required value: the type CustomSigner needs a signerName and the signingCA"},
		{name: "signer without name and CA",
			object: template(configMap, `{type: CustomSigner, customSigner: {signerName: "", signingCA: {name: ""}}}`, ""),
			text:   "spec.registration[0].customSigner.signingCA.name: Required value: write the name of the Secret of type kubernetes.io/tls"},
		{name: "signer of Kubernetes",
			object: template(configMap, strings.ReplaceAll(signer, "example.com/hello", "kubernetes.io/kube-apiserver-client"), ""),
			text:   `spec.registration[0].customSigner.signerName: Invalid value: "kubernetes.io/kube-apiserver-client": it is a signer of Kubernetes or of the hub`},
		{name: "twice a signer", object: template(configMap, signer+","+signer, ""),
			text: `spec.registration[1].customSigner.signerName: Duplicate value: "example.com/hello"`},
		{name: "signers with the same variables",
			object: template(configMap, signer+","+strings.ReplaceAll(signer, "example.com/hello", "example-com.x/hello")+","+
				strings.ReplaceAll(signer, "example.com/hello", "example.com.x/hello"), ""),
			text: `spec.registration[2].customSigner.signerName: Invalid value: "example.com.x/hello": the certificates of this signer and of "example-com.x/hello" would have the same name in the pods, EXAMPLE_COM_X_HELLO`},
		{name: "block of the other type",
			object: template(configMap, `{type: CustomSigner, kubeClient: {}, customSigner: {signerName: example.com/hello, signingCA: {name: ca}}}`,
				""),
			text: "spec.registration[0].kubeClient: Forbidden: it is for the type KubeClient"},
		{name: "block of the other type, too",
			object: template(configMap, `{type: KubeClient, customSigner: {signerName: example.com/hello, signingCA: {name: ca}}}`, ""),
			text:   "spec.registration[0].customSigner: Forbidden: it is for the type CustomSigner"},
		{name: "current cluster without its block", object: template(configMap, permission(`{type: CurrentCluster}`), ""),
			text: "spec.registration[0].kubeClient.hubPermissions[0].currentCluster.clusterRoleName: Required value"},
		{name: "current cluster with another block",
			object: template(configMap,
				permission(`{type: CurrentCluster, currentCluster: {clusterRoleName: r}, singleNamespace: {namespace: shared, roleRef: {apiGroup: g, kind: Role, name: r}}}`), ""),
			text: "hubPermissions[0].singleNamespace: Forbidden"},
		{name: "single namespace without its block", object: template(configMap, permission(`{type: SingleNamespace}`), ""),
			text: "spec.registration[0].kubeClient.hubPermissions[0].singleNamespace: Required value: the type SingleNamespace needs a namespace and a roleRef"},
		{name: "single namespace with another block",
			object: template(configMap,
				permission(`{type: SingleNamespace, currentCluster: {clusterRoleName: r}, singleNamespace: {namespace: shared, roleRef: {apiGroup: g, kind: Role, name: r}}}`), ""),
			text: "hubPermissions[0].currentCluster: Forbidden"},
		{name: "no namespace", object: template(configMap,
			permission(`{type: SingleNamespace, singleNamespace: {namespace: "", roleRef: {apiGroup: g, kind: Role, name: r}}}`), ""),
			text: "hubPermissions[0].singleNamespace.namespace: Required value"},
		{name: "no role", object: template(configMap,
			permission(`{type: SingleNamespace, singleNamespace: {namespace: shared, roleRef: {apiGroup: g, kind: Role, name: ""}}}`), ""),
			text: "hubPermissions[0].singleNamespace.roleRef.name: Required value"},
		{name: "role of no kind", object: template(configMap,
			permission(`{type: SingleNamespace, singleNamespace: {namespace: shared, roleRef: {apiGroup: g, kind: Group, name: r}}}`), ""),
			text: `hubPermissions[0].singleNamespace.roleRef.kind: Unsupported value: "Group": supported values: "ClusterRole", "Role"`},
		{name: "permission of no type", object: template(configMap, permission(`{type: Everywhere}`), ""),
			text: `hubPermissions[0].type: Unsupported value: "Everywhere": supported values: "CurrentCluster", "SingleNamespace"`},
		{name: "an old mistake", object: template("{kind: A}", "{type: CustomSigner}", ", labels: {a: b}"),
			old: template("{kind: A}", "{type: CustomSigner}", "")},
		{name: "an old mistake in a manifest", object: template("{kind: A}", signer, ""), old: template("{kind: A}", "", "")},
		{name: "a new mistake in a manifest", object: template("{kind: A}", signer, ""), old: template(configMap, signer, ""),
			text: "spec.agentSpec.workload.manifests[0].apiVersion"},
		{name: "a new mistake in a registration", object: template(configMap, "{type: CustomSigner}", ""), old: template(configMap, signer, ""),
			text: "spec.registration[0].customSigner"},
	} {
		t.Run(test.name, func(t *testing.T) { writeAndCheck(t, test.object, test.old, test.text, "bind ", "get ") })
	}
}

// WH-11: the hub writes the works of the add-on, so whoever writes the template needs the permission.
func TestExecutorOfAddOnTemplateIsValidated(t *testing.T) {
	t.Parallel()
	doing := func(manifest, executor string) *unstructured.Unstructured {
		return object(t, `{apiVersion: addon.open-cluster-management.io/v1beta1, kind: AddOnTemplate, metadata: {name: t},
			spec: {addonName: hello, agentSpec: {workload: {manifests: [{apiVersion: v1, kind: ConfigMap, metadata: {name: `+manifest+
			`, namespace: ns}}]}`+executor+`}}}`)
	}
	const bot = `, executor: {subject: {type: ServiceAccount, serviceAccount: {namespace: apps, name: bot}}}`
	template := func() *unstructured.Unstructured { return doing("a", bot) }
	checkStatus(t, newServer().write(t, template(), nil, ""), 400, "spec.agentSpec.executor")
	checkStatus(t, newServer("execute-as ").write(t, template(), nil, ""), 0, "")
	// "ask whenever workload or manifest configuration of a work with an executor changes, or the executor is removed; the same for
	// templates"
	checkStatus(t, newServer().write(t, doing("b", bot), template(), ""), 400, "spec.agentSpec.executor")
	checkStatus(t, newServer("execute-as ").write(t, doing("b", bot), template(), ""), 0, "")
	checkStatus(t, newServer().write(t, doing("a", ""), template(), ""), 400, "klusterlet-work-sa")
	labelled := template()
	labelled.SetLabels(map[string]string{"a": "b"})
	checkStatus(t, newServer().write(t, labelled, template(), ""), 0, "")
}

// A2, AM-34, AM-35: the hub binds the roles, and signs with the CA. So whoever only may write templates cannot give what he does not have.
func TestGrantsOfAddOnTemplateAreValidated(t *testing.T) {
	t.Parallel()
	template := func(registration string) *unstructured.Unstructured {
		return object(t, `{apiVersion: addon.open-cluster-management.io/v1alpha1, kind: AddOnTemplate, metadata: {name: t}, spec: {addonName: hello, agentSpec: {}, registration: [`+registration+`]}}`)
	}
	const (
		administrator = `{type: KubeClient, kubeClient: {hubPermissions: [{type: CurrentCluster, currentCluster: {clusterRoleName: cluster-admin}}]}}`
		signer        = `{type: CustomSigner, customSigner: {signerName: example.com/hello, signingCA: {name: ca}}}`
	)
	checkStatus(t, newServer().write(t, template(administrator), nil, ""), 403, `"cluster-admin"`)
	checkStatus(t, newServer("get ").write(t, template(administrator), template(signer), ""), 403, `"cluster-admin"`)
	checkStatus(t, newServer("bind ").write(t, template(administrator), nil, ""), 0, "")
	checkStatus(t, newServer().write(t, template(signer), nil, ""), 403, "open-cluster-management-hub/ca")
	checkStatus(t, newServer("get ").write(t, template(signer), nil, ""), 0, "")
}
