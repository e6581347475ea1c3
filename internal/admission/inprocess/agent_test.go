package inprocess_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/authentication/user"
)

// R10: an agent reports how its cluster is reached, and nothing that others decide by.
func TestAgentsChangeTheirOwn(t *testing.T) {
	t.Parallel()
	const metadata, spec = "metadata: {name: c1, labels: {env: test}, finalizers: [a], annotations: {x: z}}",
		"hubAcceptsClient: true, leaseDurationSeconds: 60"
	before := func() *unstructured.Unstructured {
		c := cluster(t, metadata+", spec: {"+spec+"}")
		c.SetLabels(map[string]string{"env": "test", "cluster.open-cluster-management.io/clusterset": "default"})
		return c
	}
	for _, test := range []struct {
		name, refused string
		change        func(*unstructured.Unstructured)
	}{
		{name: "nothing", change: func(*unstructured.Unstructured) {}},
		{name: "addresses", change: func(c *unstructured.Unstructured) {
			c.Object["spec"].(map[string]any)["managedClusterClientConfigs"] = []any{map[string]any{"url": "https://c1"}}
		}},
		{name: "annotation of the agent", change: func(c *unstructured.Unstructured) {
			c.SetAnnotations(map[string]string{"x": "z", "agent.open-cluster-management.io/a": "b"})
		}},
		{name: "which cluster of AWS it is", refused: "metadata.annotations", change: func(c *unstructured.Unstructured) {
			c.SetAnnotations(map[string]string{"x": "z", "agent.open-cluster-management.io/managed-cluster-arn": "arn:aws:eks:us-west-2:1:cluster/c2"})
		}},
		{name: "role in AWS", refused: "metadata.annotations", change: func(c *unstructured.Unstructured) {
			c.SetAnnotations(map[string]string{"x": "z", "agent.open-cluster-management.io/managed-cluster-iam-role-suffix": "0"})
		}},
		{name: "label", refused: "metadata.labels", change: func(c *unstructured.Unstructured) {
			c.SetLabels(map[string]string{"env": "prod", "cluster.open-cluster-management.io/clusterset": "default"})
		}},
		{name: "set", refused: `ManagedClusterSet "default"`, change: func(c *unstructured.Unstructured) {
			c.SetLabels(map[string]string{"env": "test", "cluster.open-cluster-management.io/clusterset": "prod"})
		}},
		{name: "annotation of the hub", refused: "metadata.annotations", change: func(c *unstructured.Unstructured) { c.SetAnnotations(nil) }},
		{name: "finalizers", refused: "metadata.finalizers", change: func(c *unstructured.Unstructured) { c.SetFinalizers(nil) }},
		{name: "owners", refused: "metadata.ownerReferences", change: func(c *unstructured.Unstructured) {
			c.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "a", UID: "1"}})
		}},
		{name: "lease duration", refused: "spec", change: func(c *unstructured.Unstructured) {
			c.Object["spec"].(map[string]any)["leaseDurationSeconds"] = int64(1)
		}},
		{name: "taints", refused: "spec", change: func(c *unstructured.Unstructured) {
			c.Object["spec"].(map[string]any)["taints"] = []any{map[string]any{"key": "a", "effect": "NoSelect"}}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			changed := before()
			test.change(changed)
			agent := newServer()
			agent.who = &user.DefaultInfo{Name: "agent",
				Groups: []string{"system:open-cluster-management:c1", "system:open-cluster-management:managed-clusters"}}
			checkForbidden(t, agent.write(t, changed.DeepCopy(), before(), ""), test.refused)
			// Who is no agent may do all of this, but for the set.
			if test.name != "set" {
				checkStatus(t, newServer().write(t, changed.DeepCopy(), before(), ""), 0, "")
			}
		})
	}
}

// An agent puts on works the finalizers that the hub takes off for it when it goes on without it, and no others: one of another domain, or
// an owner, would keep a work in its namespace, and its rights to works with it.
func TestAgentsLeaveMetadataOfWorks(t *testing.T) {
	t.Parallel()
	const own, foreign = "cluster.open-cluster-management.io/manifest-work-cleanup", "example.com/hold"
	work := func(finalizers ...string) *unstructured.Unstructured {
		w := object(t, `{apiVersion: work.open-cluster-management.io/v1, kind: ManifestWork, metadata: {name: w, namespace: c1, labels: {a: b}},
			spec: {workload: {manifests: [{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}]}}}`)
		w.SetFinalizers(finalizers)
		return w
	}
	labelled, owned := work(), work()
	labelled.SetLabels(map[string]string{"a": "c"})
	owned.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "a", UID: "1"}})
	for _, test := range []struct {
		name         string
		changed, old *unstructured.Unstructured
		refused      string
	}{
		{"add its own", work(own), work(), ""},
		{"add its own to another", work(foreign, own), work(foreign), ""},
		{"remove its own", work(foreign), work(foreign, own), ""},
		{"add another", work(own, foreign), work(own), "metadata.finalizers to [example.com/hold]"},
		{"remove another", work(own), work(own, foreign), "metadata.finalizers"},
		{"labels", labelled, work(), "metadata.labels"},
		{"owners", owned, work(), "metadata.ownerReferences"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			for _, who := range []*user.DefaultInfo{
				agentOfC1, {Name: "system:serviceaccount:c1:a-agent"},
				{Name: "x", Groups: []string{"system:open-cluster-management:cluster:c1:addon:a"}},
			} {
				checkForbidden(t, as(who).write(t, test.changed.DeepCopy(), test.old.DeepCopy(), ""), test.refused)
			}
			checkStatus(t, newServer().write(t, test.changed.DeepCopy(), test.old.DeepCopy(), ""), 0, "")
		})
	}
}

// By an annotation of the hub, an agent would have its cluster count in a rollout before it has what is rolled out.
func TestAgentsLeaveAnnotationsOfTheHub(t *testing.T) {
	t.Parallel()
	const extension, noon, later = "capstan.io/template-written-at", "2026-11-21T12:00:00Z", "2026-11-21T13:00:00Z"
	work := func(key, value string) *unstructured.Unstructured {
		w := object(t, `{apiVersion: work.open-cluster-management.io/v1, kind: ManifestWork, metadata: {name: w, namespace: c1},
			spec: {workload: {manifests: [{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}]}}}`)
		w.SetAnnotations(map[string]string{"logging.open-cluster-management.io/a": "b", key: value})
		return w
	}
	for _, test := range []struct {
		name         string
		changed, old *unstructured.Unstructured
		refused      string
	}{
		{"another annotation", work("example.com/text", "a"), work("example.com/text", "b"), ""},
		{"none", work(extension, noon), work(extension, noon), ""},
		{"add", work(extension, noon), work("example.com/text", ""), "metadata.annotations that begin with capstan.io/"},
		{"change", work(extension, later), work(extension, noon), "here to map[" + extension + ":" + later + "]"},
		{"remove", work("example.com/text", ""), work(extension, noon), "metadata.annotations that begin with capstan.io/"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			for _, agent := range []*user.DefaultInfo{agentOfC1, grpcServer,
				{Name: "open-cluster-management:c1", Groups: []string{"open-cluster-management:c1"}}} {
				checkForbidden(t, as(agent).write(t, test.changed.DeepCopy(), test.old.DeepCopy(), ""), test.refused)
			}
			for _, other := range []*user.DefaultInfo{{Name: "admin"}, {Name: "system:serviceaccount:c1:deployer"}} {
				checkStatus(t, as(other).write(t, test.changed.DeepCopy(), test.old.DeepCopy(), ""), 0, "")
			}
		})
	}
}

// An agent does not keep its namespace from being deleted by what it writes there: no finalizer of its choice would be removed.
func TestAgentsHoldNothingInTheirNamespace(t *testing.T) {
	t.Parallel()
	const finalizers, owners = "finalizers: [x.io/stay]", "ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: a, uid: b}]"
	kinds := map[string]string{"Lease": "coordination.k8s.io/v1", "Event": "events.k8s.io/v1"}
	for kind, version := range kinds {
		with := func(more string) *unstructured.Unstructured {
			return object(t, `{apiVersion: `+version+`, kind: `+kind+`, metadata: {name: o, namespace: c1, `+more+`}}`)
		}
		for name, test := range map[string]struct {
			written, old *unstructured.Unstructured
			refused      string
		}{
			"neither":            {with(""), with(""), ""},
			"new":                {with(""), nil, ""},
			"new with finalizer": {with(finalizers), nil, "cannot change metadata.finalizers"},
			"new with owner":     {with(owners), nil, "cannot change metadata.ownerReferences"},
			"finalizer":          {with(finalizers), with(""), "cannot change metadata.finalizers"},
			"finalizer removed":  {with(""), with(finalizers), "cannot change metadata.finalizers"},
			"owner":              {with(owners), with(""), "cannot change metadata.ownerReferences"},
			"what others set":    {with(finalizers + ", " + owners), with(finalizers + ", " + owners), ""},
		} {
			t.Run(kind+"/"+name, func(t *testing.T) {
				t.Parallel()
				checkForbidden(t, as(agentOfC1).write(t, test.written.DeepCopy(), test.old.DeepCopy(), ""), test.refused)
				checkStatus(t, newServer().write(t, test.written.DeepCopy(), test.old.DeepCopy(), ""), 0, "")
			})
		}
	}
}

// R10: an agent that changed the spec of a work would have the hub delete it, by its time to live, or store what it likes.
func TestAgentsLeaveSpecsOfWorks(t *testing.T) {
	t.Parallel()
	work := func(finalizer, more, name string) *unstructured.Unstructured {
		return object(t, `{apiVersion: work.open-cluster-management.io/v1, kind: ManifestWork, metadata: {name: w, namespace: c1,
			finalizers: [`+finalizer+`]}, spec: {`+more+`workload: {manifests: [{apiVersion: v1, kind: ConfigMap, metadata: {name: `+name+`}}]}}}`)
	}
	const own = "cluster.open-cluster-management.io/manifest-work-cleanup"
	old := work("", "", "c")
	for _, test := range []struct {
		name    string
		changed *unstructured.Unstructured
		refused bool
	}{
		{"its finalizer alone", work(own, "", "c"), false},
		{"manifests", work("", "", "d"), true},
		{"time to live", work(own, "deleteOption: {propagationPolicy: Foreground, ttlSecondsAfterFinished: 0}, ", "c"), true},
		{"what is reported", work("", `manifestConfigs: [{resourceIdentifier: {group: "", resource: configmaps, name: c, namespace: c},
			feedbackRules: [{type: JSONPaths, jsonPaths: [{name: a, path: .data.a}]}]}], `, "c"), true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			for _, agent := range []*user.DefaultInfo{agentOfC1, grpcServer,
				{Name: "open-cluster-management:c1", Groups: []string{"open-cluster-management:c1"}}} {
				code, text := int32(0), ""
				if test.refused {
					code, text = 403, `is the agent of cluster "c1" and cannot change spec`
				}
				checkStatus(t, as(agent).write(t, test.changed.DeepCopy(), old.DeepCopy(), ""), code, text)
			}
			for _, other := range []*user.DefaultInfo{{Name: "admin"}, {Name: "system:serviceaccount:c1:deployer"}} {
				checkStatus(t, as(other).write(t, test.changed.DeepCopy(), old.DeepCopy(), ""), 0, "")
			}
		})
	}
}

// R10: the label of a request says whose agent made it.
func TestRequestsOfAgentsAreLabelled(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, groups, labels string
		code                 int32
	}{
		{name: "own", groups: "system:open-cluster-management:c1", labels: "{open-cluster-management.io/cluster-name: c1}"},
		{name: "own, through AWS", groups: "open-cluster-management:c1", labels: "{open-cluster-management.io/cluster-name: c1}"},
		{name: "another", groups: "system:open-cluster-management:c1", labels: "{open-cluster-management.io/cluster-name: c2}", code: 403},
		{name: "another, through AWS", groups: "open-cluster-management:c1", labels: "{open-cluster-management.io/cluster-name: c2}", code: 403},
		{name: "none", groups: "system:open-cluster-management:c1", labels: "{}", code: 403},
		{name: "a joining agent", groups: "system:bootstrappers:managedcluster", labels: "{open-cluster-management.io/cluster-name: c2}"},
		{name: "an add-on", groups: "system:open-cluster-management:cluster:c1:addon:a", labels: "{}"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newServer()
			s.who = &user.DefaultInfo{Name: "agent", Groups: []string{test.groups}}
			csr := object(t, `{apiVersion: certificates.k8s.io/v1, kind: CertificateSigningRequest, metadata: {name: r, labels: `+test.labels+`}}`)
			text := ""
			if test.code != 0 {
				text = `cluster "c1" and cannot create a request with the label open-cluster-management.io/cluster-name=`
			}
			checkStatus(t, s.write(t, csr, nil, ""), test.code, text)
		})
	}
}
