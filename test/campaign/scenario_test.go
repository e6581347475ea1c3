package campaign

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// step is something that users and agents do. The next one comes when the controllers have nothing more to do.
type step struct {
	name string
	act  func(context.Context, *fleetOfTest) error
	// needsLast says that what the controllers do depends on whether they had done with the step before.
	needsLast bool
	// until is what the controllers do when time has passed, and not at once; nil is nothing.
	until func(context.Context, *fleetOfTest) (bool, error)
	// outcome fails if the controllers have not done what the step is for. The run without faults has to pass it, and all others store the
	// same; nil is nothing.
	outcome func(context.Context, *fleetOfTest) error
}

// scenario is the life of a small fleet, which leaves nothing behind.
var scenario = []step{
	{name: "start", act: func(context.Context, *fleetOfTest) error { return nil }},
	{name: "sets", act: creates(setsAndNamespace)},
	{name: "join", act: func(ctx context.Context, f *fleetOfTest) error {
		if err := f.requestCertificate(ctx); err != nil {
			return err
		}
		return f.create(ctx, clusters)
	}},
	// After others, for which the hub makes the roles that all clusters share: a cluster that expires at once may be gone before.
	{name: "stranger", act: func(ctx context.Context, f *fleetOfTest) error { return f.joinUnasked(ctx) }},
	{name: "accept", act: func(ctx context.Context, f *fleetOfTest) error {
		for _, name := range []string{"c1", "c2", "c3"} {
			err := f.editCluster(ctx, name, func(c *clusterv1.ManagedCluster) {
				c.Spec.HubAcceptsClient = true
				c.Labels[fleet.LabelClusterSet] = "red"
			})
			if err != nil {
				return err
			}
		}
		return nil
	}},
	{name: "gRPC", needsLast: true, act: func(ctx context.Context, f *fleetOfTest) error { return f.requestGRPCCertificate(ctx) }},
	{name: "report", act: live("c1", "c2", "c3")},
	{name: "renew", act: func(ctx context.Context, f *fleetOfTest) error { return f.renew(ctx) }},
	{name: "place", act: creates(placements)},
	{name: "Argo CD", act: creates(gitOps)},
	{name: "leave Argo CD", needsLast: true, act: func(ctx context.Context, f *fleetOfTest) error { return f.leaveArgo(ctx) },
		until: removed(gitOps)},
	{name: "replicate", act: creates(works), outcome: checkRolledOut},
	{name: "roll out", needsLast: true, act: patches("work.open-cluster-management.io/v1alpha1", "ManifestWorkReplicaSet", "apps", "web",
		`{"spec":{"manifestWorkTemplate":{"workload":{"manifests":[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"default",`+
			`"name":"web"},"data":{"version":"2"}}]}}}}`), outcome: checkRolledOut},
	{name: "add-ons", act: creates(addOns), outcome: checkApplied},
	{name: "certify", needsLast: true, act: func(ctx context.Context, f *fleetOfTest) error { return f.certify(ctx) }},
	{name: "reconfigure", needsLast: true, act: patches(
		"addon.open-cluster-management.io/v1alpha1", "AddOnDeploymentConfig", "apps", "settings",
		`{"spec":{"customizedVariables":[{"name":"GREETING","value":"Good day"}]}}`), outcome: checkApplied},
	{name: "accounts", act: creates(accounts), until: gone(objectOf(
		"authentication.open-cluster-management.io/v1beta1", "ManagedServiceAccount", "c1", "fleeting"))},
	{name: "silence", act: func(ctx context.Context, f *fleetOfTest) error {
		delete(f.alive, "c2")
		return f.setLease(ctx, "c2", 1)
	}, until: func(ctx context.Context, f *fleetOfTest) (bool, error) { return f.isLost(ctx, "c2") }},
	{name: "back", needsLast: true, act: func(ctx context.Context, f *fleetOfTest) error {
		f.alive["c2"] = true
		return f.setLease(ctx, "c2", endless)
	}},
	{name: "deny", act: func(ctx context.Context, f *fleetOfTest) error {
		return f.editCluster(ctx, "c3", func(c *clusterv1.ManagedCluster) { c.Spec.HubAcceptsClient = false })
	}},
	{name: "accept again", needsLast: true, act: func(ctx context.Context, f *fleetOfTest) error {
		return f.editCluster(ctx, "c3", func(c *clusterv1.ManagedCluster) { c.Spec.HubAcceptsClient = true })
	}},
	{name: "narrow", act: patches("cluster.open-cluster-management.io/v1beta1", "Placement", "apps", "all",
		`{"spec":{"predicates":[{"requiredClusterSelector":{"labelSelector":{"matchLabels":{"size":"large"}}}}]}}`)},
	{name: "leave", act: deletes("cluster.open-cluster-management.io/v1", "ManagedCluster", "", "c2"), until: gone(clusterOf("c2"))},
	{name: "remove accounts", act: removes(accounts), until: removed(accounts)},
	{name: "remove add-ons", act: removes(addOns), until: removed(addOns, installationOf("c1", addOnOfTest),
		installationOf("c1", "plain"), installationOf("c3", addOnOfTest), installationOf("c3", "plain"))},
	{name: "remove works", act: removes(works), until: removed(works)},
	{name: "remove placements", act: removes(placements), until: removed(placements)},
	{name: "all leave", act: func(ctx context.Context, f *fleetOfTest) error {
		for _, name := range []string{"c1", "c3"} {
			if err := deletes("cluster.open-cluster-management.io/v1", "ManagedCluster", "", name)(ctx, f); err != nil {
				return err
			}
		}
		return f.removeRequests(ctx)
	}, until: gone(clusterOf("c1"), clusterOf("c3"))},
	{name: "remove sets", act: removes(setsAndNamespace), until: removed(setsAndNamespace)},
	// Those of clusters stay for administrators to remove.
	{name: "remove namespaces", act: func(ctx context.Context, f *fleetOfTest) error {
		for _, name := range []string{"c1", "c2", "c3"} {
			if err := client.IgnoreNotFound(deletes("v1", "Namespace", "", name)(ctx, f)); err != nil {
				return err
			}
		}
		return nil
	}},
}

const setsAndNamespace = `
apiVersion: v1
kind: Namespace
metadata: {name: apps}
---
apiVersion: cluster.open-cluster-management.io/v1beta2
kind: ManagedClusterSetBinding
metadata: {namespace: apps, name: red}
spec: {clusterSet: red}
---
apiVersion: cluster.open-cluster-management.io/v1beta2
kind: ManagedClusterSet
metadata: {name: red}
spec:
  clusterSelector: {selectorType: ExclusiveClusterSetLabel}
  managedNamespaces: [{name: red-apps}]
`

// endless is how many seconds the hub waits for an agent that nobody is to take for lost: more than a test takes.
const endless = 10000000

// c3 asks for access by AWS IAM, which the hub does not give.
const clusters = `
apiVersion: cluster.open-cluster-management.io/v1
kind: ManagedCluster
metadata: {name: c1, labels: {size: large}}
spec: {leaseDurationSeconds: 10000000}
---
apiVersion: cluster.open-cluster-management.io/v1
kind: ManagedCluster
metadata: {name: c2, labels: {size: small}}
spec: {leaseDurationSeconds: 10000000}
---
apiVersion: cluster.open-cluster-management.io/v1
kind: ManagedCluster
metadata:
  name: c3
  labels: {size: large}
  annotations: {agent.open-cluster-management.io/managed-cluster-arn: "arn:aws:eks:eu-west-1:123456789012:cluster/c3"}
spec: {leaseDurationSeconds: 10000000}
`

// all keeps clusters that are silent, reachable does not.
const placements = `
apiVersion: cluster.open-cluster-management.io/v1beta1
kind: Placement
metadata: {namespace: apps, name: all}
spec:
  tolerations:
  - {key: cluster.open-cluster-management.io/unreachable, operator: Exists}
  - {key: cluster.open-cluster-management.io/unavailable, operator: Exists}
---
apiVersion: cluster.open-cluster-management.io/v1beta1
kind: Placement
metadata: {namespace: apps, name: reachable}
spec:
  numberOfClusters: 2
  prioritizerPolicy: # Balance would depend on which placement is decided first
    mode: Exact
    configurations:
    - {scoreCoordinate: {type: BuiltIn, builtIn: Steady}, weight: 1}
  decisionStrategy:
    groupStrategy: {clustersPerDecisionGroup: 1}
`

// gitOps has Argo CD know all clusters.
const gitOps = `
apiVersion: apps.open-cluster-management.io/v1beta1
kind: GitOpsCluster
metadata: {namespace: apps, name: all}
spec:
  argoServer: {argoNamespace: apps}
  placementRef: {kind: Placement, name: all}
  createBlankClusterSecrets: true
`

// rolloutConcurrency is the maxConcurrency of the set in works, and of addOnOfTest.
const rolloutConcurrency = 1

const works = `
apiVersion: work.open-cluster-management.io/v1alpha1
kind: ManifestWorkReplicaSet
metadata: {namespace: apps, name: web, annotations: {capstan.io/rollback: "true"}}
spec:
  placementRefs:
  - name: all
    rolloutStrategy: {type: Progressive, progressive: {maxConcurrency: 1}}
  manifestWorkTemplate:
    workload:
      manifests:
      - {apiVersion: v1, kind: ConfigMap, metadata: {namespace: default, name: web}, data: {version: "1"}}
---
apiVersion: work.open-cluster-management.io/v1
kind: ManifestWork
metadata: {namespace: c1, name: once}
spec:
  deleteOption: {ttlSecondsAfterFinished: 0}
  workload:
    manifests:
    - {apiVersion: v1, kind: ConfigMap, metadata: {namespace: default, name: once}}
`

// addOnOfTest is the add-on that has a manager, and is rolled out.
const addOnOfTest = "greeter"

// certify fills the Secret.
const addOns = `
apiVersion: v1
kind: Secret
metadata: {namespace: apps, name: greeter-ca}
type: kubernetes.io/tls
data: {tls.crt: "", tls.key: ""}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: greeter-reader}
rules:
- {apiGroups: [""], resources: [configmaps], verbs: [get]}
---
apiVersion: addon.open-cluster-management.io/v1alpha1
kind: AddOnDeploymentConfig
metadata: {namespace: apps, name: settings}
spec:
  customizedVariables:
  - {name: GREETING, value: Hello}
---
apiVersion: addon.open-cluster-management.io/v1alpha1
kind: AddOnTemplate
metadata: {name: greeter-v1}
spec:
  addonName: greeter
  agentSpec:
    workload:
      manifests:
      - {apiVersion: v1, kind: ConfigMap, metadata: {namespace: default, name: greeting}, data: {greeting: "{{GREETING}}"}}
  registration:
  - type: KubeClient
    kubeClient:
      hubPermissions:
      - {type: CurrentCluster, currentCluster: {clusterRoleName: greeter-reader}}
  - type: CustomSigner
    customSigner:
      signerName: example.com/greeter
      signingCA: {namespace: apps, name: greeter-ca}
---
apiVersion: addon.open-cluster-management.io/v1alpha1
kind: ClusterManagementAddOn
metadata: {name: greeter}
spec:
  supportedConfigs:
  - {group: addon.open-cluster-management.io, resource: addontemplates, defaultConfig: {name: greeter-v1}}
  - {group: addon.open-cluster-management.io, resource: addondeploymentconfigs, defaultConfig: {namespace: apps, name: settings}}
  installStrategy:
    type: Placements
    placements:
    - {namespace: apps, name: all, rolloutStrategy: {type: Progressive, progressive: {maxConcurrency: 1}}}
---
apiVersion: addon.open-cluster-management.io/v1alpha1
kind: ClusterManagementAddOn
metadata:
  name: plain
spec:
  supportedConfigs:
  - {group: addon.open-cluster-management.io, resource: addondeploymentconfigs, defaultConfig: {namespace: apps, name: settings}}
  installStrategy:
    type: Placements
    placements:
    - {namespace: apps, name: all}
`

// The Secrets are as the agent of c1 writes them.
const accounts = `
apiVersion: addon.open-cluster-management.io/v1alpha1
kind: ManagedClusterAddOn
metadata: {namespace: c1, name: cluster-proxy}
spec: {}
---
apiVersion: addon.open-cluster-management.io/v1alpha1
kind: ManagedClusterAddOn
metadata: {namespace: c1, name: cluster-gateway}
spec: {}
---
apiVersion: v1
kind: Secret
metadata: {namespace: c1, name: cluster-gateway, labels: {authentication.open-cluster-management.io/is-managed-serviceaccount: "true"}}
data: {token: dG9rZW4=, ca.crt: Y2E=}
---
apiVersion: addon.open-cluster-management.io/v1alpha1
kind: ManagedClusterAddOn
metadata: {namespace: c1, name: managed-serviceaccount}
spec: {}
---
apiVersion: authentication.open-cluster-management.io/v1beta1
kind: ManagedServiceAccount
metadata: {namespace: c1, name: robot, labels: {authentication.open-cluster-management.io/sync-to-clusterprofile: "true"}}
spec: {rotation: {validity: 8640h}}
---
apiVersion: v1
kind: Secret
metadata: {namespace: c1, name: robot, labels: {authentication.open-cluster-management.io/is-managed-serviceaccount: "true"}}
data: {token: dG9rZW4=, ca.crt: Y2E=}
---
apiVersion: authentication.open-cluster-management.io/v1beta1
kind: ManagedServiceAccount
metadata: {namespace: c1, name: fleeting}
spec: {rotation: {validity: 8640h}, ttlSecondsAfterCreation: 1}
---
apiVersion: rbac.open-cluster-management.io/v1alpha1
kind: ClusterPermission
metadata: {namespace: c1, name: robot}
spec:
  clusterRole:
    rules:
    - {apiGroups: [""], resources: [nodes], verbs: [get]}
  clusterRoleBinding:
    subject: {apiGroup: authentication.open-cluster-management.io, kind: ManagedServiceAccount, name: robot}
`

func creates(documents string) func(context.Context, *fleetOfTest) error {
	return func(ctx context.Context, f *fleetOfTest) error { return f.create(ctx, documents) }
}

func patches(version, kind, namespace, name, patch string) func(context.Context, *fleetOfTest) error {
	return func(ctx context.Context, f *fleetOfTest) error {
		o := objectOf(version, kind, namespace, name)
		if err := f.hub.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
			return err
		}
		return f.acknowledge(o)
	}
}

func deletes(version, kind, namespace, name string) func(context.Context, *fleetOfTest) error {
	return func(ctx context.Context, f *fleetOfTest) error {
		return f.hub.Delete(ctx, objectOf(version, kind, namespace, name))
	}
}

func removes(documents string) func(context.Context, *fleetOfTest) error {
	return func(ctx context.Context, f *fleetOfTest) error { return f.remove(ctx, documents) }
}

// removed tells whether none of some objects is there any more, nor what is made of them.
func removed(documents string, made ...*unstructured.Unstructured) func(context.Context, *fleetOfTest) (bool, error) {
	return func(ctx context.Context, f *fleetOfTest) (bool, error) {
		objects, err := parse(documents)
		if err != nil {
			return false, err
		}
		return gone(append(objects, made...)...)(ctx, f)
	}
}

// gone tells whether none of some objects is there any more.
func gone(objects ...*unstructured.Unstructured) func(context.Context, *fleetOfTest) (bool, error) {
	return func(ctx context.Context, f *fleetOfTest) (bool, error) {
		for _, o := range objects {
			if err := f.hub.Get(ctx, client.ObjectKeyFromObject(o), o.DeepCopy()); !apierrors.IsNotFound(err) {
				return false, err
			}
		}
		return true, nil
	}
}

func clusterOf(name string) *unstructured.Unstructured {
	return objectOf("cluster.open-cluster-management.io/v1", "ManagedCluster", "", name)
}

func installationOf(cluster, addOn string) *unstructured.Unstructured {
	return objectOf("addon.open-cluster-management.io/v1alpha1", "ManagedClusterAddOn", cluster, addOn)
}

// live has these clusters have agents.
func live(names ...string) func(context.Context, *fleetOfTest) error {
	return func(_ context.Context, f *fleetOfTest) error {
		for _, name := range names {
			f.alive[name] = true
		}
		return nil
	}
}
