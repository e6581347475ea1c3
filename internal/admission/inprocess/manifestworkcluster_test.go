package inprocess_test

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// "No new works are admitted for a cluster that is denied or being deleted (admission names the reason and what to do)", in process and as
// a webhook.
func TestWorksOfClustersThatGo(t *testing.T) {
	t.Parallel()
	const (
		meta     = `{"metadata":{"name":"c1"`
		denied   = meta + `},"spec":{"hubAcceptsClient":false},"status":{"conditions":[{"type":"HubAcceptedManagedCluster","status":"False"}]}}`
		deciding = meta + `},"spec":{"hubAcceptsClient":false}}`
		accepted = meta + `},"spec":{"hubAcceptsClient":true},"status":{"conditions":[{"type":"HubAcceptedManagedCluster","status":"True"}]}}`
		deleting = meta + `,"deletionTimestamp":"2026-11-22T09:00:00Z"},"spec":{"hubAcceptsClient":true}}`
		both     = meta + `,"deletionTimestamp":"2026-11-22T09:00:00Z","finalizers":["cluster.open-cluster-management.io/api-resource-cleanup"]},"spec":{}}`
	)
	manifest := func(name string) string {
		return `{apiVersion: v1, kind: ConfigMap, metadata: {namespace: ns, name: ` + name + `}}`
	}
	work := func(name, labels, more, manifests string) *unstructured.Unstructured {
		return object(t, `{apiVersion: work.open-cluster-management.io/v1, kind: ManifestWork, metadata: {namespace: c1, name: `+name+
			`, labels: {`+labels+`}},
			spec: {`+more+`workload: {manifests: [`+manifests+`]}}}`)
	}
	plain := work("w", "", "", manifest("a"))
	const ofAddOn = `open-cluster-management.io/addon-name: a`
	for _, test := range []struct {
		name      string
		cluster   string
		cached    string
		work, old *unstructured.Unstructured
		refused   string
	}{
		{name: "there is no cluster yet", work: plain},
		{name: "nobody has decided", cluster: deciding, work: plain},
		{name: "accepted", cluster: accepted, work: plain},
		{name: "denied", cluster: denied, work: plain,
			refused: `cluster "c1" is denied (spec.hubAcceptsClient of its ManagedCluster is false) and gets nothing new: accept it first, as with capstan accept --clusters c1`},
		{name: "deleting", cluster: deleting, work: plain, refused: `cluster "c1" is being deleted and gets nothing new`},
		{name: "just accepted again", cached: denied, cluster: accepted, work: plain},
		{name: "just made again", cached: deleting, cluster: deciding, work: plain},
		{name: "denied and deleting", cluster: both, work: plain, refused: "is denied"},

		// What becomes of a deleted cluster: the hooks of its add-ons run before they go.
		{name: "hooks of a deleting cluster", cluster: deleting, work: work("addon-a-pre-delete", ofAddOn, "", manifest("a"))},
		{name: "hooks of a hosted add-on", cluster: deleting,
			work: work("addon-a-pre-delete-hosting-c2", ofAddOn+`, open-cluster-management.io/addon-namespace: c2`, "", manifest("a"))},
		{name: "hooks of a denied cluster", cluster: denied, work: work("addon-a-pre-delete", ofAddOn, "", manifest("a")), refused: "is denied"},
		{name: "called like hooks", cluster: deleting, work: work("addon-a-pre-delete", "", "", manifest("a")), refused: "is being deleted"},
		{name: "the add-on itself", cluster: deleting, work: work("addon-a-deploy-0", ofAddOn, "", manifest("a")), refused: "is being deleted"},

		{name: "other content", cluster: denied, work: work("w", "", "", manifest("b")), old: plain, refused: "is denied"},
		{name: "more content", cluster: deleting, work: work("w", "", "", manifest("a")+", "+manifest("b")), old: plain,
			refused: "is being deleted"},
		{name: "less content", cluster: denied, work: plain, old: work("w", "", "", manifest("a")+", "+manifest("b"))},
		{name: "other options", cluster: denied, work: work("w", "", "deleteOption: {propagationPolicy: Orphan}, ", manifest("a")), old: plain},
		{name: "other labels", cluster: denied, work: work("w", "a: b", "", manifest("a")), old: plain},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newServer()
			s.cluster, s.cachedCluster = test.cluster, test.cached
			err := s.write(t, test.work.DeepCopy(), test.old, "")
			if test.refused == "" {
				checkStatus(t, err, 0, "")
				return
			}
			checkStatus(t, err, 403, test.refused)
			if !apierrors.HasStatusCause(err, "ClusterTakesNoWorks") {
				t.Errorf("it does not say so to controllers: %v", err)
			}
		})
	}
}
